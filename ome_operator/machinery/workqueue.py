"""Run a handler for dirty keys: at most one run per key and a limited number of runs at the same time, with backoff after
failures.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from ome_operator.machinery.schedule import UNLIMITED, Schedule, SharedLimits

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)


def backoff(failures: int, first: float, last: float, jitter: float) -> float:
    """Return the seconds to wait after `failures` consecutive failures. The wait doubles with each failure from `first` up
    to `last` seconds. `jitter` in [0, 1) then changes it by up to a quarter in both directions.
    """
    return min(last, first * 2.0 ** min(failures - 1, 30)) * (0.75 + 0.5 * jitter)


class WorkQueue(Generic[K]):
    """A schedule of dirty keys with a clock, and a dispatcher that runs a handler for each due key. At most `workers`
    handlers run at the same time. `first`, `last` and a result of `jitter` are passed to `backoff`; the other arguments
    are those of `Schedule`.
    """

    def __init__(
        self,
        *,
        workers: int,
        first: float,
        last: float,
        jitter: Callable[[], float],
        is_long: Callable[[K], bool] = lambda _: False,
        long_runs: float = math.inf,
        group: Callable[[K], Hashable] = lambda _: None,
        shared: SharedLimits = UNLIMITED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._schedule: Schedule[K] = Schedule(is_long, long_runs, group, shared)
        self._slots = asyncio.Semaphore(workers)
        self._first, self._last, self._jitter, self._clock = first, last, jitter, clock
        self._failures: dict[K, int] = {}
        self._changed = asyncio.Event()
        self._wakes = math.inf
        """Time until which the dispatcher sleeps unless `_changed` is set; infinity if no key has a due time."""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def due_count(self) -> int:
        """Number of keys that are due, including keys that became dirty again while they are being reconciled."""
        return self._schedule.due_count(self._clock())

    @property
    def oldest(self) -> float:
        """Seconds for which the oldest due key has waited; 0 if no key is due."""
        return self._schedule.longest_wait(self._clock())

    @property
    def busy_count(self) -> int:
        """Number of keys that are being reconciled."""
        return self._schedule.busy_count

    def add(self, key: K, after: float = 0.0, *, spaced: float = 0.0) -> None:
        """Mark a key as dirty. The key is due after `after` seconds, but not before `spaced` seconds have passed since
        its last reconciliation began.
        """
        now = self._clock()
        if self._schedule.add(key, now, after, spaced=spaced) <= max(self._wakes, now):
            self._changed.set()  # seldom true, because most keys are due at that time anyway

    def add_shared(self, key: K) -> None:
        """Mark a key as dirty because of an edit of a shared object. A key with no other reason to be dirty can wait."""
        self._schedule.add_shared(key, self._clock())
        self._changed.set()

    def retry(self, key: K, first: float | None = None, at_least: float = 0.0) -> float:
        """Schedule a key again after a failed run. The backoff begins with `first` seconds (None: the default of the queue),
        and is at least `at_least` seconds. Return the backoff in seconds.
        """
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = backoff(failures, self._first if first is None else first, self._last, self._jitter())
        delay = max(delay, at_least)
        self.add(key, delay)
        return delay

    def reset_backoff(self, key: K) -> None:
        """Reset the backoff of a key, so that the delay after its next failure is the delay after a first failure."""
        self._failures.pop(key, None)

    def forget(self, key: K) -> None:
        """Forget a key and its backoff."""
        self._failures.pop(key, None)
        self._schedule.forget(key)

    async def run(self, handle: Callable[[K], Awaitable[None]]) -> None:
        """Run the handler for dirty keys, forever; cancel the task to stop. A key whose handler raises is retried.

        The dispatcher yields to the event loop between two keys. Otherwise all runs that never wait would execute in one
        iteration of the loop, and would together delay a response that another run is waiting for.
        """
        while True:
            await self._slots.acquire()
            key = await self._next()
            began = self._clock()
            task = asyncio.create_task(self._work(key, handle))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(0)
            self._schedule.record_run(now := self._clock(), now - began)

    async def drain(self, grace: float) -> bool:
        """Wait at most `grace` seconds for the runs in progress, then cancel them. Return whether all runs ended in time."""
        if self._tasks:
            _, pending = await asyncio.wait(self._tasks, timeout=grace)
            for task in pending:
                task.cancel()
            return not pending
        return True

    async def _next(self) -> K:
        while True:
            self._changed.clear()
            now = self._clock()
            if (key := self._schedule.pop(now)) is not None:
                return key
            due = self._schedule.next_due()
            self._wakes = math.inf if due is None else due
            try:
                async with asyncio.timeout(None if due is None else max(0.0, due - now)):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _work(self, key: K, handle: Callable[[K], Awaitable[None]]) -> None:
        try:
            await handle(key)
        except Exception:
            logger.exception("the reconciliation of %s failed", key)
            self.retry(key)
        finally:
            self._schedule.finish(key)
            self._slots.release()
            self._changed.set()
