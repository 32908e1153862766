"""Runs a handler for dirty keys: one run per key at a time, so many at once, with backoff where it fails."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from ome_operator.machinery.schedule import EVERYTHING, Schedule, Shared

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)


def backoff(failures: int, first: float, last: float, jitter: float) -> float:
    """Seconds to wait after the n-th failure in a row; `jitter` in [0, 1) spreads it by a quarter either way."""
    return min(last, first * 2.0 ** min(failures - 1, 30)) * (0.75 + 0.5 * jitter)


class WorkQueue(Generic[K]):
    """A schedule with a clock and a dispatcher."""

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
        shared: Shared = EVERYTHING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._schedule: Schedule[K] = Schedule(is_long, long_runs, group, shared)
        self._slots = asyncio.Semaphore(workers)
        self._first, self._last, self._jitter, self._clock = first, last, jitter, clock
        self._failures: dict[K, int] = {}
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def depth(self) -> int:
        """How many keys wait although they are due."""
        return self._schedule.ready(self._clock())

    @property
    def oldest(self) -> float:
        """Seconds for which the key that waits longest has been due; 0 where none waits."""
        return self._schedule.late(self._clock())

    @property
    def busy(self) -> int:
        """How many keys are being worked on."""
        return self._schedule.busy

    def add(self, key: K, after: float = 0.0, *, spaced: float = 0.0) -> None:
        """The key is dirty; see `Schedule.add`."""
        self._schedule.add(key, self._clock(), after, spaced=spaced)
        self._changed.set()

    def add_shared(self, key: K) -> None:
        """The key is dirty by an edit that others share: it can wait."""
        self._schedule.add_shared(key, self._clock())
        self._changed.set()

    def retry(self, key: K, first: float | None = None, at_least: float = 0.0) -> float:
        """The run failed: the key is dirty again after a backoff, which is returned."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = backoff(failures, self._first if first is None else first, self._last, self._jitter())
        delay = max(delay, at_least)
        self.add(key, delay)
        return delay

    def succeeded(self, key: K) -> None:
        """The next failure is the first one."""
        self._failures.pop(key, None)

    def forget(self, key: K) -> None:
        """The key will not come back soon."""
        self._failures.pop(key, None)
        self._schedule.forget(key)

    async def run(self, handle: Callable[[K], Awaitable[None]]) -> None:
        """Hand out keys for ever; cancel it to take no more. A handler that raises is retried.

        The loop has a turn between two keys. Runs that wait for nothing would fill a turn together otherwise, and
        every answer that another run waits for would cost it all of them.
        """
        while True:
            await self._slots.acquire()
            key = await self._next()
            began = self._clock()
            task = asyncio.create_task(self._work(key, handle))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(0)
            self._schedule.spent(now := self._clock(), now - began)

    async def drain(self, grace: float) -> bool:
        """Wait for the runs in progress, at most so long; whether all ended."""
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
            try:
                async with asyncio.timeout(None if due is None else max(0.0, due - now)):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _work(self, key: K, handle: Callable[[K], Awaitable[None]]) -> None:
        try:
            await handle(key)
        except Exception:
            logger.exception("a pass failed: %s", key)
            self.retry(key)
        finally:
            self._schedule.done(key)
            self._slots.release()
            self._changed.set()
