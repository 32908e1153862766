"""Tests of `ome wake`: which RoleScales are written, and with which numbers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ome_operator.cli import connect
from ome_operator.cli.app import app
from ome_operator.kube.errors import NotFound
from tests.support.fake_api import FakeApi


def woken(
    monkeypatch: pytest.MonkeyPatch, replicas: dict[str, int], groups: dict[str, int], missing: str = ""
) -> tuple[Result, dict[str, Any]]:
    """Run `ome wake`. Return its output, and the numbers that were written, for a service with these present and previous
    numbers of groups.
    """
    status = {"components": {role: {"replicas": count} for role, count in replicas.items()}, "zero": {"groups": groups}}
    spec = {role: {} for role in (*replicas, "router")}

    def get(call: Any) -> dict[str, Any]:
        if call.kind == "RoleScale" and call.name == missing:
            raise NotFound("no", 404)
        if call.name == "nobody":
            raise NotFound("no", 404)
        return {
            "metadata": {"name": call.name, "namespace": "team", "uid": f"uid-{call.name}", "resourceVersion": "1"},
            "spec": spec,
            "status": status,
        }

    api = FakeApi({"get": get, "list_objects": [], "patch_merge": {}})

    @asynccontextmanager
    async def opened(*_: Any) -> AsyncIterator[Any]:
        yield api

    api.connection = SimpleNamespace(namespace="team")  # type: ignore[assignment]
    monkeypatch.setattr(connect, "open_client", opened)
    result = CliRunner().invoke(app, ["wake", "nobody" if missing == "svc" else "svc", "-n", "team"])
    return result, {call.name: call.body["spec"]["replicas"] for call in api.calls if call.verb == "patch_merge"}


@pytest.mark.parametrize(
    ("replicas", "groups", "written"),
    [
        ({"engine": 0, "decoder": 0}, {"engine": 3, "decoder": 2}, {"svc-engine": 3, "svc-decoder": 2}),
        ({"engine": 0, "decoder": 0}, {}, {"svc-engine": 1, "svc-decoder": 1}),
        ({"engine": 2, "decoder": 0}, {"engine": 3, "decoder": 4}, {"svc-decoder": 4}),
        ({"engine": 0}, {"engine": 1, "decoder": 7}, {"svc-engine": 1}),
        ({"engine": 1, "decoder": 1}, {"engine": 3}, {}),
    ],
)
def test_wake_writes_the_last_number_of_each_role_at_zero(
    monkeypatch: pytest.MonkeyPatch, replicas: dict[str, int], groups: dict[str, int], written: dict[str, int]
) -> None:
    result, found = woken(monkeypatch, replicas, groups)
    assert (result.exit_code, found) == (0, written), result.output
    said = "has groups of each role already, so nothing was changed" if not written else "ome status svc -n team"
    assert said in result.output


def test_wake_of_a_role_without_role_scale_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    result, found = woken(monkeypatch, {"engine": 0}, {}, missing="svc-engine")
    assert result.exit_code != 0 and found == {}
    assert "spec.engine.minReplicas" in str(result.exception) + result.output


def test_wake_of_an_unknown_service_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    result, found = woken(monkeypatch, {"engine": 0}, {}, missing="svc")
    assert result.exit_code != 0 and found == {}
    assert "nobody" in str(result.exception) + result.output
