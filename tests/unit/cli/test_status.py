"""Tests of `ome status` except for its tree: machine-readable output, `--watch` without a terminal, and the waves of an
edit.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from ome_operator.cli import connect, status
from ome_operator.cli.app import app
from ome_operator.cli.live import shared
from ome_operator.cli.output import Format, emit
from ome_operator.core.observed.objects import Observed
from ome_operator.describe.tree import Tree, tree
from ome_operator.errors import QuestionUnanswered
from ome_operator.kube.errors import KubeError, NotFound, Transient
from tests.support.fake_api import Call, FakeApi


def seen(ready: str, message: str = "") -> Tree:
    """Return the tree of a service without slices, whose condition Ready has this status and message."""
    condition = {"type": "Ready", "status": ready, "reason": "Serving", "message": message}
    body = {"metadata": {"name": "svc", "namespace": "team"}, "status": {"conditions": [condition], "url": "http://svc"}}
    return tree(body, Observed())


def test_json_fields_have_kubernetes_names(capsys: pytest.CaptureFixture[str]) -> None:
    emit(Format.JSON, [seen("True")])
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["name"], one["ready"], one["slices"]) == ("svc", True, [])
    assert not [name for name in one if "_" in name]


def test_watch_prints_a_service_again_only_after_a_change(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`ome status --watch` prints the service again only when it has changed. If the API server does not respond, a warning
    is printed, and the last view stays.
    """
    monkeypatch.setattr(status, "INTERVAL", 0)
    views: Iterator[Tree | KubeError] = iter(
        [seen("False", "one"), seen("False", "one"), Transient("no answer"), seen("False", "two"), seen("True")]
    )

    async def look() -> list[Tree]:
        found = next(views, None)
        if found is None:
            raise asyncio.CancelledError  # Ctrl+C
        if isinstance(found, KubeError):
            raise found
        return [found]

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(status._watch(look, None, False))
    said = capsys.readouterr()
    assert [line.split(": ")[-1] for line in said.out.splitlines() if "Serving" in line] == ["one", "two"]
    assert said.out.count("✓ svc") == 1
    assert said.err == "the API server does not respond: no answer\n"


ROLLOUT = {
    "generation": 3, "state": "Rolling", "wave": 2, "waves": 4, "size": 2, "services": 9, "done": 1, "rolling": 1,
    "waiting": 7, "failed": 0,
}  # fmt: skip


@pytest.fixture
def runtimes(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """Return a cluster with a ClusterServingRuntime rt, and a ServingRuntime own in the namespace team."""

    def get(call: Call) -> Any:
        where = {"rt": "ClusterServingRuntime", "own": "ServingRuntime"}.get(call.name)
        if where != call.kind:
            return NotFound(f"{call.kind} {call.name} not found")
        metadata = {"name": call.name, "generation": 3}
        state = {"state": "Complete"} if call.name == "own" else {}
        return {"kind": call.kind, "metadata": metadata, "status": {"rollout": ROLLOUT | state}}

    api = FakeApi({"get": get})
    api.connection = SimpleNamespace(namespace="team")  # type: ignore[assignment]

    @asynccontextmanager
    async def opened(*_: Any) -> AsyncIterator[FakeApi]:
        yield api

    monkeypatch.setattr(connect, "open_client", opened)
    return api


def test_waves_of_a_runtime_are_shown(runtimes: FakeApi) -> None:
    found = CliRunner().invoke(app, ["status", "runtime", "rt"])
    assert found.exit_code == 1 and "ClusterServingRuntime rt: wave 2 of 4" in found.output
    assert [call.kind for call in runtimes.calls] == ["ServingRuntime", "ClusterServingRuntime"], "the namespaced one first"
    found = CliRunner().invoke(app, ["status", "runtime", "own", "-o", "json"])
    assert found.exit_code == 0 and json.loads(found.output)["state"] == "Complete"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("runtime", "none"), "there is no runtime none"),
        (("isvc", "rt"), "ome status SERVICE"),
        (("runtime", "rt", "-A"), "without -A"),
    ],
)
def test_status_of_an_unknown_or_unsupported_object_is_refused(runtimes: FakeApi, words: tuple[str, ...], said: str) -> None:
    found = CliRunner().invoke(app, ["status", *words])
    assert isinstance(found.exception, QuestionUnanswered) and said in str(found.exception)


def test_every_keyword_for_a_shared_object_has_its_kinds() -> None:
    assert tuple(shared.KINDS) == status.SHARED
