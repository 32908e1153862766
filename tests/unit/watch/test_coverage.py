"""Tests of namespaces that are absent, appear and disappear: they are reported and delay nothing else, and kopf's requests
about them wait.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from ome_operator.kube.errors import Transient
from ome_operator.watch import coverage, handlers
from ome_operator.watch.coverage import Coverage, WatchSettings
from ome_operator.watch.sink import WatchedKind
from tests.support.answers import answers
from tests.support.sinks import Sink

WIDE = WatchedKind("Node", "", "v1", "nodes")
IN_ONE = WatchedKind("Pod", "", "v1", "pods", "ours=yes")


def kinds(namespace: str) -> list[WatchedKind]:
    return [IN_ONE._replace(namespace=namespace)] if namespace else [WIDE]


class Manager(Sink):
    """The sink of all namespaces. It records which of them are completely listed."""

    def handle_relist(self, kind: str, namespace: str = "") -> None:
        self.said.append(f"relisted {kind} in {namespace}")

    async def listed(self, kind: str, namespace: str = "") -> set[str]:
        return set()

    def namespace_listed(self, namespace: str) -> None:
        self.said.append(f"whole {namespace}".strip())

    def namespace_unwatched(self, namespace: str) -> None:
        self.said.append(f"away {namespace}")


class Cluster:
    """The existing namespaces, and lists with one object each."""

    def __init__(self, *there: str) -> None:
        self.there, self.down = set(there), False
        self.asked: list[str] = []

    async def look(self, namespace: str) -> str:
        if self.down:
            raise Transient("no API server")
        return "" if namespace in self.there else "it does not exist"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        if "watch" in request.query:
            response = web.StreamResponse()
            await response.prepare(request)
            await asyncio.Future()
        name = request.path.strip("/").replace("/", ".").removeprefix("api.v1.")
        item = {"metadata": {"name": name, "uid": name, "resourceVersion": "1"}}
        return web.json_response({"metadata": {"resourceVersion": "9"}, "items": [item]})


@asynccontextmanager
async def covered(cluster: Cluster, *names: str) -> AsyncIterator[tuple[Coverage, Manager]]:
    manager = Manager()
    async with answers(cluster.answer) as connection, connection.session(limit=0, agent="") as session:
        made = Coverage(names, kinds, (), manager, cluster.look, WatchSettings(session, connection.server, 60, 60.0))
        watching = asyncio.create_task(made.run())
        try:
            yield made, manager
            assert not watching.done(), watching
        finally:
            watching.cancel()
            await asyncio.wait([watching])


async def until(what: Any) -> None:
    async with asyncio.timeout(60):
        while not what():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "CHECK_ABSENT_EVERY", 0.05)
    monkeypatch.setattr(coverage, "CHECK_WATCHED_EVERY", 0.05)


async def test_absent_namespace_delays_nothing(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster("a")
    async with covered(cluster, "a", "b") as (made, manager):
        await made.complete.wait()
        assert set(manager.said) == {"seen nodes", "whole", "seen namespaces.a.pods", "whole a"}
        assert made.watched_namespaces == {"a": 1.0, "b": 0.0}
        await asyncio.sleep(0.2)
    assert not [path for path in cluster.asked if "/b/" in path], "no request is sent for it"
    assert [said.message for said in caplog.records if said.levelname == "WARNING"] == [
        "namespace b is not watched: it does not exist"
    ], "it is reported once"


async def test_namespaced_operator_is_complete_when_its_namespaces_are_listed() -> None:
    cluster, manager = Cluster("a"), Manager()
    async with answers(cluster.answer) as connection, connection.session(limit=0, agent="") as session:
        how = WatchSettings(session, connection.server, 60, 60.0)
        made = Coverage(("a",), lambda name: kinds(name) if name else [], (), manager, cluster.look, how)
        watching = asyncio.create_task(made.run())
        async with asyncio.timeout(60):
            await made.complete.wait()
        assert not watching.done()
        watching.cancel()
    assert manager.said == ["whole", "seen namespaces.a.pods", "whole a"]


async def test_namespace_is_watched_when_created_and_again_when_recreated() -> None:
    cluster = Cluster("a")
    async with covered(cluster, "a", "b") as (made, manager):
        await made.complete.wait()
        cluster.there.add("b")
        await until(lambda: made.watched_namespaces["b"])
        assert manager.said[-2:] == ["seen namespaces.b.pods", "whole b"]
        cluster.there.remove("b")
        await until(lambda: manager.said[-1] == "away b")
        assert made.watched_namespaces == {"a": 1.0, "b": 0.0}
        cluster.there.add("b")
        await until(lambda: manager.said[-1] == "whole b")
        # Deletions in the meantime were not reported: an audit finds them.
        assert manager.said[-3:] == ["seen namespaces.b.pods", "relisted Pod in b", "whole b"]
        assert "away a" not in manager.said


async def test_namespace_is_kept_while_the_api_server_is_unavailable() -> None:
    cluster = Cluster("a")
    async with covered(cluster, "a") as (made, manager):
        await made.complete.wait()
        cluster.there, cluster.down = set(), True
        await asyncio.sleep(0.2)
        assert made.watched_namespaces == {"a": 1.0}
        cluster.there, cluster.down = {"a"}, False
        await asyncio.sleep(0.2)
        assert "away a" not in manager.said


async def test_kopf_request_about_an_absent_namespace_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of kopf about a namespace that does not exist waits. After the waiting time, it fails in a way after which
    kopf tries again without a log message.
    """
    monkeypatch.setattr(coverage, "HOLD_KOPF_REQUEST", 0.3)
    cluster, path = Cluster("a"), "/api/v1/namespaces/b/pods"
    async with covered(cluster, "a", "b") as (made, _), answers(cluster.answer) as here:
        await made.complete.wait()
        async with aiohttp.ClientSession(middlewares=[handlers.shield(made)]) as session:
            for free in ("/api/v1/nodes", "/apis", "/api/v1/namespaces/a/pods", "/api/v1/namespaces/other/pods"):
                assert (await session.get(here.server + free)).status == 200
            with pytest.raises(aiohttp.ClientPayloadError):
                await session.get(here.server + path)
            assert path not in cluster.asked
            monkeypatch.setattr(coverage, "HOLD_KOPF_REQUEST", 10.0)
            waiting = asyncio.create_task(session.get(here.server + path))
            await asyncio.sleep(0.1)
            cluster.there.add("b")
            assert (await waiting).status == 200


async def test_refusal_is_passed_to_kopf_only_if_the_namespace_exists() -> None:
    """If the API server refuses a request of kopf with 403, kopf receives this response only if the namespace of the
    request exists. If the namespace has vanished, the response would end kopf two minutes later.
    """
    cluster = Cluster("a")

    async def refuse(_: web.Request) -> web.StreamResponse:
        return web.json_response({}, status=403)

    async with covered(cluster, "a") as (made, manager), answers(refuse) as here:
        await made.complete.wait()
        async with aiohttp.ClientSession(middlewares=[handlers.shield(made)]) as session:
            assert (await session.get(f"{here.server}/api/v1/namespaces/a/pods")).status == 403
            cluster.there.clear()
            with pytest.raises(aiohttp.ClientPayloadError):
                await session.get(f"{here.server}/api/v1/namespaces/a/pods")
        assert manager.said[-1] == "away a"
