"""Helps tests of the options of `ome agent`: it has a sample value of each option, and returns the settings and options with
which an agent would start.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from typer.testing import CliRunner

from ome_operator.agent.work import AgentSettings
from ome_operator.cli import agent
from ome_operator.settings.agent import AgentOptions
from ome_operator.settings.option import Declared, options
from ome_operator.util import log_format

AGENT_OPTIONS = {declared.key: declared for declared in options(AgentOptions)}
SAMPLES: dict[str, Any] = {
    "node": "h200-00",
    "root": ["/tmp"],
    "secrets": "/secrets",
    "secret": ['{"name": "a", "hosts": ["huggingface.co"]}', '{"name": "b", "hosts": ["example.com"]}'],
    "identity-host": ["s3.example.com"],
    "identity-namespace": ["team-a", "team-b"],
    "private-host": ["10.0.0.1"],
    "refused-address": ["203.0.113.0/24"],
    "endpoint-host": ["minio.example"],
    "endpoint": "https://mirror.example",
    "files": 3,
    "models": 4,
    "turn": 7.0,
    "namespace-gb": 2.5,
    "bandwidth": 100.0,
    "verify-every": 60.0,
    "sample": 0.5,
    "remove-after": 3600.0,
    "prefetch-gb": 10.0,
    "prefetch-mbps": 200.0,
    "compile-cache-gb": 20.0,
    "models-per-namespace": 9,
    "peers": "agents.ome.svc",
    "peer-token": "/token",
    "peer-port": 9082,
    "own-address": "10.1.1.1",
    "kubeconfig": "/kubeconfig",
    "address": "127.0.0.2",
    "port": 9081,
    "log-format": "console",
    "log-level": "DEBUG",
}
"""Option -> value that is not the default."""


def flags(key: str) -> list[str]:
    """Return the flags that set an option to its sample."""
    value = SAMPLES[key]
    return [f"--{key}={item}" for item in (value if isinstance(value, list) else [value])]


def value(chosen: AgentOptions, declared: Declared) -> Any:
    """Return the value of the field that an option sets."""
    found: Any = chosen
    for name in declared.path:
        found = getattr(found, name)
    return found


@contextmanager
def _caught() -> Iterator[list[tuple[AgentSettings, AgentOptions]]]:
    """Replace the agent by a function that only records what it is started with."""
    found: list[tuple[AgentSettings, AgentOptions]] = []

    async def run(settings: AgentSettings, chosen: AgentOptions, *_: Any) -> int:
        found.append((settings, chosen))
        return 0

    def token(*_: Any) -> str:
        return "token"

    replaced = (mock.patch.object(agent, "_run", run), mock.patch.object(agent, "_token", token))
    with replaced[0], replaced[1], mock.patch.object(log_format, "configure"):
        yield found


def started(line: list[str], **variables: str) -> tuple[AgentSettings, AgentOptions]:
    """Return the settings and the options with which `ome agent` starts with these flags and environment variables."""
    with _caught() as found:
        done = CliRunner().invoke(agent.app, line, env={"KUBECONFIG": None, **variables})
    assert done.exit_code == 0, (line, done.output, done.exception)
    (only,) = found
    return only
