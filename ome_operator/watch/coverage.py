"""Watch all namespaces, or the configured namespaces together with cluster-wide kinds.

A configured namespace may be absent, may be deleted, and may be created again. Each namespace has its own lists and watches,
so that the other namespaces are watched during this time. kopf gets the names of all namespaces once, at the start. Its
requests to an absent namespace are delayed here, and not sent.
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
from ome_operator.watch.kopf_events import KopfEvents, trace_requests
from ome_operator.watch.sink import Body, Sink, WatchedKind

logger = logging.getLogger(__name__)

CHECK_ABSENT_EVERY, CHECK_WATCHED_EVERY = 10.0, 60.0
"""Seconds between two checks of an absent namespace, and between two checks of a watched namespace."""
HOLD_KOPF_REQUEST = 20.0
"""Seconds for which a request of kopf waits for its namespace. kopf itself would time out after 30 s, and log each
timeout."""
LISTED_AT_ONCE = 8
"""Number of namespaces that are listed at the same time. The number is limited because each namespace needs a dozen
lists, and the API server has other clients, too."""
_NAMESPACE = re.compile(r"/namespaces/([^/]+)/")

CheckNamespace = Callable[[str], Awaitable[str]]
"""Function that returns the reason why a namespace cannot be watched; "" if it can. It raises KubeError if neither is
known."""


class NamespacedSink(Sink, Protocol):
    """Receives the objects and events of watches. The methods get the namespace to which the objects or events belong."""

    def handle_relist(self, kind: str, namespace: str = "") -> None:
        """Called when the list of the kind `kind` was repeated. Objects may have been deleted without an event before
        that.
        """

    async def listed(self, kind: str, namespace: str = "") -> set[str]:
        """Return the UIDs of all objects of a kind, by a consistent list."""

    def namespace_listed(self, namespace: str) -> None:
        """Called when all existing objects of the namespace have been delivered."""

    def namespace_unwatched(self, namespace: str) -> None:
        """Called when the namespace is not watched any more, so that the facts about it are outdated."""


class WatchSettings(NamedTuple):
    """Settings of all lists and watches."""

    session: aiohttp.ClientSession
    server: str
    server_timeout: int
    interval: float
    """Seconds between two comparisons of the objects that kopf has delivered with lists."""


class NamespaceWatch:
    """The lists and watches of one namespace, or of all cluster-wide kinds (namespace "")."""

    def __init__(
        self,
        namespace: str,
        kinds: Sequence[WatchedKind],
        written: Collection[str],
        sink: NamespacedSink,
        settings: WatchSettings,
    ) -> None:
        self.namespace, self._sink, self._settings = namespace, sink, settings
        self._ours = [watched for watched in kinds if watched.kind not in written]
        by_people = [watched for watched in kinds if watched.kind in written]
        self._kinds = [watched.kind for watched in kinds]
        self.kopf = KopfEvents(by_people, self, lambda kind: sink.listed(kind, namespace), interval=settings.interval)
        self.watching = asyncio.Event()
        """Set while the namespace is watched. Requests of kopf are sent only then."""
        self.listed = False
        self.informer = self._informer()
        self._before = False
        self._tasks: list[asyncio.Task[None]] = []

    def _informer(self) -> Informer:
        settings = self._settings
        return Informer(
            self._ours, self, session=settings.session, server=settings.server, server_timeout=settings.server_timeout
        )

    def open(self, group: asyncio.TaskGroup, slots: asyncio.Semaphore, done: Callable[[], None]) -> None:
        """Begin to watch. `done` is called when all existing objects have been delivered."""
        self._tasks = [group.create_task(self._begin(group, slots, done), name=f"list {self.namespace}")]

    @property
    def is_open(self) -> bool:
        """Whether the namespace is watched or is about to be watched."""
        return bool(self._tasks)

    async def _begin(self, group: asyncio.TaskGroup, slots: asyncio.Semaphore, done: Callable[[], None]) -> None:
        async with slots:
            self.informer = self._informer()
            self.kopf.complete.clear()
            self.watching.set()
            self._tasks += [group.create_task(self.informer.run()), group.create_task(self.kopf.run())]
            await self.informer.complete.wait()
            await self.kopf.complete.wait()
        if self._before:  # deletions may have been missed while the namespace was not watched
            for kind in self._kinds:
                self._sink.handle_relist(kind, self.namespace)
        self._before = self.listed = True
        self._sink.namespace_listed(self.namespace)
        done()

    def close(self) -> None:
        """Stop watching. The open watches of kopf stay, and may still deliver deletions."""
        for task in self._tasks:
            task.cancel()
        self._tasks, self.listed = [], False
        self.watching.clear()
        self._sink.namespace_unwatched(self.namespace)

    # --- called by the watches of the namespace -----------------------------------------------------------------------

    def handle_object(self, kind: str, body: Body) -> None:
        """Deliver the current state of an object."""
        self._sink.handle_object(kind, body)

    def handle_deletion(self, kind: str, body: Body) -> None:
        """Deliver the deletion of an object."""
        self._sink.handle_deletion(kind, body)

    def handle_relist(self, kind: str) -> None:
        """Report that a list of this kind was repeated."""
        self._sink.handle_relist(kind, self.namespace)


class Coverage:
    """Watches all configured namespaces and the cluster-wide kinds, until it is cancelled or raises CannotWatch."""

    def __init__(
        self,
        names: Sequence[str],
        kinds: Callable[[str], Sequence[WatchedKind]],
        written: Collection[str],
        sink: NamespacedSink,
        check: CheckNamespace,
        settings: WatchSettings,
    ) -> None:
        self._check = check
        self._parts = {
            name: NamespaceWatch(name, kinds(name), written, sink, settings) for name in ("", *dict.fromkeys(names))
        }
        self._names = [name for name in self._parts if name]
        self._locks = {name: asyncio.Lock() for name in self._names}
        self._slots = asyncio.Semaphore(LISTED_AT_ONCE)
        self._group = asyncio.TaskGroup()
        self._running = False
        self.absent: dict[str, str] = {}
        """Configured namespaces that are not watched, each with the reason."""
        self.complete = asyncio.Event()
        """Set when all objects of every watchable namespace have been delivered."""

    async def run(self) -> None:
        """Watch all namespaces, or the configured namespaces and the cluster-wide kinds, forever."""
        try:
            async with self._group:
                self._running = True
                self._parts[""].open(self._group, self._slots, self._done)
                for name in self._names:
                    self._group.create_task(self._check_periodically(name), name=f"namespace {name}")
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    # --- namespaces that come and go --------------------------------------------------------------------------------

    async def _check_periodically(self, name: str) -> None:
        while True:
            await self._check_namespace(name)
            await asyncio.sleep(CHECK_WATCHED_EVERY if self._parts[name].listed else CHECK_ABSENT_EVERY)

    async def _check_namespace(self, name: str) -> None:
        """Check whether a namespace can be watched, and begin or stop watching it."""
        part = self._parts[name]
        async with self._locks[name]:
            try:
                why = await self._check(name)
            except KubeError as error:
                logger.warning("cannot check namespace %s: %s", name, error)
                return
            if why and self.absent.get(name) != why:
                logger.warning("namespace %s is not watched: %s", name, why)
            if why:
                self.absent[name] = why
                if part.is_open:
                    part.close()
                self._done()
            elif not part.is_open and self._running:
                self.absent.pop(name, None)
                logger.info("watching namespace %s", name)
                part.open(self._group, self._slots, self._done)

    def _done(self) -> None:
        """Set `complete` if no namespace remains to be listed. Absent namespaces are not waited for."""
        if all(part.listed or name in self.absent for name, part in self._parts.items()):
            self.complete.set()

    # --- kopf -------------------------------------------------------------------------------------------------------

    def event(self, group: str, plural: str, type_: str | None, body: Body) -> None:
        """Deliver an event of kopf. `type_` is the type of the event; None for an object of a list."""
        namespace = str((body.get("metadata") or {}).get("namespace") or "")
        self._parts[namespace if namespace in self._parts else ""].kopf.event(group, plural, type_, body)

    def trace(self) -> aiohttp.TraceConfig:
        """Return a trace of the requests that kopf sends in a session."""
        return trace_requests([part.kopf for part in self._parts.values()])

    async def can_watch(self, path: str, *, refused: bool = False) -> bool:
        """Return whether the target of a kopf request can be watched. Wait some seconds for its namespace if necessary.

        If `refused` is true, the API server has refused the request; the namespace is then checked again at once, without
        waiting.
        """
        match = _NAMESPACE.search(path)
        name = match[1] if match is not None else ""
        if name not in self._locks:
            return True
        if refused:
            await self._check_namespace(name)
        try:
            async with asyncio.timeout(0.0 if refused else HOLD_KOPF_REQUEST):
                await self._parts[name].watching.wait()
        except TimeoutError:
            return False
        return True

    async def end(self) -> None:
        """End the tasks that kopf has left behind."""
        for part in self._parts.values():
            await part.kopf.end()

    # --- metrics ------------------------------------------------------------------------------------------------------

    @property
    def last_event(self) -> Mapping[str, float]:
        """A mapping from each kind to the monotonic time of the last sign of life of its watch. If a kind is watched in
        several namespaces, the oldest time is used.
        """
        found: dict[str, float] = {}
        for part in self._parts.values():
            if part.is_open:
                for kind, at in (*part.informer.last_event.items(), *part.kopf.last_event.items()):
                    found[kind] = min(at, found.get(kind, time.monotonic()))
        return found

    @property
    def events(self) -> Counter[str]:
        """A mapping from each kind to the number of its received events."""
        both = [count for part in self._parts.values() for count in (part.informer.events, part.kopf.events)]
        return sum(both, Counter())

    @property
    def unparsed_counts(self) -> Counter[str]:
        """A mapping from each kind to the number of its objects and events that could not be parsed."""
        return sum((part.informer.unread for part in self._parts.values()), Counter())

    @property
    def watched_namespaces(self) -> dict[str, float]:
        """A mapping from each configured namespace to 1 while it is watched, and to 0 otherwise."""
        return {name: float(self._parts[name].listed) for name in self._names}
