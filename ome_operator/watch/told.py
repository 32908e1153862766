"""What kopf told of the kinds that people write, and whether that is everything.

kopf does not say when a list has been told to its end, when it lists anew, or that an event was lost (decisions 34). Three
observations of our own say it. A list of metadata has the UIDs that must have been told, so it finds also what is there and
never came. The requests that kopf sends show a second list of a kind, which may hide deletions. The bytes that its watches
bring show that they live.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import aiohttp

from ome_operator.kube.errors import KubeError
from ome_operator.watch.sink import Body, CannotWatch, Sink, Watched

logger = logging.getLogger(__name__)

Listed = Callable[[str], Awaitable[set[str]]]
"""UIDs of all objects of a kind, by a consistent list."""

PATIENCE = 150.0
"""Seconds until what is there must have been told: kopf itself gives up a request after two minutes."""
LOOK_EVERY = 5.0
"""Seconds between two lists while something is missing: it may be deleted meanwhile."""


class Told:
    """Passes on to the sink what kopf tells."""

    def __init__(
        self,
        kinds: Sequence[Watched],
        sink: Sink,
        listed: Listed,
        *,
        interval: float,
        patience: float = PATIENCE,
        look_every: float = LOOK_EVERY,
    ) -> None:
        self._sink, self._listed = sink, listed
        self._interval, self._patience, self._look_every = interval, patience, look_every
        self._kinds = {(watched.group, watched.plural): watched.kind for watched in kinds}
        self._paths = {watched.path: watched.kind for watched in kinds}
        self._uids: dict[str, set[str]] = {watched.kind: set() for watched in kinds}
        self._lists: Counter[str] = Counter()
        self._streams: dict[str, tuple[aiohttp.StreamReader, int]] = {}
        self._watchers: set[asyncio.Task[Any]] = set()
        self._last: dict[str, float] = {}
        self.complete = asyncio.Event()
        """Set when the sink was told of everything that is there."""
        self.events: Counter[str] = Counter()
        """Kind -> how many events came."""

    async def run(self) -> None:
        """Compare with lists at the start and then every interval, for ever; CannotWatch when something never came."""
        for kind in self._uids:
            await self._everything(kind)
        self.complete.set()
        while True:
            await asyncio.sleep(self._interval)
            for kind in self._uids:
                await self._everything(kind)

    # --- what kopf tells --------------------------------------------------------------------------------------------

    def event(self, group: str, plural: str, what: str | None, body: Body) -> None:
        """An event of kopf's; `what` is None for an object of a list."""
        kind = self._kinds.get((group, plural))
        if kind is None:
            return
        self._last[kind] = time.monotonic()
        self.events[kind] += 1
        uid = str((body.get("metadata") or {}).get("uid"))
        if what == "DELETED":
            self._uids[kind].discard(uid)
            self._sink.deleted(kind, body)
        else:
            self._uids[kind].add(uid)
            self._sink.seen(kind, body)

    # --- whether it is everything -----------------------------------------------------------------------------------

    async def _everything(self, kind: str) -> None:
        """Return when all objects of a kind that are there were told."""
        told, until = self._uids[kind], time.monotonic() + self._patience
        while True:
            before = set(told)
            there = await self._list(kind)
            if await self._came(kind, there):
                break
            why = f"of {len(there)} objects of {kind} kopf has told {len(there & told)}"
            if not self._lists[kind]:
                why = f"kopf does not list {kind}"
            if time.monotonic() > until:
                raise CannotWatch(why)
            logger.warning("waiting: %s", why)
        if gone := before - there:
            told -= gone
            self._sink.relisted(kind)  # the event may be on its way; the audit that follows knows

    async def _came(self, kind: str, uids: set[str]) -> bool:
        """Whether kopf has listed this kind and told all of them before it is time to look again."""
        until = time.monotonic() + self._look_every
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

    # --- what kopf asks ---------------------------------------------------------------------------------------------

    def begun(self, path: str, task: asyncio.Task[Any] | None) -> None:
        """A task of kopf's sends a request."""
        if self._kind(path) and task is not None:
            self._watchers.add(task)

    async def end(self) -> None:
        """End those tasks of kopf that still watch. When one fails, kopf forgets the others and closes their session; they
        would then wait for another one for ever, and kopf for them (1.45.2).
        """
        for task in self._watchers:
            task.cancel()
        if self._watchers:
            await asyncio.wait(self._watchers, timeout=5.0)

    def _kind(self, path: str) -> str | None:
        return next((kind for tail, kind in self._paths.items() if path.endswith(tail)), None)

    def answered(self, path: str, query: Mapping[str, str], content: aiohttp.StreamReader) -> None:
        """A request of kopf's was answered with 200. That a watch was opened is no sign of life: kopf opens it anew when it
        was silent, and what stands between us and the API server may hold back all that it tells.
        """
        kind = self._kind(path)
        if kind is None:
            return
        if "watch" in query:
            self._hear(kind)
            self._streams[kind] = (content, 0)
            return
        self._last[kind] = time.monotonic()
        if "continue" not in query:
            self._lists[kind] += 1
            if self._lists[kind] > 1:
                self._sink.relisted(kind)

    def _hear(self, kind: str) -> None:
        """Note whether the watch of a kind has brought bytes since the last look."""
        content, before = self._streams.get(kind, (None, 0))
        if content is not None and content.total_bytes != before:
            self._streams[kind], self._last[kind] = (content, content.total_bytes), time.monotonic()

    @property
    def last_event(self) -> Mapping[str, float]:
        """Kind -> monotonic time of the last sign of life of its watch: bytes that came since the last look count, for
        bookmarks reach no handler.
        """
        for kind in self._streams:
            self._hear(kind)
        return self._last


def traced(everybody: Sequence[Told]) -> aiohttp.TraceConfig:
    """Looks at the requests of a session that kopf is given, for each of them."""

    async def answered(_: aiohttp.ClientSession, __: object, request: aiohttp.TraceRequestEndParams) -> None:
        if request.response.status == 200:
            for each in everybody:
                each.answered(request.url.path, request.url.query, request.response.content)

    async def begun(_: aiohttp.ClientSession, __: object, request: aiohttp.TraceRequestStartParams) -> None:
        for each in everybody:
            each.begun(request.url.path, asyncio.current_task())

    made = aiohttp.TraceConfig()
    made.on_request_start.append(begun)
    made.on_request_end.append(answered)
    return made
