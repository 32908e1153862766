"""Deliver the events of kopf for the kinds that people write, and check that none is missing.

kopf does not report that it has delivered a whole list, that it lists a kind again, or that an event was lost (decisions
34). Three observations replace these reports. A list of metadata contains the UIDs that kopf must have delivered, so it also
finds objects whose events never came. The requests that kopf sends show when it lists a kind a second time, which may hide
deletions. The bytes that kopf's watches receive show that they are alive.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import aiohttp

from ome_operator.kube.errors import KubeError
from ome_operator.watch.sink import Body, CannotWatch, Sink, WatchedKind

logger = logging.getLogger(__name__)

Listed = Callable[[str], Awaitable[set[str]]]
"""Function that returns the UIDs of all objects of a kind, by a consistent list."""

PATIENCE = 150.0
"""Seconds within which every existing object must have been delivered. kopf itself abandons a request after two minutes."""
LIST_EVERY = 5.0
"""Seconds between two lists while an object has not been delivered. The list is repeated because the object may be
deleted meanwhile."""


class KopfEvents:
    """Passes the events of kopf on to the sink, and checks that no object is missing."""

    def __init__(
        self,
        kinds: Sequence[WatchedKind],
        sink: Sink,
        listed: Listed,
        *,
        interval: float,
        patience: float = PATIENCE,
        list_every: float = LIST_EVERY,
    ) -> None:
        self._sink, self._listed = sink, listed
        self._interval, self._patience, self._list_every = interval, patience, list_every
        self._kinds = {(watched.group, watched.plural): watched.kind for watched in kinds}
        self._paths = {watched.path: watched.kind for watched in kinds}
        self._uids: dict[str, set[str]] = {watched.kind: set() for watched in kinds}
        self._lists: Counter[str] = Counter()
        self._streams: dict[str, tuple[aiohttp.StreamReader, int]] = {}
        self._watchers: set[asyncio.Task[Any]] = set()
        self._last: dict[str, float] = {}
        self.complete = asyncio.Event()
        """Set when every existing object has been delivered to the sink."""
        self.events: Counter[str] = Counter()
        """Kind -> number of received events."""

    async def run(self) -> None:
        """Compare the delivered objects with lists at the start and then once per interval, without end. Raises
        CannotWatch if an object was never delivered.
        """
        for kind in self._uids:
            await self._check_complete(kind)
        self.complete.set()
        while True:
            await asyncio.sleep(self._interval)
            for kind in self._uids:
                await self._check_complete(kind)

    # --- events of kopf -----------------------------------------------------------------------------------------------

    def event(self, group: str, plural: str, what: str | None, body: Body) -> None:
        """Deliver an event of kopf. `what` is the type of the event; None for an object of a list."""
        kind = self._kinds.get((group, plural))
        if kind is None:
            return
        self._last[kind] = time.monotonic()
        self.events[kind] += 1
        uid = str((body.get("metadata") or {}).get("uid"))
        if what == "DELETED":
            self._uids[kind].discard(uid)
            self._sink.handle_deletion(kind, body)
        else:
            self._uids[kind].add(uid)
            self._sink.handle_object(kind, body)

    # --- completeness -------------------------------------------------------------------------------------------------

    async def _check_complete(self, kind: str) -> None:
        """Wait until all existing objects of a kind were delivered. Raises CannotWatch after too long a wait."""
        delivered, until = self._uids[kind], time.monotonic() + self._patience
        while True:
            before = set(delivered)
            there = await self._list(kind)
            if await self._all_delivered(kind, there):
                break
            why = f"kopf has delivered {len(there & delivered)} of the {len(there)} objects of {kind}"
            if not self._lists[kind]:
                why = f"kopf does not list {kind}"
            if time.monotonic() > until:
                raise CannotWatch(why)
            logger.warning("waiting: %s", why)
        if gone := before - there:
            delivered -= gone
            self._sink.handle_relist(kind)  # the event may still arrive; the resync that follows removes the objects

    async def _all_delivered(self, kind: str, uids: set[str]) -> bool:
        """Return whether kopf has listed this kind and delivered all objects with these UIDs before the next list is due."""
        until = time.monotonic() + self._list_every
        while not self._lists[kind] or uids - self._uids[kind]:
            if time.monotonic() > until:
                return False
            await asyncio.sleep(0.05)
        return True

    async def _list(self, kind: str) -> set[str]:
        while True:
            try:
                return await self._listed(kind)
            except KubeError as error:
                logger.warning("cannot list %s: %s", kind, error)
                await asyncio.sleep(2.0)

    # --- requests of kopf ---------------------------------------------------------------------------------------------

    def add_task(self, path: str, task: asyncio.Task[Any] | None) -> None:
        """Store a task of kopf that sends a list or watch request for the path `path`. `task` is None if the request is not
        sent by a task.
        """
        if self._kind(path) and task is not None:
            self._watchers.add(task)

    async def end(self) -> None:
        """End the tasks of kopf that still watch. If one of these tasks fails, kopf 1.45.2 forgets the other tasks and
        closes their session. Without this method, the other tasks would wait for a new session without end, and kopf
        would wait for these tasks.
        """
        for task in self._watchers:
            task.cancel()
        if self._watchers:
            await asyncio.wait(self._watchers, timeout=5.0)

    def _kind(self, path: str) -> str | None:
        return next((kind for tail, kind in self._paths.items() if path.endswith(tail)), None)

    def process_response(self, path: str, query: Mapping[str, str], content: aiohttp.StreamReader) -> None:
        """Process a request of kopf that was answered with 200.

        That a watch is opened does not show that it works. kopf also opens a silent watch again, and a proxy between the
        operator and the API server may hold back all events.
        """
        kind = self._kind(path)
        if kind is None:
            return
        if "watch" in query:
            self._note_bytes(kind)
            self._streams[kind] = (content, 0)
            return
        self._last[kind] = time.monotonic()
        if "continue" not in query:
            self._lists[kind] += 1
            if self._lists[kind] > 1:
                self._sink.handle_relist(kind)

    def _note_bytes(self, kind: str) -> None:
        """Record whether the watch of the kind `kind` has received bytes since the last check."""
        content, before = self._streams.get(kind, (None, 0))
        if content is not None and content.total_bytes != before:
            self._streams[kind], self._last[kind] = (content, content.total_bytes), time.monotonic()

    @property
    def last_event(self) -> Mapping[str, float]:
        """A mapping from each kind to the monotonic time of the last sign of life of its watch. Received bytes count as a
        sign, because handlers do not receive bookmarks.
        """
        for kind in self._streams:
            self._note_bytes(kind)
        return self._last


def trace_requests(watches: Sequence[KopfEvents]) -> aiohttp.TraceConfig:
    """Return a trace that reports the requests of a session of kopf to each of these objects."""

    async def answered(_: aiohttp.ClientSession, __: object, request: aiohttp.TraceRequestEndParams) -> None:
        if request.response.status == 200:
            for events in watches:
                events.process_response(request.url.path, request.url.query, request.response.content)

    async def begun(_: aiohttp.ClientSession, __: object, request: aiohttp.TraceRequestStartParams) -> None:
        for events in watches:
            events.add_task(request.url.path, asyncio.current_task())

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(begun)
    trace.on_request_end.append(answered)
    return trace
