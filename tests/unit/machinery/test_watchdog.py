"""Tests of whether the event loop responds, which a separate thread observes."""

import asyncio
import gc
import logging
import threading
from collections.abc import Callable

import pytest

from ome_operator.machinery import watchdog
from ome_operator.machinery.garbage_collection import CollectionTime
from ome_operator.machinery.watchdog import PROBE_INTERVAL, STALL_SECONDS, Stall, StallLog, Watchdog


class Loop:
    """An event loop that does not respond for this number of intervals, each of which takes `nap` seconds."""

    def __init__(self, naps: int, nap: float = PROBE_INTERVAL, patience: float = 60.0) -> None:
        self.naps, self.nap, self.now = naps, nap, 0.0
        self.ran = iter(["short", *["long"] * naps])
        self.stalls: list[Stall] = []
        self.deaths: list[Stall] = []
        self.silences: list[float] = []
        self.dog = Watchdog(
            lambda answer: None,
            lambda: next(self.ran),
            lambda: self.now / 2,
            stalled=self.stalls.append,
            dead=self.deaths.append,
            patience=patience,
            garbage=lambda: self.now / 4,
            clock=lambda: self.now,
            wait=self._wait,
        )

    def _wait(self, _: threading.Event, seconds: float) -> bool:
        assert seconds == PROBE_INTERVAL
        self.silences.append(self.dog.silent)
        self.now += self.nap if self.naps else 0.0
        self.naps -= 1
        return self.naps < 0


@pytest.mark.parametrize("naps", [0, 1, 2])
def test_short_stalls_are_not_reported(naps: int) -> None:
    loop = Loop(naps)
    loop.dog.probe_loop()
    assert (loop.stalls, loop.deaths, loop.dog.silent) == ([], [], 0.0)
    assert naps * PROBE_INTERVAL <= STALL_SECONDS


def test_stall_is_reported_with_its_most_frequent_stack() -> None:
    loop = Loop(20)
    loop.dog.probe_loop()
    (stall,) = loop.stalls
    assert (stall.seconds, stall.cpu, stall.stack) == (pytest.approx(1.0), pytest.approx(0.5), "long")
    assert stall.garbage == pytest.approx(0.25)
    assert str(stall) == "1.00 s (0.50 s of CPU, 0.25 s of garbage collection) in long"
    assert loop.silences[-1] == pytest.approx(1.0) and loop.dog.silent == 0.0
    assert not loop.deaths


def test_unresponsive_loop_ends_the_process_once() -> None:
    loop = Loop(2000)
    loop.dog.probe_loop()
    (death,) = loop.deaths
    assert death.seconds == pytest.approx(60.0, abs=2 * PROBE_INTERVAL)


def test_suspended_process_is_not_reported_as_dead() -> None:
    """A process that was suspended for minutes is not reported as dead. The watchdog was suspended together with its loop,
    so it has not observed that the loop failed to respond.
    """
    loop = Loop(3, nap=100.0)
    loop.dog.probe_loop()
    assert not loop.deaths and max(loop.silences) < 1.0
    assert loop.stalls[0].seconds == 300.0


async def test_blocked_loop_is_detected_by_a_real_thread() -> None:
    died = threading.Event()
    stalls: list[Stall] = []
    told: Callable[[Stall], None] = stalls.append
    loop = asyncio.get_running_loop()
    dog, end = watchdog.begin(loop, stalled=told, dead=lambda _: died.set(), patience=0.2)
    try:
        assert died.wait(30), "the wait blocks the loop until the watchdog reports it"
        assert dog.silent >= 0.2
        async with asyncio.timeout(30):
            while not stalls:  # noqa: ASYNC110
                await asyncio.sleep(0)
    finally:
        end()
    assert not [each for each in gc.callbacks if isinstance(each, CollectionTime)], "it has stopped counting"
    assert "test_blocked_loop_is_detected_by_a_real_thread" in stalls[0].stack
    assert stalls[0].cpu < stalls[0].seconds, "the loop waited, and used no CPU time"


def test_log_contains_the_longest_stalls_at_a_limited_rate(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    counted: list[float] = []
    caplog.set_level(logging.INFO)
    tell = StallLog(counted.append, clock=lambda: now)
    for seconds in (0.2, 0.15, 0.3, 2.0):
        tell(Stall(seconds, 0.1, "work"))
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert "2.00 s (0.10 s of CPU) in work, and 2 times for a shorter time" in caplog.records[1].message
    now += watchdog.LOG_INTERVAL
    tell(Stall(0.11, 0.1, "work"))
    assert len(caplog.records) == 3 and counted == [0.2, 0.15, 0.3, 2.0, 0.11]
