"""Lists and watches without kopf, for kinds with many objects and many events, and for the agent.

Each kind is listed page by page and watched from the version of its list. A watch that ends, is cut off, or falls silent is
opened again at the last delivered version. A list begins again when that version is too old (410), when the list itself was
cut off, when the token is refused (the session has another token by then), or when an event of the watch is unreadable.
After a second unreadable event within a minute only its own object is lost, because the lists would otherwise never end.
"""

import asyncio
import itertools
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, NoReturn

import aiohttp

from ome_operator.errors import OmeError
from ome_operator.kube import errors
from ome_operator.machinery.background import PACER
from ome_operator.util import bounded
from ome_operator.util.json_limits import decode_to_depth
from ome_operator.util.json_pages import ITEM, members
from ome_operator.watch.sink import CannotWatch, Sink, WatchedKind

logger = logging.getLogger(__name__)

BACKOFFS = (0.2, 0.5, *[1.0] * 10, *[2.0] * 10, *[5.0] * 20)
"""Seconds between two attempts at a request. The attempts last two minutes in all, because an API server that restarts
answers 403, 404 and 503 for some seconds. After the last attempt the error ends the process, and its restart costs only
lists."""
NOT_SERVED_TRIES = 12
"""Number of attempts to list or watch a kind that is not served. After these attempts, which take about ten seconds, the
CRD of the kind is considered deleted."""
PAGE = 500
"""Number of objects per page of a list."""
SILENCE = 70.0
"""Seconds after which a silent connection is closed and opened again. The API server sends a bookmark every minute if
there is a newer version, so a longer silence means that the connection is dead, or that nothing has changed."""
PAUSE = 0.1
"""Seconds between two watches, in case each watch is ended at once."""
HEALTHY_AFTER = 60.0
"""Seconds after which a watch is considered healthy. A failure after this time counts as a new failure."""


class _Again(OmeError):
    """Error after which a kind is listed again from the beginning; the message states why."""


class Informer:
    """Watches its kinds until it is cancelled or raises CannotWatch."""

    def __init__(
        self,
        kinds: Sequence[WatchedKind],
        sink: Sink,
        *,
        session: aiohttp.ClientSession,
        server: str,
        server_timeout: int,
        page: int = PAGE,
        silence: float = SILENCE,
    ) -> None:
        self._kinds, self._sink, self._session, self._server = kinds, sink, session, server
        self._page = page
        self._list_timeout = aiohttp.ClientTimeout(total=30.0, sock_connect=5.0)
        self._watch_timeout = aiohttp.ClientTimeout(total=server_timeout + 30.0, sock_connect=5.0, sock_read=silence)
        self._watch_query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(server_timeout)}
        self._unlisted = {each.kind for each in kinds}
        self.complete = asyncio.Event()
        """Set when a complete list of each kind has been delivered to the sink."""
        if not kinds:
            self.complete.set()
        self.last_event: dict[str, float] = {}
        """Maps a kind to the monotonic time of the last sign of life of its watch."""
        self.events: Counter[str] = Counter()
        """Kind -> number of received events."""
        self.unread: Counter[str] = Counter()
        """Kind -> number of objects and events that could not be parsed."""
        self._unread_at: dict[str, float] = {}

    async def run(self) -> None:
        """List and watch all kinds, forever."""
        try:
            async with asyncio.TaskGroup() as group:
                for watched in self._kinds:
                    group.create_task(self._watch(watched), name=f"watch {watched.kind}")
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _watch(self, watched: WatchedKind) -> NoReturn:
        again, pauses = False, iter(BACKOFFS)
        while True:
            began = time.monotonic()
            try:
                version = await self._list(watched)
                self._listed(watched.kind, again)
                while True:
                    version = await self._follow(watched, version)
                    await asyncio.sleep(PAUSE)
            except _Again as reason:
                logger.info("listing %s again: %s", watched.plural, reason)
                if time.monotonic() - began > HEALTHY_AFTER:
                    pauses = iter(BACKOFFS)
                pause = next(pauses, None)
                if pause is None:
                    raise CannotWatch(f"cannot watch {watched.plural}: {reason}") from None
            except errors.Unauthorized as error:  # without a limit: the renewal of a token may take long
                logger.warning("cannot watch %s: %s", watched.plural, error)
                pause = 1.0
            again = True
            await asyncio.sleep(pause)

    # --- a list -----------------------------------------------------------------------------------------------------

    async def _list(self, watched: WatchedKind) -> str:
        """Deliver all pages of a list, and return the resourceVersion of the list."""
        size = self._page
        query = {"limit": str(size)}
        while True:
            response = await self._open(watched, query, self._list_timeout)
            longest = bounded.PAGE_BYTES if size > 1 else sys.maxsize
            try:
                async with response:
                    page = await bounded.content(response.content.iter_any(), longest)
                if page is None:
                    size = bounded.smaller_page(size)
                    query["limit"] = str(size)
                    continue
                metadata = await self._deliver_page(watched, page)
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError, TypeError, KeyError) as error:
                raise _Again(f"a page of the list is incomplete or unreadable ({errors.without_answer(error)})") from error
            if not metadata.get("continue"):
                return str(metadata.get("resourceVersion") or "")
            query["continue"] = metadata["continue"]

    async def _deliver_page(self, watched: WatchedKind, page: bytes) -> dict[str, Any]:
        """Deliver each object of a page as soon as it is decoded, while other tasks run. Return the metadata of the page.

        If a page turns out to be broken, some of its objects have already been delivered; the list begins again.
        """
        found: dict[str, Any] = {}
        delivered = 0
        try:
            for name, value in members(page, watched.decoders.item):
                if name is ITEM:
                    self._deliver_item(watched, found.get("apiVersion"), value)
                    delivered += 1
                    await PACER.yield_if_due()
                else:
                    found[name] = value
        except RecursionError:
            found = decode_to_depth(page)
            for item in (found.get("items") or ())[delivered:]:
                self._deliver_item(watched, found.get("apiVersion"), item)
        self.last_event[watched.kind] = time.monotonic()
        metadata: dict[str, Any] = found["metadata"]
        return metadata

    def _deliver_item(self, watched: WatchedKind, api_version: str | None, item: Any) -> None:
        """Deliver an object of a list. Unlike an object of an event, it has no apiVersion, which is taken from the list."""
        self.events[watched.kind] += 1
        if not isinstance(item, dict):
            self._cannot_read(watched, "an item of its list is not an object")
            return
        if api_version:
            item.setdefault("apiVersion", api_version)
        self._sink.handle_object(watched.kind, item)

    def _listed(self, kind: str, again: bool) -> None:
        if again:
            self._sink.handle_relist(kind)
        self._unlisted.discard(kind)
        if not self._unlisted:
            self.complete.set()

    # --- a watch ----------------------------------------------------------------------------------------------------

    async def _follow(self, watched: WatchedKind, version: str) -> str:
        """Deliver the events of one watch that begins at this version, until it ends. Return the last delivered version."""
        response = await self._open(watched, {**self._watch_query, "resourceVersion": version}, self._watch_timeout)
        try:
            async with response:
                async for line in lines(response.content):
                    version = self._deliver_event(watched, line) or version
                    await PACER.yield_if_due()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            logger.debug("the watch of %s ended: %s", watched.plural, errors.without_answer(error))
        return version

    def _deliver_event(self, watched: WatchedKind, line: bytes) -> str:
        """Deliver an event, and return its version."""
        try:
            event = decode_to_depth(line, watched.decoders.event)
            what, body = event["type"], event["object"]
            version = (body.get("metadata") or {}).get("resourceVersion") or ""
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            return self._skip(watched, f"its watch delivered an unreadable event ({errors.without_answer(error)})")
        self.last_event[watched.kind] = time.monotonic()
        if what == "ERROR":
            raise _Again(str(body.get("message") or f"its watch ended with an error ({body.get('code')})"))
        if what == "BOOKMARK":
            return str(version)
        self.events[watched.kind] += 1
        if what == "DELETED":
            self._sink.handle_deletion(watched.kind, body)
        elif what in ("ADDED", "MODIFIED"):
            self._sink.handle_object(watched.kind, body)
        else:
            logger.warning("the watch of %s delivered an event of an unknown type: %s", watched.plural, what)
        return str(version)

    def _skip(self, watched: WatchedKind, reason: str) -> str:
        """Skip an unreadable event, which contains no version. Its content is lost, so the kind is listed again, unless
        it was listed for this reason within the last minute.
        """
        self._cannot_read(watched, reason)
        before, now = self._unread_at.get(watched.kind, -HEALTHY_AFTER), time.monotonic()
        if now - before >= HEALTHY_AFTER:
            self._unread_at[watched.kind] = now
            raise _Again(reason)
        return ""

    def _cannot_read(self, watched: WatchedKind, reason: str) -> None:
        """Count an unreadable object or event, and log the first unreadable object of each kind."""
        self.unread[watched.kind] += 1
        if self.unread[watched.kind] == 1:
            logger.warning(
                ("watching %s: %s; ome_watch_unread_total counts further unreadable items, which are not logged"),
                watched.plural,
                reason,
            )

    # --- a request --------------------------------------------------------------------------------------------------

    async def _open(
        self, watched: WatchedKind, query: dict[str, str], limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """Return a response with status 200. The request is repeated after a temporary error. Other errors raise _Again,
        Unauthorized or CannotWatch.
        """
        selector = {"labelSelector": watched.selector} if watched.selector else {}
        url, pauses = self._server + watched.path, iter(BACKOFFS)
        for tries in itertools.count(1):
            try:
                response = await self._session.get(url, params=query | selector, timeout=limits)
                if response.status == 200:
                    return response
                error = await _refusal(response)
            except (aiohttp.ClientError, TimeoutError, OSError) as cut:
                error = errors.Transient(errors.without_answer(cut))
            pause = _pause(error, pauses, tries)
            if pause is None:
                raise CannotWatch(f"cannot watch {watched.plural}: {error}")
            logger.warning("cannot watch %s (again in %.1f s): %s", watched.plural, pause, error)
            await asyncio.sleep(pause)
        raise AssertionError("unreachable")


async def _refusal(response: aiohttp.ClientResponse) -> errors.KubeError:
    """Return the error for a response whose status is not 200."""
    async with response:
        text = (await response.read()).decode(errors="replace").strip()
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = text
    return errors.from_response(response.status, body, response.headers.get("Retry-After", ""))


def _pause(error: errors.KubeError, pauses: Iterator[float], tries: int) -> float | None:
    """Return the seconds until a request that failed with `error` is tried again; None after too many attempts, or if
    another attempt would not help.
    """
    if error.code == 410:
        raise _Again(str(error)) from error
    if isinstance(error, errors.Unauthorized):
        raise error
    if isinstance(error, errors.NotServed) and tries > NOT_SERVED_TRIES:
        return None
    if not isinstance(error, errors.Transient | errors.Forbidden | errors.TooMany):
        return None
    pause = next(pauses, None)
    return None if pause is None else max(pause, error.retry_after)


async def lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield the complete lines of a stream; a line that was cut off at the end is dropped. Large objects are longer than
    `readline` can read.
    """
    rest = b""
    async for chunk in content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line
