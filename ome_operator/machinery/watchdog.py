"""Check from a separate thread whether the event loop responds, and record what the loop executes when it does not
respond (decisions 31).

The thread probes the loop twenty times per second while the loop's thread uses the CPU, and more rarely while the loop's
thread is idle. A measurement begins with a probe, so a stall may have been slightly longer than reported: by up to a second
if the loop was blocked without using the CPU.
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

from ome_operator.machinery.garbage_collection import CollectionTime

logger = logging.getLogger(__name__)

PROBE_INTERVAL = 0.05
"""Two intervals in seconds: between two probes, and between two stack samples while the loop does not respond."""
IDLE_CPU = 0.002
"""CPU seconds of the loop's thread between two probes, below which the loop is regarded as idle."""
IDLE_FACTOR = 10
"""Factor by which the pause between two probes of an idle loop is longer than STALL_SECONDS. An idle loop is probed
rarely, because the response to a probe costs the loop more CPU time than the probe costs this thread."""
STALL_SECONDS = 0.1
"""Seconds without a response after which the loop is regarded as stalled."""
WARNING_SECONDS = 1.0
"""Seconds after which a stall is logged as a warning."""
LOG_INTERVAL = 10.0
"""Minimum seconds between two log messages, unless a stall is much longer than the stall that was logged last."""
FRAMES = 6
"""Number of innermost frames of a stack that are shown."""
GARBAGE_SECONDS = 0.01
"""Minimum seconds of garbage collection that are reported as a cause of a stall."""


class Stall(NamedTuple):
    """A period in which the event loop did not respond."""

    seconds: float
    cpu: float
    """CPU seconds of the loop's thread during the stall. A value near zero means that the machine, not the loop, is the
    cause."""
    stack: str
    """The stack that was sampled most often during the stall."""
    garbage: float = 0.0
    """Seconds of garbage collection during the stall. A collection can start at any allocation, so the stack does not
    show it."""

    def __str__(self) -> str:
        garbage = f", {self.garbage:.2f} s of garbage collection" if self.garbage >= GARBAGE_SECONDS else ""
        return f"{self.seconds:.2f} s ({self.cpu:.2f} s of CPU{garbage}) in {self.stack}"


class StallLog:
    """Logs stalls with their stacks. At most one stall is logged in ten seconds, unless a stall is at least twice as long as
    the stall that was logged last. `count` is called with the duration of each stall in seconds.
    """

    def __init__(self, count: Callable[[float], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._count, self._clock = count, clock
        self._logged, self._logged_at = 0.0, -math.inf
        self._pending: list[Stall] = []

    def __call__(self, stall: Stall) -> None:
        """Count a stall that has ended. Log the longest stall since the last log message, if a message is due."""
        self._count(stall.seconds)
        self._pending.append(stall)
        if self._clock() - self._logged_at < LOG_INTERVAL and stall.seconds < 2 * self._logged:
            return
        longest, others = max(self._pending), len(self._pending) - 1
        level = logging.WARNING if longest.seconds >= WARNING_SECONDS else logging.INFO
        logger.log(
            level,
            "the event loop was blocked for %s%s",
            longest,
            f", and {others} times for a shorter time" if others else "",
        )
        self._logged, self._logged_at, self._pending = longest.seconds, self._clock(), []


class Watchdog:
    """Probes the event loop, and measures for how long the loop does not respond.

    `ask` makes the loop call a function, `thread_stack` returns the stack of the loop's thread, `cpu` returns the CPU
    seconds of this thread, and `garbage` returns the total seconds of garbage collection. `lag` receives the duration of
    each response in seconds, and `stalled` each stall that has ended.
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
        """Seconds for which the loop has not responded. Time during which the watchdog's own thread did not run is left
        out, because the complete process was suspended at that time, and the loop is not the cause."""

    def probe_loop(self) -> None:
        """Probe the loop, and return when the loop has responded. `dead` is called once if the loop does not respond for
        `patience` seconds.
        """
        answered, asked, cpu, garbage = threading.Event(), self._clock(), self._cpu(), self._garbage()
        seen: Counter[str] = Counter()
        at, reported = asked, False

        def stall() -> Stall:
            where = seen.most_common(1)[0][0] if seen else "an unknown function"
            return Stall(self._clock() - asked, self._cpu() - cpu, where, self._garbage() - garbage)

        self._ask(answered.set)
        while not self._wait(answered, PROBE_INTERVAL):
            before, at = at, self._clock()
            self.silent += min(at - before, 4 * PROBE_INTERVAL)
            seen[self._stack()] += 1
            if self.silent >= self._patience and not reported:
                reported = True
                self._dead(stall())
        self.silent = 0.0
        self._lag(self._clock() - asked)
        if self._clock() - asked > STALL_SECONDS:
            self._stalled(stall())


def begin(
    loop: asyncio.AbstractEventLoop,
    *,
    stalled: Callable[[Stall], None],
    dead: Callable[[Stall], None],
    patience: float,
    lag: Callable[[float], object] = lambda _: None,
) -> tuple[Watchdog, Callable[[], None]]:
    """Start a watchdog thread for the running event loop `loop` of the calling thread. The other arguments are those of
    `Watchdog`. Return the watchdog, and a function that stops it.
    """
    me, over, toll = threading.get_ident(), threading.Event(), CollectionTime()

    def wait(answered: threading.Event, seconds: float) -> bool:
        return answered.wait(seconds) or over.is_set()  # a loop that has ended never responds

    ask, cpu = loop.call_soon_threadsafe, _cpu_of(me)
    dog = Watchdog(
        ask,
        lambda: thread_stack(me),
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
        while not over.wait(STALL_SECONDS if idle else PROBE_INTERVAL):
            now = cpu()
            idle, before = (idle + 1 if now - before < IDLE_CPU else 0), now
            try:
                if idle % IDLE_FACTOR == 0:
                    dog.probe_loop()
            except RuntimeError:  # the loop is closed
                return

    def end() -> None:
        over.set()
        gc.callbacks.remove(toll)

    gc.callbacks.append(toll)
    threading.Thread(target=run, name="watchdog", daemon=True).start()
    return dog, end


def thread_stack(thread: int) -> str:
    """Return the stack of a thread as text. Source lines are left out, because on a busy machine, reading the source files
    for the first sample took longer than a stall of 200 ms.
    """
    frame = sys._current_frames().get(thread)
    found = [*islice(traceback.walk_stack(frame), FRAMES)] if frame is not None else []
    return " > ".join(f"{at.f_code.co_name} ({_short(at.f_code.co_filename)}:{line})" for at, line in reversed(found))


def _short(file: str) -> str:
    return "/".join(file.split("/")[-2:])


def _cpu_of(thread: int) -> Callable[[], float]:
    """Return a function that returns the CPU seconds of a thread; always 0 if the system does not provide them."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return lambda: 0.0
    clock = time.pthread_getcpuclockid(thread)
    return lambda: time.clock_gettime(clock)
