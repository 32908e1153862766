"""The longest time for which the event loop of a benchmark was not free: how long, of what, and where."""

import asyncio
import contextlib
import gc
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ome_operator.machinery.collector import Toll
from ome_operator.machinery.watchdog import stack

EVERY_S = 0.01
"""A look at what the thread does."""


@dataclass(frozen=True)
class Longest:
    """CPU seconds of the loop's thread, and what it did."""

    seconds: float = 0.0
    garbage_s: float = 0.0
    """Of it, for which Python's garbage collector ran."""
    where: str = ""
    """The stack that was seen most often; "" where it was too short to be seen."""


class Stopwatch:
    """CPU of the thread that makes it, less what the benchmark does for itself."""

    def __init__(self) -> None:
        self._aside = 0.0
        self._left: float | None = None
        """The time of the thread when the benchmark began with work of its own, which it is at now."""
        self._seen: Counter[str] = Counter()
        self._toll = Toll(self.now)
        self._over = threading.Event()
        self.longest = Longest()

    def now(self) -> float:
        """Seconds so far."""
        return (time.thread_time() if self._left is None else self._left) - self._aside

    @contextlib.contextmanager
    def besides(self) -> Iterator[None]:
        """What is no work of the operator's."""
        self._left = began = time.thread_time()
        try:
            yield
        finally:
            self._aside += time.thread_time() - began
            self._left = None

    async def beat(self) -> None:
        """Note the longest time between two moments at which the loop was free, until it is cancelled."""
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
                self._seen[stack(thread)] += 1
