"""Control Python's garbage collector in a process with many long-lived objects, where a full collection would block the
event loop noticeably.

By default, the collector starts when the number of objects has grown by a threshold. If each new object replaces an old
object, as facts about nodes do, the number never grows. The youngest generation then comes to contain all objects, and the
collection that finally starts took 0.4 to 0.9 s with 5,000 nodes and 1,820 services. Therefore young objects are also
collected at regular intervals.
"""

import atexit
import gc
import itertools
import math
import sys
import time
from collections.abc import Awaitable, Callable, Mapping

COLLECT_INTERVAL = 0.25
"""Seconds between two collections of the youngest generation; each collection takes some milliseconds."""
GENERATION_1_EVERY = 8
"""Number of intervals after which generation 1 is collected too."""
FREEZE_EVERY = 240
"""Number of intervals after which the remaining objects are moved to the permanent generation."""
IDLE_INTERVALS = 20
"""Number of consecutive idle intervals before a full collection is considered."""
GROWTH = 1.1
"""Factor by which the number of memory blocks must have grown before a full collection. A full collection is necessary at
times, because the permanent generation may contain reference cycles."""


def collect_rarely() -> None:
    """Collect less often than by default, which is after every 700 new objects. Frequent collections find nothing,
    because bodies of events are short-lived and contain no cycles.
    """
    gc.set_threshold(20_000, 10, 100)


def collect_nothing_at_exit() -> None:
    """Exempt the objects that exist at the end of the process from garbage collection. The interpreter collects all
    objects several times while it exits. This takes a tenth of the CPU time of a short command, and frees only memory that
    the kernel takes back anyway.
    """
    atexit.register(gc.freeze)


def freeze_existing() -> None:
    """Move all existing objects to the permanent generation, which is not collected. The objects are still freed when
    nothing references them.

    Before the move, only the young generations are collected. A full collection with 5,000 nodes and 1,820 services would
    block the event loop for 0.3 s, while collections of the young generations have found 3 to 7 objects.
    """
    gc.collect(1)
    gc.freeze()


async def collect_periodically(idle: Callable[[], bool], sleep: Callable[[float], Awaitable[None]] | None = None) -> None:
    """Collect young objects at regular intervals, forever. Collect all objects when the number of memory blocks has grown
    and `idle` has returned true for a while.
    """
    import asyncio  # imported here, because every command loads this module and many have no event loop

    pause = sleep or asyncio.sleep
    known, quiet = math.inf, 0
    for turn in itertools.count(1):
        await pause(COLLECT_INTERVAL)
        gc.collect(1 if turn % GENERATION_1_EVERY == 0 else 0)
        if turn % FREEZE_EVERY == 0:
            gc.freeze()
        quiet = quiet + 1 if idle() else 0
        if quiet == IDLE_INTERVALS:
            quiet = 0
            if sys.getallocatedblocks() > GROWTH * known:
                gc.unfreeze()
                gc.collect()
                gc.freeze()
                known = sys.getallocatedblocks()
            known = min(known, sys.getallocatedblocks())


class CollectionTime:
    """The total time in seconds that the collector has taken, during which no thread of the process runs. Add the object
    to `gc.callbacks`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._began = clock, clock()
        self.seconds = 0.0

    def __call__(self, phase: str, _: Mapping[str, int]) -> None:
        """Record that a collection starts or stops."""
        if phase == "start":
            self._began = self._clock()
        else:
            self.seconds += self._clock() - self._began
