"""Small HTTP endpoints for probes and metrics. A response also proves that the event loop is not blocked."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from hmac import compare_digest

from aiohttp import web

from ome_operator.errors import OmeError
from ome_operator.machinery.connections import BoundedRunner

Answer = tuple[bool, str]
"""The answer to a probe: whether the component is healthy, and the text of the response."""
Route = Callable[[], Answer | Awaitable[Answer]]


class PortTaken(OmeError):
    """Error: another process listens on the port."""


async def serve(
    address: str, port: int, routes: Mapping[str, Route], key: str = "", guarded: Collection[str] = ()
) -> tuple[web.AppRunner, int]:
    """Serve the routes until the returned runner is cleaned up. Return the runner, and the actual port, because port 0
    selects a free port.

    If `key` is not "", requests for the `guarded` paths must send the key as a bearer token. Raises PortTaken if the address
    cannot be bound.
    """
    app = web.Application()
    for path, route in routes.items():
        app.router.add_get(path, _handler(route, key if path in guarded else ""))
    return await listen(app, address, port)


async def listen(app: web.Application, address: str, port: int) -> tuple[web.AppRunner, int]:
    """Serve an application until the returned runner is cleaned up. Return the runner, and the actual port, because port 0
    selects a free port. Raises PortTaken if the address cannot be bound.
    """
    runner = BoundedRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, address or None, port).start()
    except OSError as error:
        await runner.cleanup()
        raise PortTaken(f"cannot listen on {address or 'all addresses'}, port {port}: {error.strerror}") from error
    return runner, int(runner.addresses[0][1])


def _handler(route: Route, key: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        shown = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if key and not compare_digest(shown.encode(errors="replace"), key.encode()):
            return web.Response(text="this page requires the key of the router: Authorization: Bearer KEY", status=401)
        answer = route()
        well, text = answer if isinstance(answer, tuple) else await answer
        return web.Response(text=text, status=200 if well else 503)

    return handle
