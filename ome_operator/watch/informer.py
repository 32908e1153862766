"""Lists and watches of our own, for kinds with many objects and many events, and for the agent.

Each kind is listed page by page and watched from the moment of its list. A watch that ends, is cut, or falls silent is
opened again at the last version that it told. A list begins again when that version is too old (410), when the list itself
was cut, when the token is refused (the session has another token by then), or when the watch tells what nobody can read.
What cannot be read a second time within a minute costs its own object alone: lists would come without end.
"""

import asyncio
import itertools
import json
import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import aiohttp

from ome_operator.errors import OmeError
from ome_operator.kube import errors
from ome_operator.machinery.pace import PACE
from ome_operator.util.json_limits import decoded
from ome_operator.util.json_pages import ITEM, members
from ome_operator.watch.lines import lines
from ome_operator.watch.sink import CannotWatch, Sink, Watched

logger = logging.getLogger(__name__)

BACKOFFS = (0.2, 0.5, *[1.0] * 10, *[2.0] * 10, *[5.0] * 20)
"""Seconds between two tries of a request: two minutes in all, for an API server that restarts answers 403, 404 and 503 for
some seconds. After that the error ends the process, which is restarted and costs lists only."""
NOT_SERVED_TRIES = 12
"""A kind that is not served for ten seconds is gone: its CRD was deleted."""
PAGE = 500
"""Objects of a page."""
SILENCE = 70.0
"""Bookmarks come every minute where there is a newer version; a connection that is silent for longer is dead, or has nothing
to tell, and costs a request."""
PAUSE = 0.1
"""Seconds between two watches, for the case that something ends each at once."""
WELL = 60.0
"""A watch that has run for so many seconds was well: what fails after it is a new failure."""


class _Again(OmeError):
    """A list has to begin again; says why."""


class Informer:
    """Watches its kinds until it is cancelled, or ends with CannotWatch."""

    def __init__(
        self,
        kinds: Sequence[Watched],
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
        """Set when the sink was told of a whole list of each kind."""
        if not kinds:
            self.complete.set()
        self.last_event: dict[str, float] = {}
        """Kind -> monotonic time of the last sign of life of its watch."""
        self.events: Counter[str] = Counter()
        """Kind -> how many events came."""
        self.unread: Counter[str] = Counter()
        """Kind -> how many objects and events nobody could read."""
        self._unread_at: dict[str, float] = {}

    async def run(self) -> None:
        """Watch for ever."""
        try:
            async with asyncio.TaskGroup() as group:
                for watched in self._kinds:
                    group.create_task(self._watch(watched), name=f"watch {watched.kind}")
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _watch(self, watched: Watched) -> NoReturn:
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
                if time.monotonic() - began > WELL:
                    pauses = iter(BACKOFFS)
                pause = next(pauses, None)
                if pause is None:
                    raise CannotWatch(f"cannot watch {watched.plural}: {reason}") from None
            except errors.Unauthorized as error:  # for as long as it takes: whoever renews tokens may be slow
                logger.warning("cannot watch %s: %s", watched.plural, error)
                pause = 1.0
            again = True
            await asyncio.sleep(pause)

    # --- a list -----------------------------------------------------------------------------------------------------

    async def _list(self, watched: Watched) -> str:
        """Tell all pages of a list; the version of the moment that they show."""
        query = {"limit": str(self._page)}
        while True:
            response = await self._open(watched, query, self._list_timeout)
            try:
                async with response:
                    page = await response.read()
                metadata = await self._tell_page(watched, page)
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError, TypeError, KeyError) as error:
                raise _Again(f"a page of the list did not come whole ({_message(error)})") from error
            if not metadata.get("continue"):
                return str(metadata.get("resourceVersion") or "")
            query["continue"] = metadata["continue"]

    async def _tell_page(self, watched: Watched, page: bytes) -> dict[str, Any]:
        """Tell each object of a page as soon as it is decoded, while the loop goes on; the page's metadata.

        Some objects of a page that proves broken are told: its list begins again.
        """
        found: dict[str, Any] = {}
        told = 0
        try:
            for name, value in members(page):
                if name is ITEM:
                    self._tell_item(watched, found.get("apiVersion"), value)
                    told += 1
                    await PACE.breathe()
                else:
                    found[name] = value
        except RecursionError:
            found = decoded(page)
            for item in (found.get("items") or ())[told:]:
                self._tell_item(watched, found.get("apiVersion"), item)
        self.last_event[watched.kind] = time.monotonic()
        metadata: dict[str, Any] = found["metadata"]
        return metadata

    def _tell_item(self, watched: Watched, api_version: str | None, item: Any) -> None:
        """Objects of a list lack what events have: their version of the API, which stands before them."""
        self.events[watched.kind] += 1
        if not isinstance(item, dict):
            self._cannot_read(watched, "an item of its list is no object")
            return
        if api_version:
            item.setdefault("apiVersion", api_version)
        self._sink.seen(watched.kind, item)

    def _listed(self, kind: str, again: bool) -> None:
        if again:
            self._sink.relisted(kind)
        self._unlisted.discard(kind)
        if not self._unlisted:
            self.complete.set()

    # --- a watch ----------------------------------------------------------------------------------------------------

    async def _follow(self, watched: Watched, version: str) -> str:
        """Tell one watch from this version on until it ends; the last version that it told."""
        response = await self._open(watched, {**self._watch_query, "resourceVersion": version}, self._watch_timeout)
        try:
            async with response:
                async for line in lines(response.content):
                    version = self._pass_on(watched, line) or version
                    await PACE.breathe()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            logger.debug("the watch of %s ended: %s", watched.plural, _message(error))
        return version

    def _pass_on(self, watched: Watched, line: bytes) -> str:
        """Tell one event; its version."""
        try:
            event = decoded(line)
            what, body = event["type"], event["object"]
            version = (body.get("metadata") or {}).get("resourceVersion") or ""
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            return self._skip(watched, f"its watch told what nobody can read ({_message(error)})")
        self.last_event[watched.kind] = time.monotonic()
        if what == "ERROR":
            raise _Again(str(body.get("message") or f"its watch ended with an error ({body.get('code')})"))
        if what == "BOOKMARK":
            return str(version)
        self.events[watched.kind] += 1
        if what == "DELETED":
            self._sink.deleted(watched.kind, body)
        elif what in ("ADDED", "MODIFIED"):
            self._sink.seen(watched.kind, body)
        else:
            logger.warning("the watch of %s told of an event that nobody knows: %s", watched.plural, what)
        return str(version)

    def _skip(self, watched: Watched, why: str) -> str:
        """Leave an event out, which has no version. Who knows what it told: so a list begins, if none did lately."""
        self._cannot_read(watched, why)
        before, now = self._unread_at.get(watched.kind, -WELL), time.monotonic()
        if now - before >= WELL:
            self._unread_at[watched.kind] = now
            raise _Again(why)
        return ""

    def _cannot_read(self, watched: Watched, why: str) -> None:
        """Count it, and say it for the first of a kind."""
        self.unread[watched.kind] += 1
        if self.unread[watched.kind] == 1:
            logger.warning("watching %s: %s; further ones are counted as ome_watch_unread_total", watched.plural, why)

    # --- a request --------------------------------------------------------------------------------------------------

    async def _open(self, watched: Watched, query: dict[str, str], limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        """An answer 200. What may be better soon is tried again; else it raises _Again, Unauthorized or CannotWatch."""
        selector = {"labelSelector": watched.selector} if watched.selector else {}
        url, pauses = self._server + watched.path, iter(BACKOFFS)
        for tries in itertools.count(1):
            try:
                response = await self._session.get(url, params=query | selector, timeout=limits)
                if response.status == 200:
                    return response
                error = await _refusal(response)
            except (aiohttp.ClientError, TimeoutError, OSError) as cut:
                error = errors.Transient(_message(cut))
            pause = _pause(error, pauses, tries)
            if pause is None:
                raise CannotWatch(f"cannot watch {watched.plural}: {error}")
            logger.warning("cannot watch %s (again in %.1f s): %s", watched.plural, pause, error)
            await asyncio.sleep(pause)
        raise AssertionError("unreachable")


async def _refusal(response: aiohttp.ClientResponse) -> errors.KubeError:
    """The error that an answer other than 200 is."""
    async with response:
        text = (await response.read()).decode(errors="replace").strip()
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        told = text
    return errors.from_response(response.status, told, response.headers.get("Retry-After", ""))


def _pause(error: errors.KubeError, pauses: Iterator[float], tries: int) -> float | None:
    """Seconds until a request is tried again; None when that has lasted too long, or does not help."""
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


def _message(error: BaseException) -> str:
    return str(error) or type(error).__name__
