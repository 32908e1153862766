"""Tests that the command line of the agent becomes its options and its settings."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ome_operator.cli import agent
from ome_operator.errors import UserError
from ome_operator.settings.agent import AgentOptions
from tests.support.agent_options import AGENT_OPTIONS, SAMPLES, flags, started, value

NEEDED = ["--node=n", "--root=/tmp"]


def test_options_that_restrict_tenants_reach_agent_settings(tmp_path: Path) -> None:
    given = [*("--node", "n"), *("--root", str(tmp_path)), *("--namespace-gb", "2.5"), *("--models", "3"), *("--turn", "7")]
    given += [*("--models-per-namespace", "9"), *("--endpoint-host", "minio.example"), *("--private-host", "10.0.0.1")]
    given += ["--refused-address", "203.0.113.0/24", *flags("secret"), "--bandwidth=2", "--files=3"]
    settings, _ = started(given)
    limits, policy = settings.limits, settings.policy
    assert (limits.namespace_bytes, limits.throttle.rate, limits.files) == (2_500_000_000, 2e6, 3)
    assert (policy.models, policy.turn, policy.models_per_namespace) == (3, 7.0, 9)
    assert (settings.trust.endpoints, settings.trust.private_hosts) == ({"minio.example"}, {"10.0.0.1"})
    assert list(map(str, settings.trust.refused_addresses)) == ["203.0.113.0/24"]
    assert [(name, grant.hosts) for name, grant in settings.trust.secrets.items()] == [
        ("a", ("huggingface.co",)),
        ("b", ("example.com",)),
    ]


@pytest.mark.parametrize("key", AGENT_OPTIONS)
def test_each_agent_flag_sets_only_its_own_field(key: str) -> None:
    _, usual = started(NEEDED)
    _, chosen = started([*(flag for flag in NEEDED if not flag.startswith(f"--{key}=")), *flags(key)])
    expected, found = SAMPLES[key], value(chosen, AGENT_OPTIONS[key])
    if isinstance(expected, list):
        assert sorted(found) == sorted(expected) and type(found) is AGENT_OPTIONS[key].collection
    else:
        assert (str(found) if isinstance(found, Path) else found) == expected
    others = [declared for other, declared in AGENT_OPTIONS.items() if other != key]
    assert all(value(chosen, declared) == value(usual, declared) for declared in others)


def test_agent_options_have_their_declared_defaults() -> None:
    _, chosen = started(NEEDED)
    assert chosen == AgentOptions(node="n", roots=("/tmp",))


@pytest.mark.parametrize("missing", NEEDED)
def test_node_and_root_must_be_set(missing: str) -> None:
    done = CliRunner().invoke(agent.app, [flag for flag in NEEDED if flag != missing], env={"NODE_NAME": None})
    assert done.exit_code == 2 and f"Missing option '{missing.partition('=')[0]}'" in done.output


@pytest.mark.parametrize("key", [key for key, declared in AGENT_OPTIONS.items() if declared.option.env])
def test_agent_environment_variable_sets_its_option(key: str) -> None:
    declared = AGENT_OPTIONS[key]
    line = [flag for flag in NEEDED if not flag.startswith(f"--{key}=")]
    _, chosen = started(line, **{declared.option.env: SAMPLES[key]})
    assert str(value(chosen, declared)) == SAMPLES[key]


def test_peers_option_enables_downloads_from_peers() -> None:
    settings, _ = started([*NEEDED, *flags("peers")])
    assert settings.peers is not None and started(NEEDED)[0].peers is None


@pytest.mark.parametrize(
    "wrong, message",
    [
        ("--refused-address=203.0.113.7/24", "--refused-address 203.0.113.7/24: "),
        ("--log-format=xml", "--log-format=xml: write console or json."),
        ("--root=relative", "--root relative: write an absolute path"),
    ],
)
def test_invalid_agent_option_gives_an_error_that_names_the_flag(wrong: str, message: str) -> None:
    done: Any = CliRunner().invoke(agent.app, [*NEEDED, wrong])
    assert isinstance(done.exception, UserError) and message in str(done.exception)
