"""Who may see the pages: a browser on this machine that was given the token, asked by nobody but our own pages."""

import html
import logging
import secrets
from collections.abc import Awaitable, Callable
from hmac import compare_digest
from urllib.parse import urlsplit

from aiohttp import web

logger = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
TOKEN = "token"  # noqa: S105 the name of it
"""The parameter of the address that is opened first."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_ENTER = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={path}"><title>ome</title>'
    '<link rel="icon" href="/static/icon.svg" type="image/svg+xml">'
)
"""A page that leads on. A redirect would not carry the cookie where the first address was a link of another site."""


class TokenGuard:
    """A token, and the middleware that asks for it."""

    def __init__(self, port: int) -> None:
        self.token = secrets.token_urlsafe(32)
        self._tickets = set[str]()
        self._session = secrets.token_urlsafe(32)
        # Cookies know no ports: two of these pages on a machine must not take each other's.
        self.cookie = f"ome-ui-{port}"

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """For the application: the handler's answer, or a refusal, with the headers that every answer has."""
        try:
            response = await self._answer(request, handler)
        except web.HTTPException as error:
            response = refused(error.status, error.reason)
        except Exception:  # the page of an object that nobody expected must not show a traceback, nor lack the headers
            logger.exception("%s cannot be shown", request.path)
            response = refused(500, "this page cannot be shown: the terminal of `ome ui` says why")
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method not in ("GET", "HEAD"):
            return refused(405, "this page only looks: every change is a command that you run yourself")
        if not ours(request.headers.get("Host", "")):
            return refused(403, "this page answers under 127.0.0.1, localhost and [::1] alone")
        origin = request.headers.get("Origin")
        if origin is not None and origin != f"http://{request.headers['Host']}":
            return refused(403, "another site asked for this page")
        if self._lets_in(request.query.get(TOKEN, "")):
            return self._enter(request)
        if not _same(request.cookies.get(self.cookie, ""), self._session):
            return refused(401, "open the address that `ome ui` printed: it has the token that lets you in")
        return await handler(request)

    def ticket(self) -> str:
        """A token that lets in a single time: whoever lists processes sees what a browser is started with."""
        made = secrets.token_urlsafe(32)
        self._tickets.add(made)
        return made

    def _lets_in(self, given: str) -> bool:
        if given in self._tickets:
            self._tickets.remove(given)
            return True
        return _same(given, self.token)

    def _enter(self, request: web.Request) -> web.Response:
        """Trade the token for a cookie, and take it out of the address."""
        path = request.rel_url.with_query(None).raw_path
        path = html.escape("/" + path.lstrip("/"))  # `//host` would be another site
        response = web.Response(text=_ENTER.format(path=path), content_type="text/html")
        response.set_cookie(self.cookie, self._session, httponly=True, samesite="Strict", path="/")
        return response


def ours(host: str) -> bool:
    """Whether a Host header names this machine's loopback, at any port (a tunnel has another)."""
    try:
        return urlsplit(f"//{host}").hostname in LOOPBACK and "@" not in host
    except ValueError:
        return False


def refused(status: int, why: str) -> web.Response:
    """A sentence instead of a page."""
    return web.Response(status=status, text=f"{why}\n")


def _same(given: str, wanted: str) -> bool:
    return compare_digest(given.encode(errors="replace"), wanted.encode())
