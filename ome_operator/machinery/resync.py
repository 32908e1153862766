"""Find deleted objects whose deletion a watch did not report, by comparing the stored objects with a consistent list.

If a watch is interrupted while objects are deleted, and then restarts from a new list, it never reports these deletions,
because a list contains only existing objects. An object that was stored before the list began and that is missing in the
list was deleted; no other reason is possible.
"""

import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

from ome_operator.machinery.workqueue import WorkQueue

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)


class Resync(Generic[K]):
    """Compares the stored objects of several kinds with the API server, one kind after another, so that each kind is
    compared once per interval. After the watch of a kind has restarted from a list, the kind is compared sooner. `known`
    returns the UIDs of the stored objects of a kind, and `listed` the UIDs in a consistent list. `gone` is called with each
    object that is missing in the list.
    """

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

    def enqueue_kind(self, kind: K) -> None:
        """Schedule an early resync of a kind, because its watch restarted from a list."""
        self._queue.add(kind, self._debounce)

    def add(self, kinds: Sequence[K]) -> None:
        """Resync additional kinds, spread evenly over the interval."""
        for position, kind in enumerate(kinds, start=1):
            self._queue.add(kind, self._interval * position / len(kinds))

    async def run(self) -> None:
        """Resync all kinds periodically, forever."""
        self.add(self._kinds)
        await self._queue.run(self.check)

    async def check(self, kind: K) -> None:
        """Compare the stored objects of a kind with a list once. If the list fails, the resync is retried after a
        backoff.
        """
        before = self._known(kind)
        if before:
            try:
                lost = before - await self._listed(kind)
            except Exception as error:
                delay = self._queue.retry(kind)
                logger.warning("cannot list %s for a resync (retry in %.0f s): %s", kind, delay, error)
                return
            for uid in lost:
                self._gone(kind, uid)
            if lost:
                logger.info("resync of %s: %d objects were deleted without a watch event", kind, len(lost))
        self._queue.reset_backoff(kind)
        self._queue.add(kind, self._interval)
