"""What the sink is told when a list breaks between two pages: another begins, and may lack what the first one showed."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web

from ome_operator.watch.watcher import Watched, Watcher
from tests.support.answers import Handler, answers

THINGS = Watched("Thing", "example.org", "v1", "things", "")


class Told:
    """A sink that writes down what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def seen(self, kind: str, body: Mapping[str, Any]) -> None:
        self.said.append(f"seen {body['metadata']['name']}")

    def deleted(self, kind: str, body: Mapping[str, Any]) -> None:
        self.said.append(f"deleted {body['metadata']['name']}")

    def relisted(self, kind: str) -> None:
        self.said.append("relisted")


def page(*names: str, more: str = "") -> Handler:
    """A page of a list."""

    async def answer(_: web.Request) -> web.StreamResponse:
        items = [{"metadata": {"name": name, "uid": name, "resourceVersion": "7"}} for name in names]
        return web.json_response({"metadata": {"resourceVersion": "9", "continue": more}, "items": items})

    return answer


def refused(code: int) -> Handler:
    """The answer to a token, ours or that of a page, which holds no more."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "code": code, "message": "no more"}, status=code)

    return answer


async def cut(request: web.Request) -> web.StreamResponse:
    """The connection ends in the middle of a page."""
    response = web.StreamResponse(headers={"Content-Length": "1000", "Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(b'{"items": [')
    assert request.transport is not None
    request.transport.close()
    return response


async def told(*lists: Handler) -> list[str]:
    """What a sink is told of lists that are answered so, up to the watch that follows them."""
    left, sink = list(lists), Told()

    async def serve(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            await asyncio.Future()
        return await left.pop(0)(request)

    where = "/apis/example.org/v1/things"
    async with answers(serve, "GET", where) as connection, connection.session(limit=0, agent="") as session:
        watcher = Watcher([THINGS], sink, session=session, server=connection.server, server_timeout=60)
        watching = asyncio.create_task(watcher.run())
        complete = asyncio.create_task(watcher.complete.wait())
        try:
            done, _ = await asyncio.wait([watching, complete], timeout=10, return_when=asyncio.FIRST_COMPLETED)
            assert done == {complete}, watching
        finally:
            watching.cancel()
            complete.cancel()
    assert not left
    return sink.said


async def test_a_whole_list_of_several_pages_misses_nothing() -> None:
    """All its pages show one moment, at which its watch begins: tests/controlplane/process."""
    assert await told(page("a", more="next"), page("b")) == ["seen a", "seen b"]


@pytest.mark.parametrize("fault", [cut, refused(401), refused(410)], ids=["cut", "401", "410"])
async def test_a_first_list_that_began_again_may_have_shown_what_is_gone(fault: Handler) -> None:
    said = await told(page("a", "b", more="next"), fault, page("b", more="next"), page("c"))
    assert said == ["seen a", "seen b", "seen b", "seen c", "relisted"]
