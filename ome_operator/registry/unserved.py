"""Answer requests while no engine runs, and count these requests (docs/scaling.md, "Zero and back").

The InferenceService's Service sends requests to this server only while no engine runs. The response is 503 with
`Retry-After` and a JSON body in the form of OpenAI's errors. The connection is closed, so that the client's next connection
leads to the router as soon as the Service does. No request is queued, and no byte of a request's body is kept.
"""

import time
from collections.abc import Callable
from hmac import compare_digest

from aiohttp import web

RETRY_AFTER = 30
"""Seconds after which a client is asked to try again."""
PROBES = frozenset(
    {"/health", "/health_generate", "/healthz", "/livez", "/readyz", "/liveness", "/readiness", "/ping", "/ready"}
)
"""Paths of health checks, which are not treated as requests to the model, whatever their method is."""


class UnservedRequests:
    """The requests that arrived while the router had no engine to send them to."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._last_at = clock, 0.0
        self.total = 0

    def count(self, requests: int = 1) -> None:
        """Count `requests` requests that have just arrived."""
        if requests > 0:
            self.total, self._last_at = self.total + requests, self._clock()

    @property
    def age(self) -> float | None:
        """Seconds since the last request; None if there was none."""
        return self._clock() - self._last_at if self.total else None


def is_request(method: str, path: str) -> bool:
    """Return whether a request is addressed to the model: a POST request whose path is not that of a health check. Lists of
    models are requested with GET.
    """
    return method == "POST" and path.rstrip("/") not in PROBES


def app(requests: UnservedRequests, key: str, is_starting: Callable[[], bool]) -> web.Application:
    """Return the HTTP application of the server. `key` is the key that a request must contain; "" if none is required.
    `is_starting` returns whether the slice has a leader that is not being drained.
    """

    async def handle(request: web.Request) -> web.Response:
        shown = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if key and not compare_digest(shown.encode(errors="replace"), key.encode()):
            return _error(401, "the API key is missing or wrong: send Authorization: Bearer KEY", "invalid_api_key")
        if is_request(request.method, request.path):
            requests.count()
        why = "its engines are starting" if is_starting() else "it is scaled to zero"
        return _error(503, f"no engine of this service can answer, because {why}: try again later", "no_engine")

    made = web.Application()
    made.router.add_route("*", "/{path:.*}", handle)
    return made


def _error(status: int, message: str, code: str) -> web.Response:
    kind = "server_error" if status == 503 else "invalid_request_error"
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    response = web.json_response(body, status=status, headers={"Retry-After": str(RETRY_AFTER)} if status == 503 else {})
    response.force_close()
    return response
