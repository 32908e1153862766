"""Finds objects that a watch forgot to remove: it compares what is stored with a consistent list.

A watch that is cut, while objects are deleted, and then starts from a new list never tells of those deletions: a list
says what is there, not what is not. Only UIDs that were stored before the list began can be missed by it for no other
reason than that they are gone.
"""

import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

from ome_operator.machinery.workqueue import WorkQueue

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)


class Audit(Generic[K]):
    """Audits of several kinds, spread evenly over an interval, and sooner after a relist."""

    def __init__(
        self,
        kinds: Sequence[K],
        *,
        known: Callable[[K], set[str]],
        listed: Callable[[K], Awaitable[set[str]]],
        gone: Callable[[K, str], None],
        queue: WorkQueue[K],
        interval: float,
        debounce: float,
    ) -> None:
        self._kinds, self._known, self._listed, self._gone = kinds, known, listed, gone
        self._queue, self._interval, self._debounce = queue, interval, debounce

    def relisted(self, kind: K) -> None:
        """A watch of this kind started anew."""
        self._queue.add(kind, self._debounce)

    def add(self, kinds: Sequence[K]) -> None:
        """Audit these, too, spread evenly over the interval."""
        for position, kind in enumerate(kinds, start=1):
            self._queue.add(kind, self._interval * position / len(kinds))

    async def run(self) -> None:
        """Audit for ever."""
        self.add(self._kinds)
        await self._queue.run(self.check)

    async def check(self, kind: K) -> None:
        """One comparison; a list that fails is tried again after a backoff."""
        before = self._known(kind)
        if before:
            try:
                lost = before - await self._listed(kind)
            except Exception as error:
                delay = self._queue.retry(kind)
                logger.warning("cannot audit %s (again in %.0f s): %s", kind, delay, error)
                return
            for uid in lost:
                self._gone(kind, uid)
            if lost:
                logger.info("audit of %s: %d objects are gone and no event had said so", kind, len(lost))
        self._queue.succeeded(kind)
        self._queue.add(kind, self._interval)
