"""Tests of the names that users may give for a service and a revision, and of the messages if there is nothing to do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from ome_operator import keys
from ome_operator.cli import connect
from ome_operator.cli.app import app
from ome_operator.errors import UserError
from tests.support.fake_api import FakeApi

UID = "uid-of-r1"


def service(rollout: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "r1", "namespace": "team", "uid": UID, "resourceVersion": "7", "generation": 1}
    spec = {"model": {"name": "m"}, "engine": {}, "rollout": rollout}
    return {"apiVersion": keys.API_VERSION, "kind": "InferenceService", "metadata": metadata, "spec": spec}


def revision(number: int) -> dict[str, Any]:
    labels = {keys.SERVICE: "r1", keys.REVISION: f"{number}" * 8, keys.MANAGED_BY: keys.MANAGER}
    owner = {"apiVersion": keys.API_VERSION, "kind": "InferenceService", "name": "r1", "uid": UID, "controller": True}
    metadata = {"name": f"r1-{number}", "namespace": "team", "uid": f"uid-{number}", "labels": labels}
    metadata["ownerReferences"] = [owner]
    data = {"inputs": {"n": number}}
    return {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata, "revision": number, "data": data}


def cluster(monkeypatch: pytest.MonkeyPatch, **rollout: Any) -> FakeApi:
    """Return an API server with the service team/r1 and its revisions 1 and 2."""
    answers = {"get InferenceService": service(rollout), "list_objects ControllerRevision": [revision(1), revision(2)]}
    api = FakeApi({**answers, "patch_merge": {"metadata": {}}})
    api.connection = SimpleNamespace(namespace="")  # type: ignore[assignment]

    @asynccontextmanager
    async def opened(*_: Any) -> AsyncIterator[FakeApi]:
        yield api

    monkeypatch.setattr(connect, "open_client", opened)
    return api


def ome(*words: str) -> str:
    """Return the output of a command."""
    done = CliRunner().invoke(app, list(words))
    if done.exception is not None:
        raise done.exception
    return done.stdout


@pytest.mark.parametrize("words", [("r1", "-n", "team"), ("team/r1",), ("team/r1", "-n", "team"), ("isvc/r1", "-n", "team")])
def test_undo_accepts_every_spelling_of_a_service_name(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    api = cluster(monkeypatch)
    assert ome("undo", *words, "--to", "2").startswith("team/r1 is now pinned to revision 22222222, which is rolled out")
    assert [(call.name, call.body) for call in api.calls if call.verb == "patch_merge"] == [
        ("r1", {"spec": {"rollout": {"revision": "22222222"}}, "metadata": {"resourceVersion": "7"}})
    ]


def test_undo_refuses_two_different_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster(monkeypatch)
    with pytest.raises(UserError, match="SERVICE team/r1 is in namespace team, but -n is other: leave out one of the two"):
        ome("undo", "team/r1", "-n", "other")


def test_unknown_revision_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster(monkeypatch)
    with pytest.raises(UserError, match="has no revision 7"):
        ome("undo", "team/r1", "--to", "7")


@pytest.mark.parametrize(
    ("words", "rollout", "said"),
    [
        (("undo", "--off"), {}, "team/r1 was not pinned and already follows its spec: nothing was changed.\n"),
        (("resume",), {}, "team/r1 was not paused: nothing was changed.\n"),
        (("pause",), {"paused": True}, "team/r1 was paused already: nothing was changed.\n"),
    ],
)
def test_command_without_effect_writes_nothing(
    words: tuple[str, ...], rollout: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = cluster(monkeypatch, **rollout)
    assert ome(words[0], "team/r1", *words[1:]) == said
    assert api.kinds("patch_merge") == []


@pytest.mark.parametrize(
    ("words", "rollout", "edit"),
    [
        (("undo", "--off"), {"revision": "11111111"}, {"revision": None}),
        (("resume",), {"paused": True}, {"paused": None}),
        (("pause",), {}, {"paused": True}),
    ],
)
def test_rollout_command_writes_its_edit(
    words: tuple[str, ...], rollout: dict[str, Any], edit: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    api = cluster(monkeypatch, **rollout)
    assert "was edited on the cluster" in ome(words[0], "team/r1", *words[1:])
    assert api.bodies("patch_merge") == [{"spec": {"rollout": edit}, "metadata": {"resourceVersion": "7"}}]


@pytest.mark.parametrize(("more", "components"), [({}, "engine"), ({"decoder": {}}, "engine and decoder")])
def test_restart_output_names_the_components_of_the_service(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], components: str
) -> None:
    api = cluster(monkeypatch)
    body = service({})
    api.answers["get InferenceService"] = {**body, "spec": {**body["spec"], **more}}
    assert f"team/r1 gets a new revision, which replaces the pods of its {components}; `ome history" in ome("restart", "r1")
