"""Access control of the pages: only a browser on this machine that was given the token, and only requests from our own
pages.
"""

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
TOKEN = "token"  # noqa: S105 the name of the parameter, not its value
"""Query parameter that carries the token in the address that the user opens first."""
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
"""A page that forwards to `path`. A redirect would not send the SameSite cookie if another site linked to the first
address."""


class TokenGuard:
    """A random token, and the middleware that requires it. Each browser that uses the token gets a session of its own."""

    def __init__(self, port: int) -> None:
        self.token = secrets.token_urlsafe(32)
        self._tickets: dict[str, str] = {}
        """Maps a ticket to the session that it started; "" if nobody has used the ticket."""
        self._sessions = set[str]()
        # Browsers do not separate cookies by port. So the names must differ if two `ome ui` run on the same machine.
        self.cookie = f"ome-ui-{port}"

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Return the handler's response, or a refusal, with the security headers that every response has. aiohttp calls
        this.
        """
        try:
            response = await self._answer(request, handler)
        except web.HTTPException as error:
            response = error_response(error.status, error.reason)
        except Exception:  # a page of an unexpected object must show no traceback, and must have the headers
            logger.exception("%s cannot be shown", request.path)
            response = error_response(500, "this page cannot be shown: the terminal of `ome ui` shows the error")
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method not in ("GET", "HEAD"):
            return error_response(405, "this page is read-only: run the shown command yourself to change something")
        if not is_loopback_host(request.headers.get("Host", "")):
            return error_response(403, "this page is served only under 127.0.0.1, localhost and [::1]")
        origin = request.headers.get("Origin")
        if origin is not None and origin != f"http://{request.headers['Host']}":
            return error_response(403, "another web site requested this page")
        mine = request.cookies.get(self.cookie, "")
        if session := self._session(request.query.get(TOKEN, ""), mine):
            return self._enter(request, session)
        if not self.has_session(request):
            return error_response(401, "open the address that `ome ui` printed, which contains the access token")
        return await handler(request)

    def has_session(self, request: web.Request) -> bool:
        """Return whether the session of a request exists. The session may end while the request is answered."""
        return request.cookies.get(self.cookie, "") in self._sessions

    def ticket(self) -> str:
        """Return a token that is accepted once, for the file with which the browser is started."""
        made = secrets.token_urlsafe(32)
        self._tickets[made] = ""
        return made

    def _session(self, given: str, mine: str) -> str:
        """Return the session for a token, or "" if the token is not valid. `mine` is the session of the browser.

        If a ticket is used again by another browser, one of the two browsers is not the user's. The session of the ticket
        then ends, and a message on the terminal states this.
        """
        if given not in self._tickets:
            return self._new() if _same(given, self.token) else ""
        before = self._tickets[given]
        if not before:
            self._tickets[given] = self._new()
            return self._tickets[given]
        if before == mine and mine in self._sessions:
            return mine  # the user returned to the first page
        if before in self._sessions:
            self._sessions.remove(before)
            logger.warning(
                "somebody used the address of the started browser a second time, so neither browser has access any more: "
                "open the address above, and check who else uses this machine"
            )
        return ""

    def _new(self) -> str:
        made = secrets.token_urlsafe(32)
        self._sessions.add(made)
        return made

    def _enter(self, request: web.Request, session: str) -> web.Response:
        """Exchange the token for a cookie, and remove the token from the address."""
        path = request.rel_url.with_query(None).raw_path
        path = html.escape("/" + path.lstrip("/\\"))  # paths such as `//host` and `/\\host` would lead to another site
        response = web.Response(text=_ENTER.format(path=path), content_type="text/html")
        response.set_cookie(self.cookie, session, httponly=True, samesite="Strict", path="/")
        return response


def is_loopback_host(host: str) -> bool:
    """Return whether a Host header names this machine's loopback interface, with any port (an SSH tunnel has another
    port).
    """
    try:
        return urlsplit(f"//{host}").hostname in LOOPBACK and "@" not in host
    except ValueError:
        return False


def error_response(status: int, why: str) -> web.Response:
    """Return a plain-text error response with one sentence."""
    return web.Response(status=status, text=f"{why}\n")


def _same(given: str, wanted: str) -> bool:
    return compare_digest(given.encode(errors="replace"), wanted.encode())
