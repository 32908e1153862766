"""An HTTP server with a bounded number of connections, for small pages on ports that untrusted clients can reach.

aiohttp limits neither the number of connections nor the time until a request is complete, so connections that never send a
request take memory until the process ends (2,000 took 22 MiB).
"""

import asyncio
import time
from typing import Any

from aiohttp import web

CONNECTIONS = 512
"""Maximum number of open connections of a server. Probes, scrapes and the operator need only a few connections. On the
port that answers requests while no engine runs, each client keeps its connection for milliseconds."""

YOUNG = 1.0
"""Seconds for which an accepted connection is treated as open before aiohttp lists it."""


class BoundedRunner(web.AppRunner):
    """Runs an application with at most `most` open connections. If a further connection is opened, the runner closes the
    oldest connection that has no request in progress, so that idle connections do not keep out a probe. If every open
    connection has a request in progress, the runner closes the new connection.
    """

    def __init__(self, app: web.Application, *, most: int = CONNECTIONS, **options: Any) -> None:
        super().__init__(app, access_log=None, handle_signals=False, **options)
        self._most = most
        self._open: dict[web.RequestHandler, float] = {}
        """Maps an open connection to the monotonic time until which the connection counts as open although aiohttp does
        not list it. The oldest connection comes first."""
        self._busy = set[web.RequestHandler]()
        """Connections whose request is being handled. A connection is not included while its response is sent."""
        app.middlewares.append(self._count)

    @property
    def server(self) -> Any:
        """The factory that a site calls for each new connection; None before `setup`."""
        return None if super().server is None else self._connection

    def _connection(self) -> asyncio.Protocol:
        made = super().server
        assert made is not None
        alive, now = set(made.connections), time.monotonic()
        self._open = {
            one: 0.0 if one in alive else until for one, until in self._open.items() if one in alive or now < until
        }
        if len(self._open) >= self._most:
            idle = next((one for one in self._open if one not in self._busy), None)
            if idle is None:
                return _Refused()
            del self._open[idle]
            transport = idle.transport
            idle.force_close()
            if transport is not None:
                transport.abort()  # closing would wait for a client that does not read its response
        connection = made()
        self._open[connection] = now + YOUNG
        return connection

    @web.middleware
    async def _count(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self._busy.add(request.protocol)
        try:
            response: web.StreamResponse = await handler(request)
        finally:
            self._busy.discard(request.protocol)
        return response


class _Refused(asyncio.Protocol):
    """The protocol of a connection that is closed as soon as it is opened."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
