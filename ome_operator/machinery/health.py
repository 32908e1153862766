"""Small HTTP endpoints for probes and metrics. That they answer at all shows that the event loop is alive."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from hmac import compare_digest

from aiohttp import web

from ome_operator.errors import OmeError

Answer = tuple[bool, str]
"""Whether all is well, and a text."""
Route = Callable[[], Answer | Awaitable[Answer]]


class PortTaken(OmeError):
    """Another process listens there."""


async def serve(
    address: str, port: int, routes: Mapping[str, Route], key: str = "", guarded: Collection[str] = ()
) -> tuple[web.AppRunner, int]:
    """Serve until the runner is cleaned up; the port that was really taken (0 asks for a free one).

    The `guarded` paths answer only who shows the key, where there is one. Raises PortTaken where nobody can listen.
    """
    app = web.Application()
    for path, route in routes.items():
        app.router.add_get(path, _handler(route, key if path in guarded else ""))
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        await web.TCPSite(runner, address or None, port).start()
    except OSError as error:
        await runner.cleanup()
        raise PortTaken(f"cannot listen on {address or 'every address'}, port {port}: {error.strerror}") from error
    return runner, int(runner.addresses[0][1])


def _handler(route: Route, key: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        shown = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if key and not compare_digest(shown.encode(errors="replace"), key.encode()):
            return web.Response(text="this page needs the key of the router: Authorization: Bearer KEY", status=401)
        answer = route()
        well, text = answer if isinstance(answer, tuple) else await answer
        return web.Response(text=text, status=200 if well else 503)

    return handle
