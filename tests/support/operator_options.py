"""Helps tests of the options of `ome operator`: it has two sample values of each option, and returns the flags for a value,
and the settings with which an operator would start.
"""

from typing import Any

import pytest
from typer.testing import CliRunner

import ome_operator.app
from ome_operator.cli.operator import app
from ome_operator.settings import Settings
from ome_operator.settings.option import Declared, Form, options
from ome_operator.util import log_format

OPTIONS = {declared.key: declared for declared in options(Settings)}
SAMPLES: dict[str, tuple[Any, Any]] = {
    "kubeconfig": ("/a", "/b"),
    "context": ("one", "two"),
    "watch-namespace": (["team-a", "team-b"], ["team-c"]),
    "operator-class": ("blue", "green"),
    "cluster-wide-kinds": (False, True),
    "gang-timeout": (7, 8.5),
    "preflight": ("Warn", "Require"),
    "observe": (True, False),
    "observe-namespace": (["a", "b"], ["c"]),
    "sidecar-image": ("r.example.com/op:1", "r.example.com/op:2"),
    "router-keys": (False, True),
    "image-pulls": (7, 8),
    "image-pull-timeout": (60, 90.5),
    "model-agent": (True, False),
    "agent-root": (["/raid", "/mnt/other"], ["/data"]),
    "compile-caches": (True, False),
    "pin-from": (["n1", "n2"], ["n3"]),
    "network-policies": (True, False),
    "keda": (True, False),
    "models-per-namespace": (3, 0),
    "scrapes-engines": (True, False),
    "pull-secret": (["one", "two"], ["three"]),
    "expose": ("Ingress", ""),
    "expose-domain": ("a.example.com", "b.example.com"),
    "ingress-class": ("nginx", "traefik"),
    "gateway": ("infra/edge", "infra/other"),
    "expose-other-domain": (["team-a=a.org", "*=b.org"], ["team-b=c.org"]),
    "expose-annotation": (["nginx.ingress.kubernetes.io/", "x/y"], ["z"]),
    "identity": ("me", "you"),
    "leader-election": (False, True),
    "namespace-of-lease": ("here", "there"),
    "connections": (3, 4),
    "workers": (5, 6),
    "waves": ([1, "50%"], "2,100%"),
    "bake": ("90s", "1h30m"),
    "max-concurrent-services": (2, 3),
    "avoid-bad-nodes": (False, True),
    "lint-refuse": (False, True),
    "router-watch": (30.5, 60),
    "router-proxy": (True, False),
    "well-known-models": ("", "package"),
    "benchmark-image": ("r.example.com/sglang:1", "r.example.com/sglang:2"),
    "tools-image": ("r.example.com/agent:1", "r.example.com/agent:2"),
    "address": ("127.0.0.2", "127.0.0.3"),
    "health-port": (0, 9001),
    "metrics-port": (0, 9002),
    "metrics-per-service": (0, 7),
    "recorder-memory": (0, 32),
    "log-format": ("json", "console"),
    "log-level": ("DEBUG", "ERROR"),
}
"""Option -> two values in the form in which a configuration file has them. The first value is not the default of the
option.
"""


def words(key: str, value: Any) -> list[str]:
    """Return the flags that have the same effect as a value in a configuration file."""
    form = OPTIONS[key].form
    if form is Form.SWITCH:
        return [f"--{key}" if value else f"--no-{key}"]
    if form is Form.STEPS and isinstance(value, list):
        return [f"--{key}={','.join(map(str, value))}"]
    return [f"--{key}={item}" for item in (value if isinstance(value, list) else [value])]


def field(settings: Settings, declared: Declared) -> Any:
    """Return the value of the setting that an option sets."""
    found: Any = settings
    for name in declared.path:
        found = getattr(found, name)
    return found


def caught(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Replace the operator by a function that only records its settings. Return the list to which each call of `start` adds
    them.
    """
    found: list[Settings] = []

    async def run(settings: Settings) -> int:
        found.append(settings)
        return 0

    monkeypatch.setattr(ome_operator.app, "run", run)
    monkeypatch.setattr(log_format, "configure", lambda *_: None)
    monkeypatch.setattr("secrets.token_hex", lambda _: "random")
    for name in ("KUBECONFIG", "POD_UID"):
        monkeypatch.delenv(name, raising=False)
    return found


def start(line: list[str]) -> None:
    """Run `ome operator` with these flags, and check that they are accepted."""
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, (line, result.output, result.exception)
