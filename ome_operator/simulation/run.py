"""Simulates the requests of a service whose prefill and decode groups run on different GPUs, as discrete events."""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ome_operator.core.demand.estimate import bound_below
from ome_operator.core.demand.facts import KEPT, WINDOW, CompletedWork, DemandSample, Fleet, RoleFleet
from ome_operator.simulation.engines import GPUS, OVERHEAD, SLOTS, START, prefill_seconds, step_seconds
from ome_operator.simulation.traces import Trace, requests

TICK = 10.0
"""Seconds between two samples, and between two decisions."""
FEW = 20
"""Minimum number of requests in a window for which the share of late requests is reported."""
TAIL = 1800.0
"""Seconds after the end of a trace within which its last requests must end."""

Size = tuple[int, int]
Controller = Callable[[float, Sequence[DemandSample], Fleet], Size]
"""A function that maps (time, samples, fleet) to the wanted numbers of prefill and decode groups."""


class PlotMoment(NamedTuple):
    """The values at one time that a plot shows."""

    at: float
    rate: float
    prefill: int
    decode: int
    waiting: int


class SimulationResult(NamedTuple):
    """The outcome of a simulation."""

    requests: int
    share_on_time: float
    """Share of all requests that met both targets (time to the first token, time between tokens)."""
    gpu_hours: float
    changes: tuple[tuple[float, int, int], ...]
    """(time, prefill groups, decode groups) of each change of the wanted size."""
    moments: tuple[PlotMoment, ...]
    late: tuple[tuple[float, bool], ...] = ()
    """(arrival, whether the request missed a target), for requests in the order of their end."""

    def reversal_count(self) -> int:
        """Return the number of size changes of a role that reverse the previous change: up after down, or down after up."""
        found = 0
        for place in (1, 2):
            steps = [after[place] - before[place] for before, after in pairwise(self.changes)]
            steps = [step for step in steps if step]
            found += sum(1 for one, two in pairwise(steps) if one * two < 0)
        return found


class _Group:
    """A group of either role: the time since which it exists, and whether it takes requests."""

    def __init__(self, born: float, ready: float) -> None:
        self.born, self.ready, self.draining = born, ready, False


class _Prefill(_Group):
    """A prefill group: it computes one prompt after the other, in the order of their arrival."""

    def __init__(self, born: float, ready: float) -> None:
        super().__init__(born, ready)
        self.ends = deque[tuple[float, float]]()
        """(end, prompt tokens) of the requests in the group."""
        self.free, self.waited, self.waiting = ready, 0, 0
        self.done = deque[tuple[float, float]]([(0.0, 0.0)])
        """Cumulative numbers (completed requests, their prompt tokens) at each of the last ticks."""
        self.total = (0.0, 0.0)

    def add(self, now: float, tokens: float) -> float:
        """Add a request, and return the time at which its prefill ends."""
        self.free = max(self.free, now) + prefill_seconds(tokens)
        self.ends.append((self.free, tokens))
        return self.free

    def finish_requests(self, now: float) -> int:
        """Count the requests that have ended, and return the number of requests that have not ended."""
        ends = self.ends
        while ends and ends[0][0] <= now:
            self.total = self.total[0] + 1, self.total[1] + ends.popleft()[1]
        return len(ends)

    def record_tick(self, now: float) -> None:
        """Record the state of the group at a tick. If at least as many requests waited at the last tick as the group has
        completed since, the group has been busy all the time.
        """
        waiting = self.waiting
        self.waiting = max(0, self.finish_requests(now) - 1)
        self.waited = self.waited + 1 if 0 < self.total[0] - self.done[-1][0] <= waiting else 0
        self.done.append(self.total)
        if len(self.done) > int(WINDOW / TICK) + 1:
            self.done.popleft()

    @property
    def was_saturated(self) -> bool:
        """Whether the group has been busy during the complete last window."""
        return self.waited >= int(WINDOW / TICK)


class _Decode(_Group):
    """A decode group: all of its requests get their next token at the same time. `tokens` is the number of tokens that a
    request would have received if it had been in the group since the start.
    """

    def __init__(self, born: float, ready: float) -> None:
        super().__init__(born, ready)
        self.tokens, self.at, self.planned = 0.0, ready, float("inf")
        self.leave = list[tuple[float, float, float, float, float]]()
        """For each request in the group: (value of `tokens` at its end, time of joining, output tokens, arrival, time to the
        first token)."""

    def advance(self, now: float) -> None:
        self.tokens += (now - self.at) / step_seconds(len(self.leave))
        self.at = now

    def next_end(self) -> float:
        """Return the time at which the next request ends."""
        return self.at + (self.leave[0][0] - self.tokens) * step_seconds(len(self.leave)) if self.leave else float("inf")


_ENTER, _LEAVE, _TICK = 0, 1, 2


class Simulation:
    """A run of a trace with a controller."""

    def __init__(self, trace: Trace, controller: Controller, size: Size, seed: int = 1) -> None:
        self._trace, self._controller = trace, controller
        self._arrivals = requests(trace, seed)
        self._prefill = [_Prefill(0.0, 0.0) for _ in range(size[0])]
        self._decode = [_Decode(0.0, 0.0) for _ in range(size[1])]
        self._size = size
        self._events = list[tuple[float, int, int, object]]()
        self._number = 0
        self._queue = deque[tuple[float, float]]()
        """(arrival, output tokens) of requests that wait for a slot in decode."""
        self._arrived = self._left = self._good = 0
        self._counts = deque[tuple[int, int, float]]([(0, 0, 0.0)])
        self._written = 0.0
        self._running = deque[int]()
        self._seen = deque[tuple[float, bool]]()
        """The first tokens of the last window: for each, the time, and whether the request's time to the first token
        exceeded `_bound`.
        """
        self._bound = bound_below(trace.ttft)
        self._samples = deque[DemandSample]()
        self._busy = 0.0
        self._changes, self._moments = [(0.0, *size)], list[PlotMoment]()
        self._late = list[tuple[float, bool]]()

    def run(self) -> SimulationResult:
        """Run the trace to its end, and until all of its requests have ended."""
        self._push(TICK, _TICK, None)
        end, events = self._trace.seconds, self._events
        arrival = next(self._arrivals, None)
        while True:
            if arrival is not None and (not events or arrival.at <= events[0][0]):
                self._arrive(arrival.at, arrival.prompt, arrival.answer)
                arrival = next(self._arrivals, None)
                continue
            now, _, kind, what = heapq.heappop(events)
            if now > end and (self._left == self._arrived or now > end + TAIL):
                break
            if kind == _ENTER:
                self._enter(now, *what)  # type: ignore[misc]
            elif kind == _LEAVE:
                self._leave(now, what)  # type: ignore[arg-type]
            else:
                self._tick(now)
        hours = self._busy / 3600 * GPUS
        good = self._good / max(1, self._arrived)
        return SimulationResult(self._arrived, good, hours, tuple(self._changes), tuple(self._moments), tuple(self._late))

    def _push(self, at: float, kind: int, what: object) -> None:
        self._number += 1
        heapq.heappush(self._events, (at, self._number, kind, what))

    def _arrive(self, now: float, prompt: float, answer: float) -> None:
        self._arrived += 1
        best, least = None, 1 << 30
        for group in self._prefill:  # requests go to the group with the fewest requests, as with a router
            if not group.draining and group.ready <= now and (number := group.finish_requests(now)) < least:
                best, least = group, number
        if best is None:
            best = min(self._prefill, key=lambda group: group.ready)
        self._push(best.add(now, prompt), _ENTER, (now, answer))

    def _enter(self, now: float, arrival: float, answer: float) -> None:
        """Let a request join decode, or wait for a slot."""
        best, least = None, SLOTS
        for group in self._decode:
            if not group.draining and group.ready <= now and len(group.leave) < least:
                best, least = group, len(group.leave)
        if best is None:
            self._queue.append((arrival, answer))
            return
        first = now + OVERHEAD - arrival
        self._seen.append((now, first > self._bound))
        best.advance(now)
        heapq.heappush(best.leave, (best.tokens + answer, now, answer, arrival, first))
        if (ends := best.next_end()) < best.planned:
            best.planned = ends
            self._push(ends, _LEAVE, best)

    def _leave(self, now: float, group: _Decode) -> None:
        group.planned = float("inf")
        group.advance(now)
        while group.leave and group.leave[0][0] <= group.tokens + 1e-6:
            _, joined, answer, arrival, first = heapq.heappop(group.leave)
            good = first <= self._trace.ttft and (now - joined) / answer <= self._trace.tbt
            self._good += good
            self._left += 1
            self._written += answer
            self._late.append((arrival, not good))
        if group.leave:
            group.planned = group.next_end()
            self._push(group.planned, _LEAVE, group)
        while self._queue and any(not one.draining and one.ready <= now and len(one.leave) < SLOTS for one in self._decode):
            self._enter(now, *self._queue.popleft())

    # --- control ------------------------------------------------------------------------------------------------------

    def _tick(self, now: float) -> None:
        for group in self._prefill:
            group.record_tick(now)
        self._prefill = [one for one in self._prefill if not (one.draining and not one.ends)]
        self._decode = [one for one in self._decode if not (one.draining and not one.leave)]
        if now <= self._trace.seconds:
            self._busy += TICK * (len(self._prefill) + len(self._decode))
            self._decide(now)
        self._push(now + TICK, _TICK, None)

    def _decide(self, now: float) -> None:
        sample, fleet = self._sample(now), Fleet(self._fleet(self._prefill, now), self._fleet(self._decode, now))
        if sample is not None:
            self._samples.append(sample)
        while self._samples and self._samples[0].at < now - KEPT:
            self._samples.popleft()
        size = self._controller(now, tuple(self._samples), fleet)
        if size != self._size:
            self._resize(now, self._prefill, size[0], _Prefill)
            self._resize(now, self._decode, size[1], _Decode)
            self._size = size
            self._changes.append((now, *size))
        waiting = sum(group.waiting for group in self._prefill)
        self._moments.append(PlotMoment(now, self._trace.rate(now), len(self._prefill), len(self._decode), waiting))

    def _resize(self, now: float, groups: list, size: int, make: type) -> None:  # type: ignore[type-arg]
        serving = [group for group in groups if not group.draining]
        for _ in range(size - len(serving)):
            groups.append(make(now, now + START))
        for group in sorted(serving, key=lambda group: -group.born)[: len(serving) - size] if size < len(serving) else ():
            group.draining = True

    def _fleet(self, groups: Sequence[_Group], now: float) -> RoleFleet:
        draining = sum(group.draining for group in groups)
        starting = sum(not group.draining and group.ready > now for group in groups)
        return RoleFleet(len(groups) - draining - starting, starting, draining, GPUS)

    def _sample(self, now: float) -> DemandSample | None:
        """Return the sample that the operator would get from the registries' summaries (docs/telemetry.md); None if it would
        get no sample at the time `now`.
        """
        counts = self._counts
        running = sum(len(group.leave) for group in self._decode)
        self._running.append(running)
        counts.append((self._arrived, self._left, self._written))
        if len(counts) > int(WINDOW / TICK) + 1:
            counts.popleft()
            self._running.popleft()
        while self._seen and self._seen[0][0] < now - WINDOW:
            self._seen.popleft()
        seconds = (len(counts) - 1) * TICK
        prompts = [
            (after[0] - before[0], after[1] - before[1])
            for before, after in ((group.done[0], group.done[-1]) for group in self._prefill)
        ]
        full = [work for work, group in zip(prompts, self._prefill, strict=True) if group.was_saturated]
        found = DemandSample(
            at=now,
            arrivals=(counts[-1][0] - counts[0][0]) / seconds,
            waiting=sum(group.waiting for group in self._prefill),
            running=sum(self._running) / len(self._running),
            running_now=running,
            requests=sum(each for each, _ in prompts) / seconds,
            prompt_tokens=sum(each for _, each in prompts) / seconds,
            ended=(counts[-1][1] - counts[0][1]) / seconds,
            output_tokens=(counts[-1][2] - counts[0][2]) / seconds,
            errors=0.0,
            late=sum(late for _, late in self._seen) / len(self._seen) if len(self._seen) >= FEW else None,
            saturated=CompletedWork(
                len(full), sum(each for each, _ in full) / WINDOW, sum(each for _, each in full) / WINDOW
            ),
            in_flight=self._arrived - self._left,
        )
        for begin, end, field in self._trace.missing:
            if begin <= now < end:
                if field == "all":
                    return None
                missing: dict[str, Any] = {field: None}
                found = found._replace(**missing)
        return found


def run_simulation(trace: Trace, controller: Controller, size: Size, seed: int = 1) -> SimulationResult:
    """Run a trace with a controller, beginning with `size` groups."""
    return Simulation(trace, controller, size, seed).run()
