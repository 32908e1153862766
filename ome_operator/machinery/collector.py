"""Python's garbage collector beside much that lives long: to walk all of it takes as long as a stall that people notice.

The collector begins when there are so many objects more than before. Where each new one takes the place of an old one, as
facts of nodes do, there are never more: the youngest become all there are, and the walk that comes at last took 0.4 to 0.9 s
with 5,000 nodes and 1,820 services. So the youngest are walked by the clock, too.
"""

import gc
import itertools
import math
import sys
import time
from collections.abc import Awaitable, Callable, Mapping

OFTEN = 0.25
"""Seconds between two walks over the youngest, which take some milliseconds."""
YOUNG = 8
"""Each so many also those that have survived one."""
OLD = 240
"""Each so many those that are left live long."""
QUIET = 20
"""So many turns in which nobody waits."""
MORE = 1.1
"""Where there is so many times as much as there was, some of what lives long may be garbage that goes in circles."""


def patient() -> None:
    """Look seldom: bodies of events die young and without cycles; by default the collector looks every 700 objects."""
    gc.set_threshold(20_000, 10, 100)


def listed() -> None:
    """What is there now lives long, and is not walked again; it still goes when nobody refers to it. Only what is young is
    collected before: a look at all of 5,000 nodes and 1,820 services holds the loop for 0.3 s, and a look at less has found
    3 to 7 objects.
    """
    gc.collect(1)
    gc.freeze()


async def tend(idle: Callable[[], bool], sleep: Callable[[float], Awaitable[None]] | None = None) -> None:
    """Walk the young in time, for ever; and all there is, where it is more than before and nobody has waited for a while."""
    import asyncio  # here: every command loads this module, and many have no event loop

    pause = sleep or asyncio.sleep
    known, quiet = math.inf, 0
    for turn in itertools.count(1):
        await pause(OFTEN)
        gc.collect(1 if turn % YOUNG == 0 else 0)
        if turn % OLD == 0:
            gc.freeze()
        quiet = quiet + 1 if idle() else 0
        if quiet == QUIET:
            quiet = 0
            if sys.getallocatedblocks() > MORE * known:
                gc.unfreeze()
                gc.collect()
                gc.freeze()
                known = sys.getallocatedblocks()
            known = min(known, sys.getallocatedblocks())


class Toll:
    """Seconds that the collector took so far, in which no thread of the process ran. Add it to `gc.callbacks`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._began = clock, clock()
        self.seconds = 0.0

    def __call__(self, phase: str, _: Mapping[str, int]) -> None:
        """A collection starts or stops."""
        if phase == "start":
            self._began = self._clock()
        else:
            self.seconds += self._clock() - self._began
