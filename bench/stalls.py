"""Measures the longest time during which the event loop of a benchmark was blocked, with its cause and location."""

import asyncio
import contextlib
import gc
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ome_operator.machinery.garbage_collection import CollectionTime
from ome_operator.machinery.watchdog import thread_stack

EVERY_S = 0.01
"""Seconds between two samples of the thread's stack."""


@dataclass(frozen=True)
class Longest:
    """CPU seconds during which the event loop was blocked, and what its thread did."""

    seconds: float = 0.0
    garbage_s: float = 0.0
    """Part of this time that Python's garbage collector took."""
    where: str = ""
    """The most frequent stack; "" if the time was too short for a sample."""


class Stopwatch:
    """Measures the CPU time of the thread that creates it, without the CPU time of the benchmark's own work."""

    def __init__(self) -> None:
        self._aside = 0.0
        self._left: float | None = None
        """CPU time of the thread at the beginning of the benchmark's own work; None while the benchmark does no work of its
        own.
        """
        self._seen: Counter[str] = Counter()
        self._toll = CollectionTime(self.now)
        self._over = threading.Event()
        self.longest = Longest()

    def now(self) -> float:
        """Return the CPU seconds of the thread, without the benchmark's own work."""
        return (time.thread_time() if self._left is None else self._left) - self._aside

    @contextlib.contextmanager
    def besides(self) -> Iterator[None]:
        """Exclude the CPU time of the `with` block, which contains work of the benchmark itself."""
        self._left = began = time.thread_time()
        try:
            yield
        finally:
            self._aside += time.thread_time() - began
            self._left = None

    async def beat(self) -> None:
        """Record the longest time for which the event loop was blocked, until cancelled."""
        gc.callbacks.append(self._toll)
        threading.Thread(target=self._look, args=(threading.get_ident(),), daemon=True).start()
        try:
            while True:
                self._seen, began, garbage = Counter(), self.now(), self._toll.seconds
                await asyncio.sleep(0.001)
                if (seconds := self.now() - began) > self.longest.seconds:
                    where = next((where for where, _ in self._seen.most_common(1)), "")
                    self.longest = Longest(seconds, self._toll.seconds - garbage, where)
        finally:
            self._over.set()
            gc.callbacks.remove(self._toll)

    def _look(self, thread: int) -> None:
        while not self._over.wait(EVERY_S):
            if self._left is None:
                self._seen[thread_stack(thread)] += 1
