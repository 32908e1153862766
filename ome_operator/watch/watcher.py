"""Watches a fixed set of kinds through kopf's streams of events and feeds a sink.

Of kopf only the streams are taken: they list, watch, open a watch anew when it ends, is cut or falls silent, and end when
it has missed something. Not its handlers, which make a task, three loggers and a dozen views for each event:
what 100 services of 11 pods told took 7 s of CPU with them, and takes 1 s without. Nor its indices, which keep deleted
objects after a relist and wake every waiting object for each one that was indexed. The streams are no part of kopf's
public interface; requirements.lock and tests/controlplane/process hold them.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, Protocol, cast

import aiohttp
import kopf
from kopf._cogs.clients.auth import vault_var
from kopf._cogs.clients.errors import APIClientError
from kopf._cogs.clients.watching import Bookmark, infinite_watch
from kopf._cogs.structs.credentials import KubeContext, Vault, VaultKey
from kopf._cogs.structs.references import Resource

from ome_operator.watch.tuning import tuned

logger = logging.getLogger(__name__)

Body = Mapping[str, Any]

LIST_AGAIN = (401, 410)
"""Answers after which a list begins again: the session has another token by now, or the last list is too old to go on."""


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
        """A list of this kind was told to its end and was not the first to begin: what was told before may be gone since."""


class _OneSession(Vault):
    """Credentials that nobody else can renew: the session renews its token by itself."""

    async def invalidate(self, key: VaultKey, info: KubeContext, *, exc: Exception | None = None) -> None:
        if exc is not None:
            raise exc


class Watcher:
    """Watches until it is cancelled, or ends with the error that made it impossible."""

    def __init__(
        self, kinds: Sequence[Watched], sink: Sink, *, session: aiohttp.ClientSession, server: str, server_timeout: int
    ) -> None:
        self._kinds, self._sink, self._session, self._server = kinds, sink, session, server
        self._settings = tuned(server_timeout, {one[1:4]: one.selector for one in kinds if one.selector})
        self._unlisted = {one.kind for one in kinds}
        self.complete = asyncio.Event()
        """Set when the sink was told of a whole list of each kind."""
        self.last_event: dict[str, float] = {}
        """Kind -> monotonic time of the last sign of life of its watch; there is one each minute."""
        self.events: Counter[str] = Counter()
        """Kind -> how many events came."""

    async def run(self) -> None:
        """Watch for ever."""
        vault_var.set(_OneSession({"session": kopf.AiohttpSession(server=self._server, aiohttp_session=self._session)}))
        try:
            async with asyncio.TaskGroup() as group:
                for one in self._kinds:
                    group.create_task(self._watch(one), name=f"watch {one.kind}")
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _watch(self, one: Watched) -> None:
        resource, again = Resource(one.group, one.version, one.plural), False
        while True:
            # One iteration is one list, told page by page, and what follows it: only so do we know when a list begins.
            stream = infinite_watch(settings=self._settings, resource=resource, namespace=None, _iterations=1)
            try:
                async with aclosing(cast("AsyncGenerator[Any]", stream)):
                    async for event in stream:
                        self._tell(one.kind, event, again)
            except APIClientError as error:
                if error.status not in LIST_AGAIN:
                    raise
                logger.warning("cannot watch %s: %s", one.kind, error)
                await asyncio.sleep(1.0)
            again = True

    def _tell(self, kind: str, event: Any, again: bool) -> None:
        self.last_event[kind] = time.monotonic()
        if event is Bookmark.LISTED:
            self._listed(kind, again)
            return
        if event["type"] == "BOOKMARK":
            return
        self.events[kind] += 1
        if event["type"] == "DELETED":
            self._sink.deleted(kind, event["object"])
        else:
            self._sink.seen(kind, event["object"])

    def _listed(self, kind: str, again: bool) -> None:
        if again:
            self._sink.relisted(kind)
        self._unlisted.discard(kind)
        if not self._unlisted:
            self.complete.set()
