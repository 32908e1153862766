"""Tests of servers with a limited number of connections."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

import ome_operator
from ome_operator.machinery import connections, health
from ome_operator.machinery.connections import CONNECTIONS, BoundedRunner

pytestmark = pytest.mark.looptime
ADDRESS = "127.0.0.1"
FEW = 4
LARGE = 2**24
ELSEWHERE = {Path("cli/ui/server.py"), Path("agent/peers.py")}
"""Modules whose servers may run without `BoundedRunner`: `ome ui` serves a single user on loopback; an agent sends files
after its handlers have returned, and limits the number of transfers itself.
"""


@asynccontextmanager
async def served(app: web.Application, most: int) -> AsyncIterator[int]:
    """Serve an application with at most `most` connections inside the `with` block, and yield the port of the server."""
    runner = BoundedRunner(app, most=most, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, ADDRESS, 0).start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def ok(_: web.Request) -> web.Response:
    return web.Response()


async def status(port: int) -> int:
    async with aiohttp.ClientSession() as session, session.get(f"http://{ADDRESS}:{port}/") as answer:
        return answer.status


@asynccontextmanager
async def flooded(port: int, count: int, sent: bytes = b"") -> AsyncIterator[list[asyncio.StreamReader]]:
    """Open `count` connections, write `sent` on each, and yield their readers. They are closed after the `with` block."""
    flood = [await asyncio.open_connection(ADDRESS, port) for _ in range(count)]
    try:
        for _, writer in flood:
            writer.write(sent)
        yield [reader for reader, _ in flood]
    finally:
        for _, writer in flood:
            writer.close()


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Return whether the server has closed a connection on which nothing was sent."""
    try:
        return await asyncio.wait_for(reader.read(1), 0.1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


async def test_probe_is_accepted_despite_many_idle_connections() -> None:
    runner, port = await health.serve(ADDRESS, 0, {"/": lambda: (True, "ok")})
    try:
        async with flooded(port, CONNECTIONS + 100) as readers:
            assert await status(port) == 200
            closed = [await is_closed(reader) for reader in readers[:110]]
            assert closed == [True] * 101 + [False] * 9  # the oldest, one of them for the probe
    finally:
        await runner.cleanup()


async def test_incomplete_request_does_not_count_as_in_progress() -> None:
    app = web.Application()
    app.router.add_get("/", ok)
    async with served(app, FEW) as port, flooded(port, FEW, b"GET / HTTP/1.1\r\nHost: x\r\n"):
        await asyncio.sleep(0.1)
        assert await status(port) == 200


async def test_connections_with_requests_in_progress_are_not_closed() -> None:
    """If requests are in progress on as many connections as are permitted, the server closes a further connection, and none
    of the others.
    """
    began, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        began.release()
        await go_on.wait()
        return web.Response()

    app = web.Application()
    app.router.add_get("/", slow)
    async with served(app, FEW) as port:
        running = [asyncio.create_task(status(port)) for _ in range(FEW)]
        for _ in range(FEW):
            await began.acquire()
        reader, writer = await asyncio.open_connection(ADDRESS, port)
        assert await is_closed(reader)
        writer.close()
        go_on.set()
        assert await asyncio.gather(*running) == [200] * FEW
        assert began.locked(), "no client had to send its request again"
        assert await status(port) == 200


async def test_closed_connections_do_not_count_toward_limit() -> None:
    """Connections that their clients have closed do not count towards the limit any more."""
    app = web.Application()
    app.router.add_get("/", ok)
    async with served(app, FEW) as port:
        for _ in range(3 * FEW):
            assert await status(port) == 200


async def test_client_that_does_not_read_its_response_is_disconnected() -> None:
    async def large(_: web.Request) -> web.Response:
        return web.Response(body=bytes(LARGE))

    app = web.Application()
    app.router.add_get("/", ok)
    app.router.add_get("/large", large)
    async with served(app, FEW) as port, flooded(port, FEW, b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n") as readers:
        await asyncio.sleep(0.3)
        assert await status(port) == 200
        received = 0
        with suppress(ConnectionResetError):
            while part := await readers[0].read(2**16):
                received += len(part)
        assert 0 < received < LARGE


def test_every_server_limits_its_connections() -> None:
    root = Path(ome_operator.__file__).parent
    unbounded = {
        path.relative_to(root)
        for path in root.rglob("*.py")
        if re.search(r"\bAppRunner\(|\bServerRunner\(|run_app\(|start_server\(", path.read_text(encoding="utf-8"))
    }
    assert unbounded - ELSEWHERE <= {Path(connections.__file__).relative_to(root)}
