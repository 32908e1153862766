"""Tests of `ome move` with a fake API server: which annotations are written, and what is refused."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from ome_operator import keys
from ome_operator.cli import connect
from ome_operator.cli.app import app
from ome_operator.core.moves.causes import group_requests
from ome_operator.core.observed.move_requests import node_request
from ome_operator.errors import UserError
from ome_operator.kube.errors import Forbidden, NotFound
from ome_operator.quantity import rfc3339
from tests.support.fake_api import Call, FakeApi

Manifest = dict[str, Any]
LATER = datetime(2100, 1, 1, tzinfo=UTC)
FROZEN = {"type": "Frozen", "status": "True"}


def service(name: str, movable: bool = True, annotation: str = "", **status: Any) -> Manifest:
    """Return a service with a prefill group and two decode groups."""
    groups = [{"component": "engine", "phase": "Ready"}, *({"component": "decoder", "index": at} for at in (1, 2))]
    metadata: Manifest = {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": "1"}
    metadata["annotations"] = {keys.MOVE: annotation}
    return {"metadata": metadata, "spec": {"moves": {}} if movable else {}, "status": {"groups": groups, **status}}


def pod(name: str) -> Manifest:
    labels = {keys.SERVICE: name, keys.COMPONENT: "engine", keys.REVISION: "r1"}
    return {"metadata": {"name": f"{name}-engine-r1-0-0", "namespace": "team", "labels": labels}}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """Return a cluster with the node gpu-1. Tests add services."""
    node = {"metadata": {"name": "gpu-1", "uid": "uid-node", "resourceVersion": "1"}}
    made = FakeApi({"get Node": node, "list_objects": []})
    made.connection = SimpleNamespace(namespace="team")  # type: ignore[assignment]

    @asynccontextmanager
    async def opened(*_: Any) -> AsyncIterator[FakeApi]:
        yield made

    monkeypatch.setattr(connect, "open_client", opened)
    return made


def serve(api: FakeApi, *bodies: Manifest) -> None:
    """Add these services, each with a pod on the node."""
    known = {body["metadata"]["name"]: body for body in bodies}
    api.answers["get InferenceService"] = lambda call: known.get(call.name, NotFound("no", 404))
    api.answers["list_objects Pod"] = [pod(name) for name in known]


def ask(*words: str) -> str:
    """Return the output of the command, or the message with which it refuses."""
    found = CliRunner().invoke(app, ["move", *words])
    if isinstance(found.exception, UserError):
        return str(found.exception)
    assert found.exit_code == 0, found.exception
    return found.output


def patches(api: FakeApi) -> list[Call]:
    return [call for call in api.calls if call.verb == "patch_merge"]


@pytest.mark.parametrize("now", [False, True])
def test_move_annotates_a_node_with_the_request_time(api: FakeApi, now: bool) -> None:
    serve(api, service("a"), service("b", movable=False), service("c", conditions=[FROZEN]))
    said = ask("gpu-1", *(["--now"] if now else []))
    (patch,) = patches(api)
    assert (patch.kind, patch.name, patch.uid) == ("Node", "gpu-1", "uid-node")
    request = node_request(patch.body["metadata"]["annotations"][keys.MOVE], LATER)
    assert request is not None and request.now is now
    ends = "leaves when its requests have ended." if now else "leaves when replacements serve elsewhere."
    assert said.splitlines() == [
        f"team/a {ends}",
        "team/b stays, because it has no spec.moves: `kubectl drain` evicts its pods.",
        "team/c is frozen: it moves after `ome thaw c -n team`.",
    ]


def test_node_without_movable_groups_is_not_annotated(api: FakeApi) -> None:
    assert ask("gpu-1") == "no pod of a service runs on node gpu-1: nothing was changed."
    serve(api, service("b", movable=False))
    said = ask("gpu-1")
    assert said == "no service on node gpu-1 has spec.moves: nothing was changed. `kubectl drain gpu-1` evicts its pods."
    api.answers["get Node"] = NotFound("no", 404)
    said = ask("svc")
    assert said == "there is no node svc. `ome nodes` lists them; a group of a service is `ome move SERVICE GROUP`."
    assert patches(api) == []


@pytest.mark.parametrize(
    ("group", "entry"),
    [("prefill/0", "engine/0"), ("engine/0", "engine/0"), ("decode/2", "decoder/2"), ("decoder/01", "decoder/1")],
)
def test_group_is_named_by_its_role_and_number(api: FakeApi, group: str, entry: str) -> None:
    serve(api, service("svc"))
    assert ask("svc", group, "-n", "team") == f"team/svc: {group} leaves its nodes when a replacement serves elsewhere.\n"
    (patch,) = patches(api)
    written = patch.body["metadata"]["annotations"][keys.MOVE]
    assert re.fullmatch(rf"{entry} \S+Z", written)
    component, number = entry.split("/")
    assert group_requests(written, LATER).keys() == {(component, number)}


def test_new_request_replaces_that_of_its_group_and_keeps_others(api: FakeApi) -> None:
    """Requests for other groups are kept, even for groups of the same role. Requests for groups that no longer exist are
    removed, so the annotation has at most one entry for each group.
    """
    before = "engine/0 2026-01-01T00:00:00Z, decoder/1 2026-01-01T00:00:00Z,decoder/2 2026-01-01T00:00:00Z"
    gone = ", decoder/0 2026-01-01T00:00:00Z, engine/7 2026-01-01T00:00:00Z, x, ,engine"
    serve(api, service("svc", annotation=before + gone))
    ask("svc", "decode/2")
    entries = patches(api)[0].body["metadata"]["annotations"][keys.MOVE].split(", ")
    assert [entry.split()[0] for entry in entries] == ["engine/0", "decoder/1", "decoder/2"]
    assert entries[1] == "decoder/1 2026-01-01T00:00:00Z" != entries[2]


@pytest.mark.parametrize("phase", ["Settling", "Waiting", "Replacing", "Leaving", "Staying", "Returned"])
@pytest.mark.parametrize("moving", [{"group": 1}, {}])
def test_move_that_waits_for_another_group_says_so(api: FakeApi, phase: str, moving: dict[str, int]) -> None:
    one = {"component": "decoder", "phase": phase, **moving}
    serve(api, service("svc", moves=[one, {"component": "engine", "group": 7, "phase": "Leaving"}]))
    after = f", after decode/{moving.get('group', 0)} has left" if phase in ("Replacing", "Leaving") else ""
    assert ask("svc", "decode/2") == f"team/svc: decode/2 leaves its nodes when a replacement serves elsewhere{after}.\n"


@pytest.mark.parametrize("words", [("gpu-1",), ("gpu-1", "--now"), ("svc", "decode/1")])
@pytest.mark.parametrize("seconds", [-3600, 0, 7, 3600])
def test_request_time_comes_from_the_api_server(api: FakeApi, words: tuple[str, ...], seconds: int) -> None:
    """The clock of this machine is some seconds behind or ahead of the API server's clock, which dates pods. The request
    gets the time at which the API server stored it.
    """
    serve(api, serves := service("svc"))
    stored: list[str] = []

    def store(call: Call) -> Manifest:
        stored.append(text := call.body["metadata"]["annotations"][keys.MOVE])
        written = datetime.fromisoformat(next(word for word in text.split() if word.endswith("Z")))
        time = rfc3339(written - timedelta(seconds=seconds)) if len(stored) == 1 else "2000-01-01T00:00:00Z"
        other = {"manager": "kubelet", "time": "2000-01-01T00:00:00Z", "fieldsV1": {"f:metadata": {"f:annotations": {}}}}
        mine: Manifest = {"f:metadata": {"f:annotations": {f"f:{keys.MOVE}": {}}}}
        fields = [{"manager": "x"}, other, {"manager": "ome-cli", "time": time, "fieldsV1": mine}]
        body: Manifest = api.answers["get Node"] if call.kind == "Node" else serves
        body["metadata"]["annotations"] = {keys.MOVE: text}
        return {"metadata": {"managedFields": fields}}

    api.answers["patch_merge"] = store
    ask(*words)
    times = [datetime.fromisoformat(next(word for word in text.split() if word.endswith("Z"))) for text in stored]
    assert times == [times[0], times[0] - timedelta(seconds=seconds)][: 1 + bool(seconds)]
    assert all(text.endswith(" now") == ("--now" in words) for text in stored)


RECYCLING = {"groups": [{"component": "engine", "phase": "Recycling"}]}
MOVES = {"moves": [{"component": "engine", "group": 0, "phase": "Leaving"}]}
REFUSED = {
    "no-moves": ({"movable": False}, "the service has no spec.moves, so nothing moves: add `moves: {}` to its spec."),
    "frozen": ({"conditions": [FROZEN]}, "the service is frozen, so nothing moves: end the freeze with `ome thaw` first."),
    "recycled": (RECYCLING, "prefill/0 is being recycled and gets new pods: run the command again when the group is ready."),
    "moves-already": (MOVES, "prefill/0 moves already (Leaving)."),
    "no-groups": ({"groups": []}, "there is no group prefill/0; the numbers of its groups are: none."),
}


@pytest.mark.parametrize("name", REFUSED)
def test_immovable_group_is_refused_with_a_reason(api: FakeApi, name: str) -> None:
    fields, sentence = REFUSED[name]
    serve(api, service("svc", **fields))
    assert ask("svc", "prefill/0", "-n", "team") == f"team/svc: {sentence}"
    assert patches(api) == []


def test_nonexistent_group_error_lists_the_existing_ones(api: FakeApi) -> None:
    serve(api, service("svc"))
    assert ask("svc", "decode/7").endswith("there is no group decode/7; the numbers of its groups are: 1, 2.")
    for word in (
        "decode",
        "decode/",
        "decode/x",
        "router/0",
        "decode/-1",
        "decode/٢",
        "decode/²",
        "decode/1 ",
        "decode/1/2",
    ):
        assert ask("svc", word).startswith(f"GROUP '{word}' names no group: write prefill/0, decode/0 or engine/0")
    assert patches(api) == []


def test_overlong_group_number_is_refused(api: FakeApi) -> None:
    serve(api, service("svc"))
    said = ask("svc", "decode/" + "9" * 4400)
    assert said.startswith("GROUP 'decode/999") and "names no group: write prefill/0" in said and len(said) < 200
    assert ask("svc", "decode/" + "9" * 19).endswith("the numbers of its groups are: 1, 2.")
    assert patches(api) == []


def test_conflicting_move_options_are_refused(api: FakeApi) -> None:
    assert ask("svc", "decode/1", "--now").startswith("--now moves a node: name the NODE")
    assert ask("gpu-1", "-n", "team").startswith("-n belongs to SERVICE GROUP")
    assert api.calls == []


def test_missing_permission_to_patch_nodes_is_reported(api: FakeApi) -> None:
    serve(api, service("a"))
    api.answers["patch_merge"] = Forbidden('nodes "gpu-1" is forbidden: User "dev" cannot patch resource "nodes"')
    found = CliRunner().invoke(app, ["move", "gpu-1"])
    assert found.exit_code != 0 and 'cannot patch resource "nodes"' in f"{found.exception}{found.output}"
