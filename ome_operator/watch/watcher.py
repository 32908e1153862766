"""Watches a fixed set of kinds through kopf and feeds a sink.

Each kind has one event handler, which is told every state of every object, and no index. kopf's indices would hold back
all handlers until every kind is listed, but they do it with one condition variable that wakes every waiting object for
every object that was indexed: 2,600 objects took 40 s of CPU before the first handler ran. And they keep deleted objects
after a relist. So whoever uses this finds out with lists of its own when the sink is complete, and calls `completed`.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import aiohttp
import kopf

from ome_operator.watch.tuning import tune

logger = logging.getLogger(__name__)

Body = Mapping[str, Any]


class Watched(NamedTuple):
    """A kind to watch."""

    kind: str
    group: str
    version: str
    plural: str
    selector: str
    """Label selector; "" for all objects."""


class Sink(Protocol):
    """Who is told. No method may raise, block, or keep the body."""

    def seen(self, kind: str, body: Body) -> None:
        """The object is there, in this state. Called again and again with the same state."""

    def deleted(self, kind: str, body: Body) -> None:
        """The object was deleted."""

    def relisted(self, kind: str) -> None:
        """The watch of this kind started anew and may have missed deletions."""


class Watcher:
    """Watches until it is stopped, or ends with the error that made it impossible."""

    def __init__(
        self, kinds: Sequence[Watched], sink: Sink, *, session: aiohttp.ClientSession, server: str, server_timeout: int
    ) -> None:
        self._kinds, self._sink, self._session, self._server = kinds, sink, session, server
        self._server_timeout = server_timeout
        self._complete = False
        self.last_event: dict[str, float] = {}
        """Kind -> monotonic time of the last event."""
        self.events: Counter[str] = Counter()
        """Kind -> how many events came."""
        self._registry = kopf.OperatorRegistry()
        self._settings = kopf.OperatorSettings()
        self._prepare()

    def _prepare(self) -> None:
        selectors = {(one.group, one.version, one.plural): one.selector for one in self._kinds if one.selector}
        tune(self._settings, self._server_timeout, selectors)
        kopf.on.login(id="login", registry=self._registry)(self._login)
        kopf.on.startup(id="startup", registry=self._registry)(self._started)
        for one in self._kinds:
            self._register(one)

    def _register(self, one: Watched) -> None:
        kind, sink = one.kind, self._sink

        async def told(event: Any, **_: Any) -> None:
            self.last_event[kind] = time.monotonic()
            self.events[kind] += 1
            if event["type"] == "DELETED":
                sink.deleted(kind, event["object"])
                return
            sink.seen(kind, event["object"])
            if event["type"] is None and self._complete:
                sink.relisted(kind)

        kopf.on.event(id=f"told-{kind}", group=one.group, version=one.version, plural=one.plural, registry=self._registry)(
            told
        )

    def completed(self) -> None:
        """All kinds are listed: a list from now on means that a watch started anew."""
        self._complete = True

    async def _login(self, **_: Any) -> kopf.AiohttpSession:
        """The session authorizes itself and renews its token, so this is asked once."""
        return kopf.AiohttpSession(server=self._server, aiohttp_session=self._session)

    async def _started(self, settings: kopf.OperatorSettings, **_: Any) -> None:
        logger.debug("watching %s", ", ".join(one.kind for one in self._kinds))

    async def run(self, spawned: Callable[[], None]) -> None:
        """Watch for ever. `spawned` is called when kopf has started (and has taken the process's signal handlers)."""
        tasks = await kopf.spawn_tasks(registry=self._registry, settings=self._settings, standalone=True, clusterwide=True)
        spawned()
        await kopf.run_tasks(tasks, ignored=asyncio.all_tasks() - set(tasks))
