"""`ome nodes` on a fake API server."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from typer.testing import CliRunner

from ome_operator.cli import connect
from ome_operator.cli.app import app
from ome_operator.errors import Unanswered
from ome_operator.kube.errors import Forbidden
from tests.support import console
from tests.support.fake_api import FakeApi


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Kind -> the answer to a list of it; a cluster of two nodes with 8 GPUs each by default."""
    answers: dict[str, Any] = {"Node": [console.node("a"), console.node("b")]}
    api = FakeApi({"list_objects": lambda call: answers.get(call.kind, [])})

    @asynccontextmanager
    async def opened(*_: Any) -> AsyncIterator[FakeApi]:
        yield api

    monkeypatch.setattr(connect, "open_client", opened)
    return answers


def test_all_nodes_or_those_that_are_named(cluster: dict[str, Any]) -> None:
    found = CliRunner().invoke(app, ["nodes"])
    assert found.exit_code == 0 and "16 GPUs on 2 nodes" in found.output
    found = CliRunner().invoke(app, ["nodes", "b", "-o", "json"])
    document = json.loads(found.output)
    assert [each["name"] for each in document["nodes"]] == ["b"] and document["totals"]["free"] == 8


def test_a_node_that_does_not_exist(cluster: dict[str, Any]) -> None:
    found = CliRunner().invoke(app, ["nodes", "a", "c"])
    assert isinstance(found.exception, Unanswered) and str(found.exception).startswith("c: no such node")


def test_nodes_that_may_not_be_read_are_no_answer(cluster: dict[str, Any]) -> None:
    cluster["Node"] = Forbidden("nodes is forbidden")
    found = CliRunner().invoke(app, ["nodes"])
    assert found.exit_code == 2 and "nodes are not shown: nodes is forbidden" in found.output
