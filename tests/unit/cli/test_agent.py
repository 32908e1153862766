"""Tests that the command line of the agent becomes its settings."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ome_operator.agent.work import AgentSettings
from ome_operator.cli import agent
from ome_operator.errors import UserError


def test_what_bounds_tenants_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[AgentSettings] = []

    async def run(settings: AgentSettings, *_: Any) -> int:
        told.append(settings)
        return 0

    monkeypatch.setattr(agent, "_run", run)
    given = [*("--node", "n"), *("--root", str(tmp_path)), *("--namespace-gb", "2.5"), *("--models", "3"), *("--turn", "7")]
    given += [*("--models-per-namespace", "9"), *("--endpoint-host", "minio.example"), *("--private-host", "10.0.0.1")]
    given += ["--refused-address", "203.0.113.0/24"]
    done = CliRunner().invoke(agent.app, given)
    assert done.exit_code == 0, done.output
    (settings,) = told
    assert settings.limits.namespace_bytes == 2_500_000_000
    assert (settings.models, settings.turn, settings.models_per_namespace) == (3, 7.0, 9)
    assert (settings.trust.endpoints, settings.trust.private_hosts) == ({"minio.example"}, {"10.0.0.1"})
    assert list(map(str, settings.trust.refused_addresses)) == ["203.0.113.0/24"]


def test_a_network_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    given = ["--node", "n", "--root", str(tmp_path), "--refused-address", "203.0.113.7/24"]
    done = CliRunner().invoke(agent.app, given)
    assert isinstance(done.exception, UserError) and "--refused-address 203.0.113.7/24: " in str(done.exception)
