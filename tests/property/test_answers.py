"""Seeded stories of engines, as the registry sees them: they answer, are slow, overloaded, paused or updated, or return no
tokens any more. An engine that answers is never reported as silent, and an engine without answers is reported within the
documented time. `OME_STORIES` is the number of stories.
"""

import os
import random
from dataclasses import dataclass, field

import pytest

from ome_operator.registry.answers import (
    PROBE,
    READ_EVERY,
    READ_UNTIL,
    AnswerSigns,
    RouterCounts,
    evaluate_probe,
    is_due,
    with_probe_result,
    with_router_counts,
)
from ome_operator.registry.engine_load import EngineLoad
from ome_operator.registry.silence import FAILURES, RETRY_SILENT

STORIES = int(os.environ.get("OME_STORIES") or 200)
BLOCKS = 4
"""Number of tests among which the stories are divided. In about one of ten stories, the engine stops answering."""
SECONDS, TICK = 120.0, 0.05
OUT_WITHIN, BACK_WITHIN = 20.0, PROBE + RETRY_SILENT + PROBE + 1.0
"""Seconds from the first request after the fault until the engine is reported as silent, and seconds from the end of the
fault until the engine is no longer reported. A probe that begins just before the end of the fault may still fail; then only
the next probe, which begins at most a second late, succeeds.
"""
UNHEALTHY = 20.0
"""Seconds after which SGLang reports itself as unhealthy if a health request is not answered."""
NEVER = 1e9


@dataclass
class Request:
    """A request for some tokens, after a prompt of some steps."""

    prompt: int
    tokens: int
    patience: float
    came: float
    is_probe: bool = False
    answered: float | None = None


@dataclass
class Engine:
    """An engine whose scheduler processes the result of a step at the end of the next one."""

    chance: random.Random
    now: float = 0.0
    held: list[Request] = field(default_factory=list)
    """Requests that the HTTP server holds back, because the engine is paused or is about to replace its weights."""
    arriving: list[tuple[float, Request]] = field(default_factory=list)
    waiting: list[Request] = field(default_factory=list)
    running: list[Request] = field(default_factory=list)
    ended: list[Request] = field(default_factory=list)
    """Requests whose result is processed at the end of this step."""
    leaving: list[tuple[float, Request]] = field(default_factory=list)
    step_ends: float = 0.0
    is_asleep: bool = False
    unpublished: int = 0
    load: EngineLoad = field(default_factory=lambda: EngineLoad(0, 0, 0, 0, 0, (0.0,)))

    def __post_init__(self) -> None:
        chance = self.chance
        self.slots = chance.choice((1, 4, 64))
        self.step = chance.choice((0.05, 0.05, 0.2, 1.0, 5.0))
        self.delay = chance.choice((0.05, 0.3, 1.0))
        """Maximum seconds for which a message waits between two processes of the engine, because the machine may be busy."""
        self.sleep = chance.choice((TICK, 1.0))
        """Seconds for which the idle scheduler sleeps, if no request comes."""
        self.interval = chance.choice((1, 15))
        """Number of steps without a prompt after which the scheduler publishes its load."""
        self.mute = NEVER, NEVER
        self.pause = NEVER, NEVER
        self.update, self.updated, self.updates = NEVER, -NEVER, chance.uniform(1, 40)
        what = chance.choice(("nothing", "mute", "mute", "pause", "update", "update, then mute"))
        begin = chance.uniform(20, 50)
        if what == "mute":
            self.mute = begin, begin + chance.choice((30.0, NEVER))
        elif what == "pause":
            self.pause = begin, begin + chance.uniform(1, 60)
        elif what == "update":
            self.update = begin
        elif what == "update, then mute":
            self.update, mute = begin, begin + chance.uniform(0, 60)
            self.mute = mute, mute + chance.choice((30.0, NEVER))

    def is_mute(self) -> bool:
        """Return whether the detokenizer is stopped, so that the engine returns no tokens."""
        return self.mute[0] <= self.now < self.mute[1]

    def is_held(self) -> bool:
        """Return whether the HTTP server holds back new requests."""
        return self.pause[0] <= self.now < self.pause[1] or self.now >= self.update

    def send(self, request: Request) -> None:
        """Accept a request."""
        self.held.append(request)

    def pages(self) -> tuple[int, int]:
        """Return the statuses of `/ready` and `/ping`."""
        since = next((begin for begin, end in (self.mute, self.pause) if begin <= self.now < end), None)
        healthy = 503 if since is not None and self.now - since > UNHEALTHY else 200
        return (503 if self.pause[0] <= self.now < self.pause[1] else healthy), healthy

    def tick(self) -> None:
        """Advance by TICK seconds."""
        self.now += TICK
        if not self.is_held():
            self.arriving += [(self.now + self.chance.uniform(0, self.delay) / 4, request) for request in self.held]
            self.held = []
        for at, request in [*self.leaving]:
            if at <= self.now and not self.is_mute():
                request.answered = self.now
                self.leaving.remove((at, request))
        is_woken = self.is_asleep and any(at <= self.now for at, _ in self.arriving)
        if self.now >= self.step_ends or is_woken:
            self.begin_step()

    def begin_step(self) -> None:
        """Process the results of the step before the one that has ended, and begin the next one."""
        for request in self.ended:
            self.leaving.append((self.now + self.chance.uniform(0, self.delay), request))
        was_prompt = any(request.prompt > 0 for request in self.running)
        for request in self.running:
            if request.prompt > 0:
                request.prompt -= 1
            request.tokens -= request.prompt == 0
        self.ended = [request for request in self.running if request.tokens <= 0]
        self.running = [request for request in self.running if request.tokens > 0]
        if self.now - self.update >= 0 and not (self.running or self.ended or self.waiting or self.arriving or self.leaving):
            self.step_ends = self.updated = self.now + self.updates  # the engine loads the new weights
            self.update = NEVER
            return
        self.unpublished += 1
        if was_prompt or not self.running or self.unpublished >= self.interval:
            self.unpublished = 0
            used = len(self.running) + len(self.ended)
            self.load = EngineLoad(len(self.running), len(self.waiting), 0, 0, used, (self.now,))
        self.waiting += [request for at, request in self.arriving if at <= self.now]
        self.arriving = [(at, request) for at, request in self.arriving if at > self.now]
        while self.waiting and len(self.running) < self.slots and not any(one.prompt > 1 for one in self.running):
            self.running.append(self.waiting.pop(0))
        self.is_asleep = not (self.running or self.ended)
        self.step_ends = self.now + (self.sleep if self.is_asleep else self.chance.uniform(self.step / 2, self.step))


@dataclass
class Registry:
    """A router and its registry, which watch one engine."""

    engine: Engine
    signs: AnswerSigns = field(default_factory=AnswerSigns)
    sent: list[Request] = field(default_factory=list)
    succeeded: int = 0
    read_at: float = 0.0
    probe: Request | None = None
    loads: list[EngineLoad | None] = field(default_factory=list)
    probes: int = 0
    last: tuple[float, ...] = (0.0,)
    moved_at: float = 0.0

    def __post_init__(self) -> None:
        chance = self.engine.chance
        self.rate = chance.choice((0.1, 0.5, 2.0, 8.0))
        self.longest = chance.choice((1, 8, 200))
        self.prompts = chance.choice((1, 1, 30))
        self.patience = chance.choice((10.0, 120.0))
        self.stops_sending = chance.random() < 0.8
        """Whether the router sends no requests to a leader that is reported as silent, because another engine of the role
        works.
        """

    def tick(self, now: float) -> None:
        """Let the router, its registry and the engine run until this time."""
        chance, is_out = self.engine.chance, self.signs.returns_no_token and self.stops_sending
        if not is_out and chance.random() < self.rate * TICK:
            one = Request(chance.randint(1, self.prompts), chance.randint(1, self.longest), self.patience, now)
            self.sent.append(one)
            self.engine.send(one)
        self.succeeded += sum(one.answered is not None for one in self.sent)
        self.sent = [one for one in self.sent if one.answered is None and now - one.came < one.patience]
        if now >= self.read_at:
            self.read_at = now + chance.uniform(2, 3)
            self.signs = with_router_counts(self.signs, RouterCounts(len(self.sent), self.succeeded), now)
        if self.engine.load.taken != self.last:
            self.last, self.moved_at = self.engine.load.taken, now
        if self.probe is not None:
            self.watch(self.probe, now)
        elif now % 1.0 < TICK and is_due(self.signs, now) and now - self.moved_at < 6.5:
            self.probe, self.loads = Request(1, 1, NEVER, now, is_probe=True), []
            self.engine.send(self.probe)
            self.probes += 1

    def watch(self, probe: Request, now: float) -> None:
        """Read the load while a probe runs, and evaluate the probe at its end."""
        should_read = now - probe.came >= READ_EVERY * (len(self.loads) + 1)
        if should_read and now - probe.came <= READ_UNTIL and probe.answered is None:
            self.loads.append(self.engine.load)
        if probe.answered is None and now - probe.came < PROBE:
            return
        status = 0 if probe.answered is None else 200
        result = evaluate_probe(self.signs, status, self.loads, *self.engine.pages())
        self.signs = with_probe_result(self.signs, result, self.loads, probe.came, now)
        self.probe = None


@dataclass
class Story:
    """Checks what a registry reports about one engine. The attributes store what has happened since the fault."""

    seed: int
    waits_since: float = NEVER
    """Time at which the first request came after the fault."""
    was_busy: bool = False
    """Whether the fault may be reported late: the engine may report itself as unhealthy before the first probe can fail,
    because requests have waited since the fault, steps are long or seldom publish the load, or the weights were replaced.
    """
    is_busy_again: bool = False
    """Whether requests have waited since the end of the fault, or of the update of the weights, while the registry has
    regarded the engine as silent without interruption.
    """
    found: int = 0
    reported: bool = False
    """Whether the engine has been reported as silent since the fault."""

    def check(self, engine: Engine, registry: Registry) -> None:
        """Check what the registry reports about the engine against the engine's true state."""
        now, signs, (stops, works) = engine.now, registry.signs, engine.mute
        at, is_waiting = f"story {self.seed} at {now:.1f} s", engine.load.waiting != 0
        may_be = stops <= now < works + BACK_WITHIN
        if signs.returns_no_token and signs.is_proven:
            assert may_be, f"{at}: reported as silent"
            updates = engine.update <= now or engine.updated > 0  # the silence may have begun with the update
            assert (updates and signs.proofs >= FAILURES) or (signs.proven_since or 0.0) >= stops - PROBE, f"{at}: too early"
            self.found += 1
        has_ended = now >= works or 0 < engine.updated <= now
        self.is_busy_again = has_ended and signs.returns_no_token and (self.is_busy_again or is_waiting)
        updates = engine.update <= now or now < engine.updated + BACK_WITHIN
        assert not signs.returns_no_token or may_be or self.is_busy_again or updates, f"{at}: taken out of the router"
        if engine.is_mute():
            self.waits_since = min(self.waits_since, *(one.came for one in registry.sent if one.came >= stops), NEVER)
            self.was_busy = self.was_busy or is_waiting or engine.step > 0.2 or engine.interval > 1 or engine.updated > 0
            self.reported = self.reported or (signs.returns_no_token and signs.is_proven)
            is_late = now - self.waits_since > OUT_WITHIN and registry.rate >= 0.5
            assert signs.returns_no_token or self.was_busy or not is_late, f"{at}: not found"
            empties = registry.stops_sending and registry.longest < 200
            is_late = is_late and empties and now - self.waits_since > OUT_WITHIN + 20
            assert self.reported or self.was_busy or not is_late, f"{at}: not reported"


@pytest.mark.parametrize("block", range(BLOCKS))
def test_only_an_engine_without_answers_is_mute(block: int) -> None:
    found = 0
    for seed in range(block, STORIES, BLOCKS):
        engine = Engine(random.Random(seed))
        registry, story = Registry(engine), Story(seed)
        while engine.now < SECONDS:
            engine.tick()
            registry.tick(engine.now)
            story.check(engine, registry)
        found += story.found
    assert found, "no story of this block has an engine without answers"
