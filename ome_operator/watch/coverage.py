"""Where the operator looks: everywhere, or at what is cluster-wide and into each of some namespaces.

A namespace that is named may be absent, vanish, and come again. Each has its own lists and watches, so the others go on
meanwhile. kopf is told all names once; its requests into an absent namespace wait here, and no request is sent.
"""

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

import aiohttp

from ome_operator.kube.errors import KubeError
from ome_operator.watch.informer import Informer
from ome_operator.watch.sink import Body, Sink, Watched
from ome_operator.watch.told import Told, traced

logger = logging.getLogger(__name__)

LOOK_SOON, LOOK_LATE = 10.0, 60.0
"""Seconds between two looks at a namespace that is absent, and at a namespace that is watched."""
HELD = 20.0
"""Seconds that a request of kopf's waits for its namespace. kopf itself would give it up after 30, and say so each time."""
AT_ONCE = 8
"""Namespaces that are listed at the same time: each has a dozen lists, and the API server answers others, too."""
_NAMESPACE = re.compile(r"/namespaces/([^/]+)/")

Look = Callable[[str], Awaitable[str]]
"""Why a namespace cannot be watched, "" where it can. A KubeError: nobody knows."""


class Knows(Sink, Protocol):
    """Who is told, and by which namespace."""

    def relisted(self, kind: str, namespace: str = "") -> None:
        """A list of this kind was not the first to begin."""

    async def listed(self, kind: str, namespace: str = "") -> set[str]:
        """UIDs of all objects of a kind, by a consistent list."""

    def whole(self, namespace: str) -> None:
        """Everything that is there was told."""

    def away(self, namespace: str) -> None:
        """The namespace is not watched any more: what was told of it is old."""


class How(NamedTuple):
    """How parts watch."""

    session: aiohttp.ClientSession
    server: str
    server_timeout: int
    interval: float
    """Seconds between two comparisons of what kopf told with lists."""


class NamespaceWatch:
    """Lists and watches of a namespace, or of everything that belongs to none: its own tells of itself."""

    def __init__(self, namespace: str, kinds: Sequence[Watched], written: Collection[str], knows: Knows, how: How) -> None:
        self.namespace, self._knows, self._how = namespace, knows, how
        self._ours = [each for each in kinds if each.kind not in written]
        by_people = [each for each in kinds if each.kind in written]
        self._kinds = [each.kind for each in kinds]
        self.told = Told(by_people, self, lambda kind: knows.listed(kind, namespace), interval=how.interval)
        self.there = asyncio.Event()
        """Set while it is watched: then kopf's requests are sent."""
        self.whole = False
        self.informer = self._informer()
        self._before = False
        self._tasks: list[asyncio.Task[None]] = []

    def _informer(self) -> Informer:
        how = self._how
        return Informer(self._ours, self, session=how.session, server=how.server, server_timeout=how.server_timeout)

    def open(self, group: asyncio.TaskGroup, slots: asyncio.Semaphore, done: Callable[[], None]) -> None:
        """Begin to watch; `done` is called when everything was told."""
        self._tasks = [group.create_task(self._begin(group, slots, done), name=f"list {self.namespace}")]

    @property
    def opened(self) -> bool:
        """Whether it is watched, or about to be."""
        return bool(self._tasks)

    async def _begin(self, group: asyncio.TaskGroup, slots: asyncio.Semaphore, done: Callable[[], None]) -> None:
        async with slots:
            self.informer = self._informer()
            self.told.complete.clear()
            self.there.set()
            self._tasks += [group.create_task(self.informer.run()), group.create_task(self.told.run())]
            await self.informer.complete.wait()
            await self.told.complete.wait()
        if self._before:  # deletions may have been missed while nobody watched
            for kind in self._kinds:
                self._knows.relisted(kind, self.namespace)
        self._before = self.whole = True
        self._knows.whole(self.namespace)
        done()

    def close(self) -> None:
        """Watch no more. kopf's open watches stay, and may still tell of deletions."""
        for task in self._tasks:
            task.cancel()
        self._tasks, self.whole = [], False
        self.there.clear()
        self._knows.away(self.namespace)

    # --- the sink of its watches ------------------------------------------------------------------------------------

    def seen(self, kind: str, body: Body) -> None:
        """An object is there in this state."""
        self._knows.seen(kind, body)

    def deleted(self, kind: str, body: Body) -> None:
        """The object was deleted."""
        self._knows.deleted(kind, body)

    def relisted(self, kind: str) -> None:
        """A list of this kind was not the first to begin."""
        self._knows.relisted(kind, self.namespace)


class Coverage:
    """Watches in all places until it is cancelled, or ends with CannotWatch."""

    def __init__(
        self,
        names: Sequence[str],
        kinds: Callable[[str], Sequence[Watched]],
        written: Collection[str],
        knows: Knows,
        look: Look,
        how: How,
    ) -> None:
        self._look = look
        self._parts = {name: NamespaceWatch(name, kinds(name), written, knows, how) for name in ("", *dict.fromkeys(names))}
        self._names = [name for name in self._parts if name]
        self._locks = {name: asyncio.Lock() for name in self._names}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._group = asyncio.TaskGroup()
        self._running = False
        self.absent: dict[str, str] = {}
        """Namespaces that are named and not watched, each with the reason."""
        self.complete = asyncio.Event()
        """Set when everything was told that is in a place which can be watched."""

    async def run(self) -> None:
        """Watch for ever."""
        try:
            async with self._group:
                self._running = True
                self._parts[""].open(self._group, self._slots, self._done)
                for name in self._names:
                    self._group.create_task(self._attend(name), name=f"namespace {name}")
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    # --- namespaces that come and go --------------------------------------------------------------------------------

    async def _attend(self, name: str) -> None:
        while True:
            await self._glance(name)
            await asyncio.sleep(LOOK_LATE if self._parts[name].whole else LOOK_SOON)

    async def _glance(self, name: str) -> None:
        """See whether a namespace can be watched, and begin or cease to."""
        part = self._parts[name]
        async with self._locks[name]:
            try:
                why = await self._look(name)
            except KubeError as error:
                logger.warning("cannot look at namespace %s: %s", name, error)
                return
            if why and self.absent.get(name) != why:
                logger.warning("namespace %s is not watched: %s", name, why)
            if why:
                self.absent[name] = why
                if part.opened:
                    part.close()
                self._done()
            elif not part.opened and self._running:
                self.absent.pop(name, None)
                logger.info("watching namespace %s", name)
                part.open(self._group, self._slots, self._done)

    def _done(self) -> None:
        """Complete at the start is whatever can be: an absent namespace holds up nobody."""
        if all(part.whole or name in self.absent for name, part in self._parts.items()):
            self.complete.set()

    # --- kopf -------------------------------------------------------------------------------------------------------

    def event(self, group: str, plural: str, what: str | None, body: Body) -> None:
        """An event of kopf's; `what` is None for an object of a list."""
        namespace = str((body.get("metadata") or {}).get("namespace") or "")
        self._parts[namespace if namespace in self._parts else ""].told.event(group, plural, what, body)

    def trace(self) -> aiohttp.TraceConfig:
        """Looks at the requests of a session that kopf is given."""
        return traced([part.told for part in self._parts.values()])

    async def there(self, path: str, *, refused: bool = False) -> bool:
        """Whether what a request of kopf's asks for can be watched: after a while at the latest, and where it was `refused`
        after another look.
        """
        found = _NAMESPACE.search(path)
        name = found[1] if found is not None else ""
        if name not in self._locks:
            return True
        if refused:
            await self._glance(name)
        try:
            async with asyncio.timeout(0.0 if refused else HELD):
                await self._parts[name].there.wait()
        except TimeoutError:
            return False
        return True

    async def end(self) -> None:
        """End what kopf has left behind."""
        for part in self._parts.values():
            await part.told.end()

    # --- how it goes ------------------------------------------------------------------------------------------------

    @property
    def last_event(self) -> Mapping[str, float]:
        """Kind -> monotonic time of the last sign of life of its watch, of the place where that is the longest ago."""
        found: dict[str, float] = {}
        for part in self._parts.values():
            if part.opened:
                for kind, at in (*part.informer.last_event.items(), *part.told.last_event.items()):
                    found[kind] = min(at, found.get(kind, time.monotonic()))
        return found

    @property
    def events(self) -> Counter[str]:
        """Kind -> how many events came."""
        both = [count for part in self._parts.values() for count in (part.informer.events, part.told.events)]
        return sum(both, Counter())

    @property
    def unread(self) -> Counter[str]:
        """Kind -> how many objects and events nobody could read."""
        return sum((part.informer.unread for part in self._parts.values()), Counter())

    @property
    def watched(self) -> dict[str, float]:
        """Namespace that is named -> 1 while it is watched, else 0."""
        return {name: float(self._parts[name].whole) for name in self._names}
