"""Tests of `ome nodes` with a fake API server."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from typer.testing import CliRunner

from ome_operator.cli import connect
from ome_operator.cli.app import app
from ome_operator.errors import QuestionUnanswered
from ome_operator.kube.errors import Forbidden, NotFound
from tests.support import console
from tests.support.fake_api import FakeApi


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, api: FakeApi) -> dict[str, Any]:
    """Return the objects of a cluster by kind. By default, the cluster has two nodes with 8 GPUs each."""
    answers: dict[str, Any] = {"Node": [console.node("a"), console.node("b")]}
    api.answers["list_objects"] = lambda call: answers.get(call.kind, [])

    @asynccontextmanager
    async def opened(*_: Any) -> AsyncIterator[FakeApi]:
        yield api

    monkeypatch.setattr(connect, "open_client", opened)
    return answers


def test_nodes_shows_all_or_the_named_nodes(cluster: dict[str, Any]) -> None:
    found = CliRunner().invoke(app, ["nodes"])
    assert found.exit_code == 0 and "16 GPUs on 2 nodes" in found.output
    found = CliRunner().invoke(app, ["nodes", "b", "-o", "json"])
    document = json.loads(found.output)
    assert [each["name"] for each in document["nodes"]] == ["b"] and document["totals"]["free"] == 8


def test_nodes_reports_an_unknown_node(cluster: dict[str, Any]) -> None:
    found = CliRunner().invoke(app, ["nodes", "a", "c"])
    assert isinstance(found.exception, QuestionUnanswered) and str(found.exception).startswith("c: no such node")


def test_moves_are_shown_in_table_and_json(cluster: dict[str, Any]) -> None:
    found = console.fleet(kimi=False, hostile=False).objects
    body = next(each for each in found["InferenceService"] if each["metadata"]["name"] == "llama-scout")
    revision = body["status"]["revision"].rpartition("→")[2]
    move = {"component": "engine", "revision": revision, "group": 0, "phase": "Replacing", "since": "2026-01-01T09:00:00Z"}
    body["status"]["moves"] = [{**move, "node": "h200-18", "cause": "cordoned", "replacement": "1"}]
    cluster |= found
    text = CliRunner().invoke(app, ["nodes"]).output
    assert "(leaves)" in text and "(replaces engine 0)" in text and "chat/llama-scout engine 0 leaves h200-" in text
    rows = json.loads(CliRunner().invoke(app, ["nodes", "-o", "json"]).output)["nodes"]
    (leaving,) = [row["leaving"][0] for row in rows if row["leaving"]]
    (coming,) = [row["coming"][0] for row in rows if row["coming"]]
    assert leaving == coming and (leaving["phase"], leaving["replacement"]) == ("Replacing", "engine 1")
    assert leaving["replacementNodes"] and leaving["until"] == "" and leaving["cause"] == "cordoned"


def faults(name: str, avoided: str = "by services of team: engine of team/svc failed there 3 times") -> dict[str, Any]:
    """Return the NodeFaults of a node."""
    return {"metadata": {"name": name, "uid": f"of-{name}"}, "status": {"avoided": avoided} if avoided else {}}


def test_avoided_nodes_are_shown_with_the_reason(cluster: dict[str, Any]) -> None:
    cluster["NodeFaults"] = [faults("b"), faults("a", "")]
    found = CliRunner().invoke(app, ["nodes"])
    assert "ready, avoided" in found.output
    assert "b is avoided by services of team: engine of team/svc failed there 3 times" in found.output
    assert "a is avoided" not in found.output
    document = json.loads(CliRunner().invoke(app, ["nodes", "show", "-o", "json"]).output)
    assert [bool(each["avoided"]) for each in document["nodes"]] == [False, True]


def test_unreadable_node_faults_are_omitted(cluster: dict[str, Any]) -> None:
    cluster["NodeFaults"] = Forbidden("nodefaults is forbidden")
    found = CliRunner().invoke(app, ["nodes"])
    assert found.exit_code == 0 and "forbidden" not in found.output and "16 GPUs" in found.output


def test_nodes_forgive_annotates_node_faults(cluster: dict[str, Any], api: FakeApi) -> None:
    api.answers["get NodeFaults"] = lambda call: faults(call.name)
    found = CliRunner().invoke(app, ["nodes", "forgive", "a", "b"])
    assert found.exit_code == 0 and found.output.count("is forgiven") == 2
    assert "It was avoided by services of team" in found.output
    patches = [call for call in api.calls if call.verb == "patch_merge"]
    assert [(call.kind, call.name, call.uid) for call in patches] == [("NodeFaults", name, f"of-{name}") for name in "ab"]
    assert all(call.body["metadata"]["annotations"].keys() == {"ome.io/forgiven"} for call in patches)


def test_forgive_reports_a_node_without_recorded_faults(cluster: dict[str, Any], api: FakeApi) -> None:
    api.answers["get NodeFaults"] = NotFound("no")
    found = CliRunner().invoke(app, ["nodes", "forgive", "a"])
    assert isinstance(found.exception, QuestionUnanswered)
    assert str(found.exception) == "nothing is remembered about node a: `ome nodes` lists the avoided nodes."
    assert not [call for call in api.calls if call.verb == "patch_merge"]


def test_unreadable_nodes_exit_with_an_error(cluster: dict[str, Any]) -> None:
    cluster["Node"] = Forbidden("nodes is forbidden")
    found = CliRunner().invoke(app, ["nodes"])
    assert found.exit_code == 2 and "nodes are not shown: nodes is forbidden" in found.output
