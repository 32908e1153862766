"""Sees from a thread of its own whether the event loop answers, and what it does when it does not (decisions 31).

It asks the loop twenty times a second while the loop's thread has work, and each second while that idles. What it measures
begins with a question, so a stall may have been a little longer: by up to a second where it waited and computed nothing.
"""

import asyncio
import gc
import logging
import math
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from ome_operator.machinery.collector import Toll

logger = logging.getLogger(__name__)

NAP = 0.05
"""Seconds between two questions, and between two looks at a loop that has not answered yet."""
IDLE = 0.002
"""Seconds of the CPU in a nap that are no work."""
SELDOM = 10
"""Longer naps between two questions to a loop that idles: to answer costs it more than the question costs us."""
LONG = 0.1
"""Seconds that are a stall."""
WORSE = 1.0
"""Seconds that are a warning."""
TELL = 10.0
FRAMES = 6
"""Of a stack, the innermost."""
LITTLE = 0.01
"""Seconds of garbage collection that explain nothing."""


class Stall(NamedTuple):
    """The loop has not answered for a while."""

    seconds: float
    cpu: float
    """Seconds of the CPU that the loop's thread had meanwhile: next to none, and the machine was the reason."""
    where: str
    """What ran most of the time."""
    garbage: float = 0.0
    """Seconds of garbage collection, which begins wherever something is made."""

    def __str__(self) -> str:
        garbage = f", {self.garbage:.2f} s of garbage collection" if self.garbage >= LITTLE else ""
        return f"{self.seconds:.2f} s ({self.cpu:.2f} s of CPU{garbage}) in {self.where}"


class Complaints:
    """Says stalls in the log: with what ran, and at most every ten seconds where none is much longer than what was said."""

    def __init__(self, count: Callable[[float], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._count, self._clock = count, clock
        self._said, self._said_at = 0.0, -math.inf
        self._unsaid: list[Stall] = []

    def __call__(self, stall: Stall) -> None:
        """The loop answers again."""
        self._count(stall.seconds)
        self._unsaid.append(stall)
        if self._clock() - self._said_at < TELL and stall.seconds < 2 * self._said:
            return
        longest, others = max(self._unsaid), len(self._unsaid) - 1
        level = logging.WARNING if longest.seconds >= WORSE else logging.INFO
        logger.log(level, "the event loop stood still for %s%s", longest, f", and {others} times for less" if others else "")
        self._said, self._said_at, self._unsaid = longest.seconds, self._clock(), []


class Watchdog:
    """`look` again and again; `ask` has the loop call what it is given, `stack` says what the loop's thread does, and `lag`
    is told how long each answer took.
    """

    def __init__(
        self,
        ask: Callable[[Callable[[], object]], object],
        stack: Callable[[], str],
        cpu: Callable[[], float],
        *,
        stalled: Callable[[Stall], None],
        dead: Callable[[Stall], None],
        patience: float,
        lag: Callable[[float], object] = lambda _: None,
        garbage: Callable[[], float] = lambda: 0.0,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        self._ask, self._stack, self._cpu, self._clock, self._wait = ask, stack, cpu, clock, wait
        self._stalled, self._dead, self._patience, self._lag, self._garbage = stalled, dead, patience, lag, garbage
        self.silent = 0.0
        """Seconds for which the loop has not answered, as far as this thread ran itself: a process that was frozen proves
        nothing."""

    def look(self) -> None:
        """Ask, and return when the loop has answered. `dead` is told once, when that lasts longer than the patience."""
        answered, asked, cpu, garbage = threading.Event(), self._clock(), self._cpu(), self._garbage()
        seen: Counter[str] = Counter()
        at, told = asked, False

        def stall() -> Stall:
            where = seen.most_common(1)[0][0] if seen else "nothing that was seen"
            return Stall(self._clock() - asked, self._cpu() - cpu, where, self._garbage() - garbage)

        self._ask(answered.set)
        while not self._wait(answered, NAP):
            before, at = at, self._clock()
            self.silent += min(at - before, 4 * NAP)
            seen[self._stack()] += 1
            if self.silent >= self._patience and not told:
                told = True
                self._dead(stall())
        self.silent = 0.0
        self._lag(self._clock() - asked)
        if self._clock() - asked > LONG:
            self._stalled(stall())


def begin(
    loop: asyncio.AbstractEventLoop,
    *,
    stalled: Callable[[Stall], None],
    dead: Callable[[Stall], None],
    patience: float,
    lag: Callable[[float], object] = lambda _: None,
) -> tuple[Watchdog, Callable[[], None]]:
    """Watch the running loop, whose thread this is; what ends it."""
    me, over, toll = threading.get_ident(), threading.Event(), Toll()

    def wait(answered: threading.Event, seconds: float) -> bool:
        return answered.wait(seconds) or over.is_set()  # a loop that has ended answers nobody

    ask, cpu = loop.call_soon_threadsafe, _cpu_of(me)
    dog = Watchdog(
        ask,
        lambda: stack(me),
        cpu,
        stalled=stalled,
        dead=dead,
        patience=patience,
        lag=lag,
        garbage=lambda: toll.seconds,
        wait=wait,
    )

    def run() -> None:
        idle, before = 0, cpu()
        while not over.wait(LONG if idle else NAP):
            now = cpu()
            idle, before = (idle + 1 if now - before < IDLE else 0), now
            try:
                if idle % SELDOM == 0:
                    dog.look()
            except RuntimeError:  # the loop is closed
                return

    def end() -> None:
        over.set()
        gc.callbacks.remove(toll)

    gc.callbacks.append(toll)
    threading.Thread(target=run, name="watchdog", daemon=True).start()
    return dog, end


def stack(thread: int) -> str:
    """What a thread does now. No line of source is read: beside a busy thread the files of a first look took longer than a
    stall of 200 ms.
    """
    frame = sys._current_frames().get(thread)
    found = [*islice(traceback.walk_stack(frame), FRAMES)] if frame is not None else []
    return " > ".join(f"{at.f_code.co_name} ({_short(at.f_code.co_filename)}:{line})" for at, line in reversed(found))


def _short(file: str) -> str:
    return "/".join(file.split("/")[-2:])


def _cpu_of(thread: int) -> Callable[[], float]:
    """Seconds of the CPU that a thread has had; 0 where the system does not say."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return lambda: 0.0
    clock = time.pthread_getcpuclockid(thread)
    return lambda: time.clock_gettime(clock)
