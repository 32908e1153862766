"""The controllers that a simulation compares: the operator's, a fixed size, two other autoscaling rules, and an oracle."""

import math
from collections.abc import Sequence
from itertools import product

from ome_operator.core.demand import queues
from ome_operator.core.demand.decide import decide_size
from ome_operator.core.demand.facts import (
    DECODE,
    PREFILL,
    DemandSample,
    Fleet,
    GroupBounds,
    LearnedProperties,
    ScalingState,
    SizeDecision,
    Targets,
)
from ome_operator.core.demand.removal_holds import LOWER_FOR
from ome_operator.simulation import engines
from ome_operator.simulation.run import Size
from ome_operator.simulation.traces import Trace

HIGH = 16
"""Largest number of groups of a role."""


def targets(trace: Trace) -> Targets:
    """Return the targets of a service that gets this trace."""
    return Targets(trace.ttft, trace.tbt, bounds={PREFILL: GroupBounds(1, HIGH), DECODE: GroupBounds(1, HIGH)})


def mean_work(trace: Trace, at: float) -> tuple[float, float]:
    """Return the mean seconds for which a request occupies a prefill group at the time `at`, and its mean number of output
    tokens.
    """
    kinds = trace.kinds(at)
    service = sum(kind.share * engines.prefill_seconds(kind.prompt) for kind in kinds)
    return service, sum(kind.share * kind.answer for kind in kinds)


def needed_groups(trace: Trace, at: float, rate: float, busy: float = 1.0) -> Size:
    """Return the numbers of prefill and decode groups that serve `rate / busy` requests per second within the targets,
    according to the true service times. `busy` is the planned utilization. `at` is the time in the trace, in seconds.
    """
    service, answer = mean_work(trace, at)
    longest = max(engines.prefill_seconds(kind.prompt) for kind in trace.kinds(at))
    patience = max(0.0, trace.ttft - longest - engines.OVERHEAD)
    prefill = queues.prefill_groups(rate / busy, service, patience, 0.95) or HIGH
    batch = next(number for number in range(engines.SLOTS, 0, -1) if engines.step_seconds(number) <= trace.tbt)
    decode = math.ceil(rate / busy * answer * engines.step_seconds(batch) / batch)
    return min(max(prefill, 1), HIGH), min(max(decode, 1), HIGH)


def peak(trace: Trace) -> Size:
    """Return the smallest size that serves every moment of a trace."""
    sizes = [needed_groups(trace, at, trace.rate(at)) for at in range(0, math.ceil(trace.seconds), 10)]
    return max(size[0] for size in sizes), max(size[1] for size in sizes)


class OperatorController:
    """The operator's own controller, in the mode Apply. `learned` contains measurements from before the trace."""

    def __init__(self, trace: Trace, learned: LearnedProperties = engines.MEASURED) -> None:
        self._targets, self.state = targets(trace), ScalingState(learned=learned)
        self.decisions = list[SizeDecision]()

    def __call__(self, now: float, samples: Sequence[DemandSample], fleet: Fleet) -> Size:
        """Return the wanted size."""
        made, self.state = decide_size(samples, fleet, self._targets, self.state, now, engines.PLANNED)
        if not self.decisions or (self.decisions[-1].size, self.decisions[-1].hold) != (made.size, made.hold):
            self.decisions.append(made)
        return made.prefill, made.decode


class FixedController:
    """A controller that always wants the same numbers of groups."""

    def __init__(self, size: Size) -> None:
        self._size = size

    def __call__(self, now: float, samples: Sequence[DemandSample], fleet: Fleet) -> Size:
        """Return the wanted size, which is always the same. The parameters have no effect."""
        return self._size


class Queue:
    """A controller that scales as KEDA does, by the requests that the engines report.

    A prefill group is planned for 8 waiting requests. A decode group is planned for 600 running requests, because its queue
    is nearly always empty.

    The rules are those of the HorizontalPodAutoscaler that KEDA creates. Its tolerance is 10 %. Within 15 s, the size at
    most doubles or grows by four, whichever is more. The size shrinks only to the largest size that was recommended in the
    last five minutes.
    """

    THRESHOLDS, PAUSE, STABLE = (8.0, 600.0), 30.0, 300.0

    def __init__(self, size: Size) -> None:
        self._size, self._due = size, 0.0
        self._past = list[tuple[float, Size]]()

    def __call__(self, now: float, samples: Sequence[DemandSample], fleet: Fleet) -> Size:
        """Return the wanted size."""
        if now < self._due or not samples or now - samples[-1].at > 20:
            return self._size
        newest = samples[-1]
        if newest.waiting is None or newest.running_now is None:
            return self._size
        self._due = now + self.PAUSE
        loads = (newest.waiting, newest.running_now)
        asked = tuple(self._asked(*each) for each in zip(loads, self.THRESHOLDS, self._size, strict=True))
        self._past = [(at, size) for at, size in self._past if at > now - self.STABLE] + [(now, (asked[0], asked[1]))]
        most = [max(size[place] for _, size in self._past) for place in (0, 1)]
        prefill, decode = (
            want if want >= have else min(have, top) for want, have, top in zip(asked, self._size, most, strict=True)
        )
        self._size = prefill, decode
        return self._size

    def _asked(self, load: float, threshold: float, present: int) -> int:
        if abs(load / (threshold * present) - 1) <= 0.1:
            return present
        return min(max(math.ceil(load / threshold), 1), HIGH, max(2 * present, present + 4))


class Oracle:
    """A controller that knows the true rates and service times until now, but not the future. Comparisons use the oracle
    with the best result in a grid of parameters.
    """

    def __init__(self, trace: Trace, busy: float, ahead: float, keep: float, clear: float, late: float = 0.0) -> None:
        """Initialize the controller.

        `busy` is the planned utilization. The following parameters are in seconds: the present slope of the rate is assumed
        to continue for `ahead`; a larger number of groups is kept for `keep`; a backlog should be served within `clear` (0:
        the backlog is ignored); the controller learns the lengths of requests after `late`.
        """
        self._trace, self._busy, self._ahead, self._keep, self._clear = trace, busy, ahead, keep, clear
        self._late = late
        self._past = list[tuple[float, Size]]()

    def __call__(self, now: float, samples: Sequence[DemandSample], fleet: Fleet) -> Size:
        """Return the wanted size."""
        rate = self._trace.rate(now)
        before = self._trace.rate(max(0.0, now - 10.0))
        # in a step, the rate has no slope
        slope = (rate - before) / 10.0 if abs(rate - before) < 0.1 * self._trace.peak else 0.0
        waiting = samples[-1].waiting or 0 if samples else 0
        extra = waiting / self._clear if self._clear and waiting > 2 * fleet.prefill.ready else 0.0
        expected = max(0.0, rate + max(0.0, slope * self._ahead)) + extra
        size = needed_groups(self._trace, max(0.0, now - self._late), expected, self._busy)
        self._past = [(at, one) for at, one in self._past if at > now - self._keep]
        self._past.append((now, size))
        return max(one[0] for _, one in self._past), max(one[1] for _, one in self._past)


class OneByOneController:
    """A controller that adds groups when an oracle adds them, and removes groups by the rules of the operator: one at a
    time, if fewer groups have been enough for `LOWER_FOR` seconds, the last change is at least `Targets.cool_down` seconds
    ago, and no group is starting or drained.
    """

    def __init__(self, trace: Trace, oracle: Oracle) -> None:
        self._oracle, self._pause = oracle, targets(trace).cool_down
        self._size: Size | None = None
        self._changed = 0.0
        self._lower: list[float | None] = [None, None]

    def __call__(self, now: float, samples: Sequence[DemandSample], fleet: Fleet) -> Size:
        """Return the wanted size."""
        asked = self._oracle(now, samples, fleet)
        size = self._size or asked
        grown = max(size[0], asked[0]), max(size[1], asked[1])
        if grown != size:
            self._lower, self._changed = [None, None], now
        else:
            lower = zip(self._lower, asked, size, strict=True)
            self._lower = [(now if since is None else since) if enough < have else None for since, enough, have in lower]
            grown = self._smaller(now, size, fleet)
        self._size = grown
        return grown

    def _smaller(self, now: float, size: Size, fleet: Fleet) -> Size:
        since = {role: at for role, at in enumerate(self._lower) if at is not None and now - at >= LOWER_FOR}
        moving = any(role.starting or role.draining for role in (fleet.prefill, fleet.decode))
        if not since or moving or now - self._changed < self._pause:
            return size
        self._changed = now
        role = min(since, key=lambda role: since[role])
        return size[0] - (role == 0), size[1] - (role == 1)


BUSY, AHEAD, KEEP, CLEAR = (0.8, 0.9, 1.0), (0.0, 60.0, 120.0), (0.0, 300.0), (0.0, 60.0)
"""Values of the parameters of `Oracle` in the grid."""


def grid(trace: Trace) -> tuple[tuple[float, float, float, float], ...]:
    """Return (busy, ahead, keep, clear) of each point of the grid for a trace.

    A parameter without effect on this trace has only its first value: a load without slopes needs no look ahead, and a
    constant load has no backlog and no peaks.
    """
    if trace.constant:
        return tuple(product(BUSY, AHEAD[:1], KEEP[:1], CLEAR[:1]))
    return tuple(product(BUSY, AHEAD if trace.slopes else AHEAD[:1], KEEP, CLEAR))
