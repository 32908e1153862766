"""Seeded stories of engines, as the registry sees them: they work, are slow, pause, restart or stop. An engine that works is
never reported as silent, and an engine that has stopped is reported within the documented time. `OME_STORIES` is the number
of stories.
"""

import bisect
import itertools
import os
import random
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from ome_operator.registry.silence import PROBE, LifeSigns, ProbeResult, is_due, with_probe_result, with_reading

STORIES = int(os.environ.get("OME_STORIES") or 100)
SECONDS = 180.0
LONGEST_STEP = 11.5
"""Seconds of the longest step of an engine's scheduler that is never mistaken for silence, provided that the clock is not
set back by some seconds at the same time.
"""
OUT_WITHIN, BACK_WITHIN = 17.0, 12.0
"""Seconds until a stopped engine is reported as silent, in addition to the duration of its last step, and seconds until an
engine that works again is no longer reported. A stopped engine is removed from the router as soon as it is reported.
"""
HEALTH_TIMEOUT = 20.0
"""Seconds after which SGLang reports itself as unhealthy if a health request is not answered."""


class Engine:
    """An engine of one or several data-parallel ranks that advance together."""

    def __init__(self, chance: random.Random) -> None:
        self.stops, self.resumes = SECONDS, SECONDS
        if chance.random() < 0.5:
            self.stops = chance.uniform(20, SECONDS - 40)
            self.resumes = self.stops + chance.choice((25.0, 45.0, SECONDS))
        self.pauses, self.continues = SECONDS, SECONDS
        if self.stops == SECONDS and chance.random() < 0.3:
            self.pauses = chance.uniform(20, SECONDS - 40)
            self.continues = self.pauses + chance.uniform(1, 120)
        self.ranks = chance.choice((1, 1, 2, 8))
        self.clock = chance.uniform(-1e6, 1e6)
        self.set_at, self.set_by = chance.uniform(0, SECONDS), chance.choice((0.0, 0.0, 3600.0, -3600.0, 5.0, -5.0))
        self.slow_http = chance.choice((0.0, 0.0, 1.5))
        self.marks = [0.0, *self.published(chance)]
        before = [0.0, *(each for each in self.marks if each < self.stops)][-4:]
        self.last_step = max(after - at for at, after in itertools.pairwise(before))
        """Seconds of the longest of the last steps before the stop."""

    def published(self, chance: random.Random) -> Iterator[float]:
        """Yield the times at which the scheduler is between two steps."""
        now = 0.0
        while now < SECONDS:
            most = LONGEST_STEP - max(0.0, -self.set_by) if self.set_by > -60 else LONGEST_STEP
            longest = chance.choice((0.03, 0.2, 1.0, 5.4, most))  # idle, decode, and prompts of any length
            for _ in range(int(chance.choice((1, 3, 20)))):
                now += chance.uniform(longest / 2, longest)
                for begins, ends in ((self.stops, self.resumes), (self.pauses, self.continues)):
                    now = ends if begins <= now < ends else now
                yield now

    def taken(self, now: float) -> tuple[float, ...]:
        """Return the timestamps that `/v1/loads` shows at this time, one for each data-parallel rank: the time of the last
        publication by the scheduler, on the clock of the engine.
        """
        at = self.marks[bisect.bisect_right(self.marks, now) - 1]
        return (at + self.clock + (self.set_by if at >= self.set_at else 0.0),) * self.ranks

    def answers(self, began: float) -> float:
        """Return when a probe that was sent at the time `began` is answered. SGLang checks once a second whether its
        scheduler has answered.
        """
        after = bisect.bisect_right(self.marks, began + 0.05)
        at = self.marks[after] if after < len(self.marks) else SECONDS * 2
        return began + self.slow_http + 1.0 + int(at - began)

    def tells_pause(self, now: float) -> bool:
        """Return whether the pages of the engine show that it is paused: it is healthy and not ready."""
        return self.pauses <= now < min(self.continues, self.pauses + HEALTH_TIMEOUT)

    def works(self, now: float) -> bool:
        """Return whether the engine works, that is, has not stopped."""
        return not self.stops <= now < self.resumes


class Probe(NamedTuple):
    """A probe in progress."""

    began: float
    ends: float
    is_answered: bool


class Registry:
    """A registry that watches one engine."""

    def __init__(self, engine: Engine, chance: random.Random) -> None:
        self.engine, self.chance = engine, chance
        self.silence, self.probe = LifeSigns(), None
        self.begins = chance.uniform(0, 30)
        """Time at which the registry starts, or has restarted."""
        self.hangs, self.hangs_for = chance.uniform(0, SECONDS), chance.choice((0.0, 0.0, 0.0, 8.0, 30.0))
        """Time and duration of a period in which this process does not run."""
        self.lost = chance.choice((0.0, 0.0, 0.05))
        """Share of readings that fail."""
        self.read_at = 0.0
        self.probe: Probe | None = None
        self.probes = list[float]()

    def hung(self, now: float) -> bool:
        """Return whether the process does not run."""
        return now < self.begins or self.hangs <= now < self.hangs + self.hangs_for

    def step(self, now: float) -> None:
        """Let the engine and the registry do what is due at this time."""
        if self.hung(now):
            return
        if now >= self.read_at:
            self.read_at = now + self.chance.uniform(5, 6)
            self.read(now)
        if self.probe is not None and now >= self.probe.ends:
            self.conclude(self.probe, now)
            self.probe = None
        if self.probe is None and now % 1.0 < 0.25 and is_due(self.silence, now):
            self.probes.append(now)
            at = self.engine.answers(now)
            self.probe = Probe(now, min(at, now + PROBE), at <= now + PROBE)

    def read(self, now: float) -> None:
        """Read the load of the engine, unless this reading is lost."""
        if self.chance.random() >= self.lost:
            self.silence = with_reading(self.silence, self.engine.taken(now), now)

    def conclude(self, probe: Probe, now: float) -> None:
        """Process the result of a probe that has ended."""
        if not probe.is_answered:
            self.read(now)
        is_paused = self.engine.tells_pause(now)
        failed = ProbeResult.PAUSED if is_paused else ProbeResult.FAILED
        self.silence = with_probe_result(
            self.silence, ProbeResult.ANSWERED if probe.is_answered else failed, probe.began, now
        )


@pytest.mark.parametrize("block", range(10))
def test_only_an_engine_that_stopped_is_silent(block: int) -> None:
    found = 0
    for seed in range(block, STORIES, 10):
        chance = random.Random(seed)
        engine = Engine(chance)
        registry = Registry(engine, chance)
        now = 0.0
        while now < SECONDS:
            registry.step(now)
            if registry.silence.is_silent:
                assert engine.stops <= now < engine.resumes + BACK_WITHIN + registry.hangs_for, (
                    f"story {seed}: taken for silent at {now} s"
                )
                assert registry.silence.failed_since >= engine.stops - LONGEST_STEP, (
                    f"story {seed}: silent too early at {now} s"
                )
                found += 1
            saw_it_work = registry.begins + 2 * LONGEST_STEP < engine.stops
            undisturbed = saw_it_work and not registry.hangs_for and not registry.lost
            if undisturbed and engine.stops + OUT_WITHIN + engine.last_step < now < engine.resumes:
                assert registry.silence.is_silent, f"story {seed}: not found at {now} s"
            now += 0.25
        assert len(registry.probes) <= SECONDS, "at most one probe a second"
    assert found, "no story of this block has a silent engine"


def test_fast_engine_is_never_probed() -> None:
    silence = LifeSigns()
    for second in range(0, 600, 5):
        silence = with_reading(silence, (second + 0.9, second + 0.5), float(second) + (second % 2))
        assert not any(is_due(silence, second + each) for each in range(6))
