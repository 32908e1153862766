"""What an agent knows, and when it tries again."""

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ome_operator.agent import loop, record
from ome_operator.agent.loop import Agent
from ome_operator.agent.work import AgentSettings, Work
from ome_operator.kube.client import Applied
from ome_operator.kube.errors import NotFound, Transient
from tests.support import parts, yamls


class Api:
    """An API server with one Node and its record."""

    def __init__(self) -> None:
        self.node = "n"
        """The Node's UID."""
        self.record: dict[str, Any] | None = None
        self.told = asyncio.Event()
        """Set when the record has been written."""

    async def get(self, *_: object) -> dict[str, Any]:
        return {"metadata": {"uid": self.node, "labels": {}}}

    async def apply(self, manifest: dict[str, Any], *, subresource: str) -> Applied:
        if self.record is None:
            raise NotFound("no such record", 404)
        self.record |= {subresource: manifest[subresource]}
        self.told.set()
        return Applied(self.record, ())

    async def create(self, manifest: dict[str, Any]) -> None:
        self.record = manifest

    async def list_metadata(self, _: str) -> list[dict[str, Any]]:
        return []


class Busy(Api):
    """One on which a model is made while models are listed."""

    agent: Agent

    async def list_metadata(self, _: str) -> list[dict[str, Any]]:
        self.agent.seen("ClusterBaseModel", model("new"))
        return []


class Failing(Api):
    """One that cannot list."""

    async def list_metadata(self, _: str) -> list[dict[str, Any]]:
        raise Transient("etcdserver: request timed out", 500)


def model(uid: str, **spec: Any) -> dict[str, Any]:
    """A model that no agent has anything to do for, unless its spec says so."""
    made = yamls.model()
    return {**made, "metadata": {**made["metadata"], "uid": uid}, "spec": spec or {"storage": {"storageUri": "pvc://a/b"}}}


async def test_models_are_gone_that_a_list_does_not_show_and_that_were_there_before_it() -> None:
    api = Busy()
    api.agent = agent = Agent(AgentSettings(node="n"), cast(Any, api))
    agent.seen("ClusterBaseModel", model("old"))
    agent.seen("ClusterBaseModel", model("unread", storage=3))
    agent.seen("BaseModel", model("of another kind"))
    await agent._audit.check("ClusterBaseModel")
    assert (agent._models.keys(), agent._unread.keys()) == ({"new", "of another kind"}, set())


async def test_models_that_cannot_be_listed_keep_nobody_from_telling() -> None:
    api, complete = Failing(), asyncio.Event()
    agent = Agent(AgentSettings(node="n", roots=()), cast(Any, api))
    agent.seen("ClusterBaseModel", model("m"))
    agent.relisted("ClusterBaseModel")
    complete.set()
    running = asyncio.create_task(agent.run(complete))
    try:
        await asyncio.wait_for(api.told.wait(), 10)
    finally:
        running.cancel()


def test_an_edit_of_what_failed_is_tried_at_once(tmp_path: Path) -> None:
    def model(key: str) -> record.Held:
        return parts.model(storage={"storageUri": "hf://a/b", "path": str(tmp_path), "key": key})

    work = Work(model("wrong"), AgentSettings(node="n"))
    for _ in range(7):
        work._fail("401")
    work.refresh(model("wrong"))
    assert work.due > time.monotonic()
    work.refresh(model("right"))
    assert work.due < time.monotonic()


def test_what_another_keeps_from_its_path_is_tried_when_it_goes(tmp_path: Path) -> None:
    work = Work(parts.model(storage={"storageUri": "hf://a/b", "path": str(tmp_path)}), AgentSettings(node="n"))
    work.refuse("that is another's")
    assert (work.report().state, work.report().message) == (record.FAILED, "that is another's")
    assert work.due < time.monotonic()


async def test_a_record_that_vanished_is_back_in_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    api, clock = Api(), SimpleNamespace(now=1000.0)
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: clock.now))
    agent = Agent(AgentSettings(node="n", roots=()), cast(Any, api))
    for _ in range(2):
        await agent._look()
        await agent._tell()
        assert api.record is not None and api.record["status"] == {"summary": "none"}
        api.record = None
        clock.now += 30


async def test_the_owner_of_a_new_record_is_the_node_as_it_is_now() -> None:
    """A record that belonged to the Node before would be collected with it, as the old one was."""
    api = Api()
    agent = Agent(AgentSettings(node="n", roots=()), cast(Any, api))
    await agent._look()
    api.node = "registered anew"
    await agent._tell()
    assert api.record is not None and api.record["metadata"]["ownerReferences"][0]["uid"] == "registered anew"
