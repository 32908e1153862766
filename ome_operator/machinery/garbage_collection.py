"""Control Python's garbage collector in a process with many long-lived objects, where a full collection would block the
event loop noticeably.

By default, a collection starts when the number of objects has grown by a threshold. If each new object replaces an old
object, as facts about nodes do, the number never grows. The youngest generation then comes to contain all objects. The
collection that finally started took 0.4 to 0.9 s with 5,000 nodes and 1,820 services. Therefore young objects are also
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
"""Number of consecutive intervals in which the process must be idle before a full collection is considered."""
GROWTH = 1.1
"""A full collection takes place only if the number of memory blocks is larger by this factor than its lowest value since
the last full collection. A full collection is sometimes necessary, because the permanent generation may contain
reference cycles."""


def collect_rarely() -> None:
    """Set higher thresholds than the default, which starts a collection after every 700 new objects. Frequent collections
    find nothing, because the bodies of watch events are short-lived and contain no cycles.
    """
    gc.set_threshold(20_000, 10, 100)


def collect_nothing_at_exit() -> None:
    """Exempt the objects that exist at the end of the process from the collections that the interpreter performs while it
    exits. These collections take a tenth of the CPU time of a short command, and free only memory that the kernel takes back
    anyway.
    """
    atexit.register(gc.freeze)


def freeze_existing() -> None:
    """Move all existing objects to the permanent generation, which is not collected. The objects are still freed when
    nothing references them.

    Before the move, only the young generations are collected, in which 3 to 7 objects were found. A full collection with
    5,000 nodes and 1,820 services would block the event loop for 0.3 s.
    """
    gc.collect(1)
    gc.freeze()


async def collect_periodically(idle: Callable[[], bool], sleep: Callable[[float], Awaitable[None]] | None = None) -> None:
    """Collect young objects at regular intervals, forever. Collect all objects if `idle` has returned true in
    `IDLE_INTERVALS` consecutive intervals and the number of memory blocks has grown by the factor `GROWTH`.
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
    """Adds up the seconds that garbage collections take, during which no thread of the process runs. Add an instance to
    `gc.callbacks`, so that it is called at the start and at the end of each collection.
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
