"""An API server that records its requests, and a process that kopf hosts."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import aiohttp
from aiohttp import web

from ome_operator import keys
from ome_operator.controllers.watched_kinds import WRITTEN, watches_of
from ome_operator.kube.resources import RESOURCES
from ome_operator.watch import handlers
from ome_operator.watch.kopf_events import KopfEvents, trace_requests
from ome_operator.watch.sink import WatchedKind
from tests.support.answers import answers
from tests.support.deep import filled

CUT = 0
"""A marker: the response is cut off in the middle of a page."""
SERVICES = f"/apis/{keys.API_VERSION}/inferenceservices"


def service(name: str, **metadata: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "7", **metadata}
    return {"apiVersion": keys.API_VERSION, "kind": "InferenceService", "metadata": metadata, "spec": {}}


class Server:
    """An API server that serves the operator's kinds, and records its requests."""

    def __init__(self, *services: dict[str, Any]) -> None:
        self.services = list(services)
        self.requests: list[tuple[str, str]] = []
        self.watched: Counter[str] = Counter()
        self.since: list[str] = []
        """Resource versions at which watches of services began."""
        self.events: asyncio.Queue[bytes] = asyncio.Queue()
        """Lines of the watch; b"" ends the watch."""
        self.breaks = False
        """Whether the connection is cut when a watch ends."""
        self.loop = asyncio.new_event_loop()
        self.levels = 0
        """Number of nested maps that replace the placeholder HERE in bodies."""
        self.refuse: list[tuple[str, int]] = []
        """(path of a watch, status code with which the next request for this watch is refused)."""
        self.page = 0
        """Number of services on a page; 0 for all."""
        self.later: list[int] = []
        """What happens to later pages of a list: a status code, or CUT."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        if request.path.count("/") < 4 and "inferenceservices" not in request.path:
            return web.json_response(self._discovery(request.path))
        if "watch" not in request.query:
            return await self._list(request)
        for refusal in self.refuse:
            if refusal[0] == request.path:
                self.refuse.remove(refusal)
                return web.json_response({"kind": "Status", "message": "no more"}, status=refusal[1])
        return await self._watch(request)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        items, metadata = self.services if request.path == SERVICES else [], {"resourceVersion": "9"}
        if self.page and "limit" in request.query:
            begin = int(request.query.get("continue", 0))
            end = begin + self.page
            metadata |= {"continue": str(end)} if items[end:] else {}
            items = items[begin:end]
        page = {"apiVersion": keys.API_VERSION, "metadata": metadata, "items": items}
        body = filled(json.dumps(page).encode(), self.levels)
        happens = self.later.pop(0) if "continue" in request.query and self.later else 200
        if happens == CUT:
            response = web.StreamResponse(headers={"Content-Length": str(len(body)), "Content-Type": "application/json"})
            await response.prepare(request)
            await response.write(body[: len(body) // 2])
            _cut(request)
            return response
        if happens != 200:
            return web.json_response({"kind": "Status", "code": happens, "reason": "Expired"}, status=happens)
        return web.Response(body=body, content_type="application/json")

    async def _end(self, served: AbstractAsyncContextManager[Any]) -> None:
        await served.__aexit__(None, None, None)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _discovery(self, path: str) -> Any:
        if path == "/api":
            return {"versions": ["v1"]}
        if path == "/apis":
            groups = sorted({(each.group, each.version) for each in RESOURCES.values() if each.group})
            told = [{"groupVersion": f"{group}/{version}", "version": version} for group, version in groups]
            return {
                "groups": [
                    {"name": group, "versions": [each], "preferredVersion": each}
                    for (group, _), each in zip(groups, told, strict=True)
                ]
            }
        api_version = path.removeprefix("/apis/").removeprefix("/api/")
        found = {each.plural: name for name, each in RESOURCES.items() if each.api_version == api_version}
        if path == "/api/v1":
            found["namespaces"] = "Namespace"  # kopf waits until it has discovered these
        common = {"singularName": "", "namespaced": True, "verbs": ["get", "list", "watch", "patch"]}
        return {"resources": [{"name": plural, "kind": kind, **common} for plural, kind in found.items()]}

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.watched[request.path] += 1
        response = web.StreamResponse()
        await response.prepare(request)
        if request.path == SERVICES:
            self.since.append(request.query["resourceVersion"])
            while line := await self.events.get():
                await response.write(line)
            if self.breaks:
                _cut(request)
            return response
        await asyncio.Future()
        return response

    def tell(self, what: str, body: Mapping[str, Any]) -> None:
        self.write(filled(json.dumps({"type": what, "object": body}).encode(), self.levels) + b"\n")

    def write(self, line: bytes) -> None:
        self.loop.call_soon_threadsafe(self.events.put_nowait, line)

    def end(self) -> None:
        """End the watch."""
        self.write(b"")

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Yield the server's address. The server runs in its own thread, because kopf waits for, and cancels, every task of
        its event loop.
        """
        thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        thread.start()
        served = answers(self.answer)
        try:
            yield asyncio.run_coroutine_threadsafe(served.__aenter__(), self.loop).result(10).server
        finally:
            asyncio.run_coroutine_threadsafe(self._end(served), self.loop).result(10)
            self.loop.call_soon_threadsafe(self.loop.stop)
            thread.join(10)


def _cut(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.close()


class Everywhere(KopfEvents):
    """A filter of kopf's requests that permits every watch."""

    def trace(self) -> aiohttp.TraceConfig:
        return trace_requests([self])

    async def can_watch(self, path: str, *, refused: bool = False) -> bool:
        return True


class Process:
    """A process that hosts kopf, and the sink to which kopf reports."""

    def __init__(self, server: str, kinds: Sequence[WatchedKind]) -> None:
        self.server, self._kinds = server, kinds
        self.there: dict[str, set[str]] = {}
        self.coverage = Everywhere(kinds, self, self._listed, interval=0.1, patience=60.0, list_every=0.1)
        self.said: list[str] = []
        self.sessions: list[aiohttp.ClientSession] = []
        self.stopped = 0

    async def start(self) -> Sequence[WatchedKind]:
        return self._kinds

    async def stop(self) -> None:
        self.stopped += 1
        await self.coverage.end()

    def session(self, trace: aiohttp.TraceConfig, middleware: aiohttp.ClientMiddlewareType) -> aiohttp.ClientSession:
        self.sessions.append(aiohttp.ClientSession(trace_configs=[trace], middlewares=[middleware]))
        return self.sessions[-1]

    async def _listed(self, kind: str) -> set[str]:
        return self.there.get(kind, set())

    def handle_object(self, kind: str, body: Mapping[str, Any]) -> None:
        self.said.append(f"seen {body['metadata']['name']}")

    def handle_deletion(self, kind: str, body: Mapping[str, Any]) -> None:
        self.said.append(f"deleted {body['metadata']['name']}")

    def handle_relist(self, kind: str) -> None:
        self.said.append(f"relisted {kind}")


ALL = watches_of(sorted(WRITTEN))


@asynccontextmanager
async def hosted(server: Server) -> AsyncIterator[tuple[Process, asyncio.Task[None]]]:
    """Yield an operator that kopf hosts, and its task."""
    with server.serving() as address:
        made, stop = Process(address, ALL), asyncio.Event()
        operating = asyncio.create_task(handlers.run_operator(made, stop))
        try:
            yield made, operating
        finally:
            stop.set()
            async with asyncio.timeout(60):
                await asyncio.wait({operating})
            assert all(session.closed for session in made.sessions)


async def until(what: Any) -> None:
    async with asyncio.timeout(60):
        while not what():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
