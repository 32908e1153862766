"""An HTTP server on loopback that stands in for an API server."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import cast

import aiohttp
from aiohttp import web

from ome_operator.kube.connection import Connection

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def answers(handler: Handler, method: str = "*", path: str = "/{path:.*}") -> AsyncIterator[Connection]:
    """Run a server that answers requests with this method and path by the handler, and yield a connection to it."""
    app = web.Application()
    app.router.add_route(method, path, handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)  # a watch that a test leaves open never ends
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()

    class Here:
        server = f"http://127.0.0.1:{runner.addresses[0][1]}"

        def session(self, *, traces: Sequence[aiohttp.TraceConfig] = (), **_: object) -> aiohttp.ClientSession:
            return aiohttp.ClientSession(trace_configs=list(traces))

    try:
        yield cast(Connection, Here())
    finally:
        await runner.cleanup()
