"""Small HTTP endpoints for probes and metrics. That they answer at all shows that the event loop is alive."""

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

Answer = tuple[bool, str]
"""Whether all is well, and a text."""
Route = Callable[[], Answer]


class PortTaken(Exception):
    """Another process listens there."""


async def serve(address: str, port: int, routes: Mapping[str, Route]) -> tuple[web.AppRunner, int]:
    """Serve until the runner is cleaned up; the port that was really taken (0 asks for a free one).

    Raises PortTaken where nobody can listen.
    """
    app = web.Application()
    for path, route in routes.items():
        app.router.add_get(path, _handler(route))
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        await web.TCPSite(runner, address or None, port).start()
    except OSError as error:
        await runner.cleanup()
        raise PortTaken(f"cannot listen on {address or 'every address'}, port {port}: {error.strerror}") from error
    return runner, int(runner.addresses[0][1])


def _handler(route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(_: web.Request) -> web.StreamResponse:
        well, text = route()
        return web.Response(text=text, status=200 if well else 503)

    return handle
