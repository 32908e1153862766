"""A proxy between an operator and the real API server, for tests that inject faults between them.

It accepts plain HTTP on loopback, connects to the API server with TLS, and passes the operator's token through. A *judge* of
the test decides about every request: whether it fails, is lost, or is delayed. Watches can be cut, held back, or answered
that their version is too old.
"""

import asyncio
import base64
import json
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
from aiohttp import web
from yarl import URL

from ome_local import kubeconfig
from ome_local.kubeapi import load

WRITES = ("POST", "PUT", "PATCH", "DELETE")
HOP = ("Host", "Content-Length", "Transfer-Encoding", "Connection")
"""Headers that belong to a single connection."""


class Sent(NamedTuple):
    """A request of the operator."""

    method: str
    path: str
    watch: bool

    @property
    def is_write(self) -> bool:
        """Whether the request is a write. Requests for the Lease do not count as writes. The POST with which the operator
        asks for its own user name does not count, either.
        """
        return self.method in WRITES and not self.lease and "/selfsubjectreviews" not in self.path

    @property
    def lease(self) -> bool:
        """Whether the request is about leader election."""
        return "/leases" in self.path


class Answer(NamedTuple):
    """The decision that the proxy answers the request itself, so that the API server never receives it."""

    code: int
    reason: str
    retry_after: int = 0


class Cut(NamedTuple):
    """The decision that the proxy closes the connection without an answer, and the API server never receives the request."""


class Unheard(NamedTuple):
    """The decision that the API server carries out the request, and the proxy closes the connection without passing on
    the answer.
    """

    then: Callable[[], None] = lambda: None
    """Called after the request was carried out."""


class Late(NamedTuple):
    """The decision that the request is forwarded after a delay in seconds."""

    seconds: float


Verdict = Answer | Cut | Unheard | Late | None
Judge = Callable[[Sent], Verdict]


class Proxy:
    """The proxy. It runs in its own thread, in which judges are called too."""

    def __init__(self, upstream: Path) -> None:
        config = load(upstream)
        self._cluster, self._user = config["clusters"][0]["cluster"], config["users"][0]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._watches: dict[asyncio.Task[None], web.Request] = {}
        self._judges: list[Judge] = []
        self.requests = 0
        """Number of received requests, without those for the Lease."""
        self.writes = 0
        self.port = 0

    # --- its life ---------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start the proxy, and return when it listens."""
        self._thread.start()
        self._call(self._start())

    def stop(self) -> None:
        """Stop the proxy and all connections through it."""
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig with the proxy's address and the token file of the original one."""
        kubeconfig.with_token_file(
            path,
            name="proxied",
            server=f"http://127.0.0.1:{self.port}",
            authority=self._cluster["certificate-authority-data"],
            user=self._user["name"],
            token=Path(self._user["user"]["tokenFile"]),
        )
        return path

    @contextmanager
    def judging(self, judge: Judge) -> Iterator[None]:
        """Let a judge decide about requests inside the `with` block. If there are several judges, the first judge that
        returns a decision counts.
        """
        self._judges.append(judge)
        try:
            yield
        finally:
            self._judges.remove(judge)

    async def _start(self) -> None:
        self._flowing = asyncio.Event()
        self._flowing.set()
        authority = base64.b64decode(self._cluster["certificate-authority-data"]).decode()
        connector = aiohttp.TCPConnector(limit=0, ssl=ssl.create_default_context(cadata=authority))
        endless = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False, timeout=endless)
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]

    async def _stop(self) -> None:
        self._cut()
        await self._runner.cleanup()
        await self._session.close()

    def _call(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(10)

    # --- watches ----------------------------------------------------------------------------------------------------
    def cut(self) -> None:
        """Close every watch immediately, without an end of the response."""
        self._loop.call_soon_threadsafe(self._cut)

    def expire(self) -> None:
        """Answer every watch that its resourceVersion is too old, so that it has to list again."""
        for pump in list(self._watches):
            self._loop.call_soon_threadsafe(pump.cancel)

    def hold_events(self, seconds: float, lose: bool = False) -> None:
        """Hold back the events of all watches for this number of seconds, and deliver them at once afterwards. With `lose`,
        drop them instead, and answer that the watches' resourceVersions are too old.
        """
        self._loop.call_soon_threadsafe(self._hold, seconds, lose)

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Hold back all events of watches inside the `with` block, including watches that are opened inside the block. The
        events arrive at the end of the block.
        """
        self._loop.call_soon_threadsafe(self._flowing.clear)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._flowing.set)

    def _hold(self, seconds: float, lose: bool) -> None:
        self._flowing.clear()
        if lose:
            self._loop.call_later(seconds, self.expire)
        self._loop.call_later(seconds, self._loop.call_soon, self._flowing.set)

    def _cut(self) -> None:
        for request in self._watches.values():
            _abort(request)

    # --- requests ---------------------------------------------------------------------------------------------------
    async def _handle(self, request: web.Request) -> web.StreamResponse:
        sent = Sent(request.method, request.raw_path, "watch=true" in request.query_string)
        self.requests += not sent.lease
        self.writes += sent.is_write
        verdict = next((one for judge in self._judges if (one := judge(sent)) is not None), None)
        if isinstance(verdict, Answer):
            return _refused(verdict)
        if isinstance(verdict, Cut):
            return _abort(request)
        if isinstance(verdict, Late):
            await asyncio.sleep(verdict.seconds)
        url = URL(f"{self._cluster['server']}{request.raw_path}", encoded=True)
        headers = {name: value for name, value in request.headers.items() if name not in HOP}
        body = await request.read() or None
        try:
            async with self._session.request(request.method, url, headers=headers, data=body) as answer:
                if sent.watch and answer.status == 200:
                    return await self._stream(request, answer)
                told = await answer.read()
        except (aiohttp.ClientError, OSError):
            return _abort(request)
        if isinstance(verdict, Unheard):
            verdict.then()
            return _abort(request)
        return web.Response(status=answer.status, headers=_kept(answer), body=told)

    async def _stream(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers=_kept(answer))
        await response.prepare(request)
        pump = asyncio.create_task(self._pump(answer, response))
        self._watches[pump] = request
        try:
            await asyncio.wait({pump})
            if pump.cancelled():
                await response.write(json.dumps({"type": "ERROR", "object": _status(410, "Expired")}).encode() + b"\n")
            elif pump.exception():
                return _abort(request)
        except ConnectionError:
            pass
        finally:
            del self._watches[pump]
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)
        return response

    async def _pump(self, answer: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
        """Forward a watch, one complete line at a time."""
        rest = b""
        async for chunk in answer.content.iter_any():
            await self._flowing.wait()
            lines, end, rest = (rest + chunk).rpartition(b"\n")
            await response.write(lines + end)


def _abort(request: web.Request) -> web.Response:
    """Close the connection without an answer."""
    if request.transport is not None:
        with suppress(RuntimeError):
            request.transport.abort()
    return web.Response()


def _kept(answer: aiohttp.ClientResponse) -> list[tuple[str, str]]:
    return [(name, value) for name, value in answer.headers.items() if name not in HOP]


def _status(code: int, reason: str) -> dict[str, Any]:
    told = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "by a test"}
    return {**told, "code": code, "reason": reason}


def _refused(verdict: Answer) -> web.Response:
    headers = {"Retry-After": str(verdict.retry_after)} if verdict.retry_after else {}
    return web.json_response(_status(verdict.code, verdict.reason), status=verdict.code, headers=headers)
