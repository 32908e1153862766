"""Which key is due when: a level-triggered schedule, as a plain data structure that is told the time.

A key is dirty at most once, however many events name it, and the earliest wish wins. A key that is being worked on is
not handed out again before it is done: whatever happens meanwhile becomes one more run afterwards.

Runs that are expected to be long (make everything) go behind the others (tell what changed), and only so many at once: with
a hundred new keys, what is ready would otherwise be told only after the last of them was made.
"""

import heapq
import math
from collections.abc import Callable, Hashable, Iterator
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Schedule(Generic[K]):
    """Keys with due times; no clock, no tasks. At most `long_runs` keys are busy that `is_long` was true of."""

    def __init__(
        self, spacing: float = 0.0, is_long: Callable[[K], bool] = lambda _: False, long_runs: float = math.inf
    ) -> None:
        self._spacing, self._is_long, self._long_runs = spacing, is_long, long_runs
        self._due: dict[K, float] = {}
        self._short: list[tuple[float, int, K]] = []
        self._long: list[tuple[float, int, K]] = []
        self._order = count()
        self._busy: set[K] = set()
        self._busy_long: set[K] = set()
        self._started: dict[K, float] = {}

    def __len__(self) -> int:
        return len(self._due)

    @property
    def busy(self) -> int:
        """How many keys are being worked on."""
        return len(self._busy)

    def ready(self, now: float) -> int:
        """How many keys wait although they are due."""
        return sum(1 for due in self._due.values() if due <= now)

    def add(self, key: K, now: float, after: float = 0.0, *, spaced: bool = False) -> None:
        """The key is dirty, to be worked on after so many seconds; `spaced`: not too soon after its last run."""
        due = now + after
        if spaced and (started := self._started.get(key)) is not None:
            due = max(due, started + self._spacing)
        if due >= self._due.get(key, float("inf")):
            return
        self._due[key] = due
        if key not in self._busy:
            self._push(key, due)

    def pop(self, now: float) -> K | None:
        """The key that is due longest, of the short runs or else of the long ones; it is busy until `done`."""
        for heap in self._open():
            due = self._head(heap)
            if due is not None and due <= now:
                _, _, key = heapq.heappop(heap)
                del self._due[key]
                self._busy.add(key)
                if heap is self._long:
                    self._busy_long.add(key)
                self._started[key] = now
                return key
        return None

    def next_due(self) -> float | None:
        """When `pop` may give something; None: not before another `add` or `done`."""
        return min((due for heap in self._open() if (due := self._head(heap)) is not None), default=None)

    def _open(self) -> Iterator[list[tuple[float, int, K]]]:
        """The heaps that may give a key now, in the order in which they are asked."""
        yield self._short
        if len(self._busy_long) < self._long_runs:
            yield self._long

    def _push(self, key: K, due: float) -> None:
        heap = self._long if self._is_long(key) else self._short
        heapq.heappush(heap, (due, next(self._order), key))

    def _head(self, heap: list[tuple[float, int, K]]) -> float | None:
        """Due time of the first entry that no earlier wish has overtaken."""
        while heap:
            due, _, key = heap[0]
            if key not in self._busy and self._due.get(key) == due:
                return due
            heapq.heappop(heap)
        return None

    def done(self, key: K) -> None:
        """The run is over; wishes that came meanwhile count now."""
        self._busy.discard(key)
        self._busy_long.discard(key)
        if key in self._due:
            self._push(key, self._due[key])

    def forget(self, key: K) -> None:
        """Nothing is known of the key any more; a run in progress ends as usual."""
        self._due.pop(key, None)
        self._started.pop(key, None)
