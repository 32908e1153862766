"""A server that is both an engine and a router, and a reader of its telemetry."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ome_operator.registry import telemetry_reader
from ome_operator.registry.records import LeaderState, Worker
from ome_operator.registry.telemetry import Foreign
from ome_operator.registry.telemetry_reader import TelemetryReader
from ome_operator.registry.unserved import UnservedRequests


class Engine:
    """An engine and a router at one address, and the clock of the registry."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[int, Any]] = {}
        self.asked: list[tuple[str, str]] = []
        self.now, self.hangs = 1000.0, False
        self.changes = 0
        """Number of times that the reader reported a change of the silent leaders."""
        self.leaders: list[LeaderState] = []
        self.reader: TelemetryReader
        self.unserved: UnservedRequests
        self.has_engines: bool | None = True

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request for any path."""
        self.asked.append((request.path, request.headers.get("Authorization", "")))
        status, body = self.pages.get(request.path, (404, "no"))
        body = body() if callable(body) else body
        if self.hangs or status == 0:
            await asyncio.sleep(60)
        if status == 302:
            return web.Response(status=302, headers={"Location": str(body)})
        return web.Response(text=body, status=status) if isinstance(body, str) else web.json_response(body, status=status)

    async def read(self, after: float = 0.0) -> dict[str, Any]:
        """Read everything that is due from engine and router, and return the summary."""
        self.now += after
        await self.reader.read_due()
        return self.reader.summary("s", Foreign(0, None))

    def changed(self) -> None:
        """Count a change of the set of leaders that do not answer."""
        self.changes += 1

    def times(self, path: str) -> int:
        """Return how often a path was requested."""
        return sum(each == path for each, _ in self.asked)


@pytest.fixture
async def engine(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engine]:
    """Yield a server on loopback, which is the only leader that the router lists."""
    monkeypatch.setattr(telemetry_reader, "PROBE", 0.1)
    one = Engine()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", one.handle)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        url = str(server.make_url("/")).rstrip("/")
        one.leaders = [LeaderState("p", "u", url, "regular", "serving", "", True, 1)]
        one.unserved = UnservedRequests(lambda: one.now)
        reader = TelemetryReader(
            session,
            f"{url}/router",
            lambda: one.leaders,
            "key",
            lambda: one.now,
            one.changed,
            one.unserved,
            lambda: one.has_engines,
        )
        one.reader = reader
        one.reader.update_leaders(one.leaders, [Worker("1", url, "prefill", 1, 3), Worker("2", url, "decode", None, 4)])
        yield one
