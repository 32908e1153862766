"""Python's garbage collector beside much that lives long: to walk all of it takes as long as a stall that people notice."""

import gc
import time
from collections.abc import Callable, Mapping


def patient() -> None:
    """Look seldom: bodies of events die young and without cycles; by default the collector looks every 700 objects.

    A look at the youngest costs some 3 ms, each tenth 30 ms.
    """
    gc.set_threshold(20_000, 10, 100)


def listed() -> None:
    """What is there now lives long, and is not walked again; it still goes when nobody refers to it. Only what is young is
    collected before: a look at all of 5,000 nodes and 1,820 services holds the loop for 0.3 s, and a look at less has found
    3 to 7 objects.
    """
    gc.collect(1)
    gc.freeze()


def passed() -> None:
    """Everything had a pass, and what passes remember lives long, too. Nothing is collected before, which would take as long
    as what this is to spare; the little garbage that goes in circles now stays. So it is for once.
    """
    gc.freeze()


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
