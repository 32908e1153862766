"""Measure how fast the groups of a service serve requests, and how long a group takes to start."""

import math
from collections.abc import Callable, Sequence

from ome_operator.core.demand.curves import STEP
from ome_operator.core.demand.facts import (
    DECODE,
    NO_PLAN,
    PREFILL,
    WINDOW,
    CompletedWork,
    Curve,
    DemandSample,
    Fleet,
    LearnedProperties,
    PlannedSpeeds,
    PrefillWork,
    nearest_sample,
)

NEW = 0.2
"""Weight of a new measurement when it is averaged with the earlier measurements, as a fraction of 1."""
MOST = 1000
"""Largest value of `LearnedProperties.measured`. Further measurements are not counted."""
STARTS = 5
"""Number of the latest starts whose durations are kept."""
FIRST_START = 300.0
"""Assumed duration of a start in seconds until the first start was measured. The value is high, so that the first decision
looks far ahead."""
STABLE = 0.1
"""A window is used as a measurement only if the present number of requests in decode differs from its mean by at most
this fraction of the mean, because Little's law holds only for a steady load."""


def update_measurements(
    before: LearnedProperties,
    sample: DemandSample,
    fleet: Fleet,
    planned: PlannedSpeeds = NO_PLAN,
    on_time: Callable[[int, float], float | None] | None = None,
    late: bool = False,
) -> LearnedProperties:
    """Return the measurements, updated with a new sample.

    A prefill group in which requests waited during the whole window was busy all the time. The length of the window,
    divided by the number of requests that the group completed in it, is therefore the time that a request occupies a group.
    Before the first such measurement, a group in which requests waited at each reading of the window gives a first
    estimate. The group may have been idle between two readings. So this estimate may be too long but not too short, and
    only a shorter estimate replaces it. `planned` states how the time depends on the length of the prompt. Without a
    prediction, the time is assumed to be proportional to the length.

    `on_time` is called with a number of groups and a rate in requests per second. It returns the longest time in seconds
    that a request may occupy a group so that these groups serve this rate in time. `on_time` is None if the fleet has
    changed within about a window, or if requests are late but have not been late for minutes. Otherwise `late` is True if
    requests have been late for minutes, and False if they were in time. If requests were in time, the result of `on_time`
    is an upper bound of the time of a request, even if no request waits. If requests were late, the time is longer than the
    result. In this case, an earlier bound below the result, for example from a faster revision, is dropped.
    """
    after = _prefill(before, sample, planned)
    if on_time is not None:
        after = after._replace(shown=_shown(before.shown, sample, fleet, on_time, late))
    return after._replace(curve=_decode(before.curve, sample, fleet))


def _prefill(before: LearnedProperties, sample: DemandSample, planned: PlannedSpeeds) -> LearnedProperties:
    certain = sample.saturated.groups > 0 and sample.saturated.requests > 0
    seen = sample.saturated if certain else sample.queued
    if not seen.groups or seen.requests <= 0 or (before.measured and not certain):
        return before
    work = before.work or planned.work or _proportional(seen)
    expected = work.seconds(seen.requests, seen.tokens)
    if expected <= 0:
        return before
    scale = seen.groups / expected
    if before.work is not None and before.measured:
        scale = before.scale + NEW * (scale - before.scale)
    elif before.work is not None and not certain:
        scale = min(before.scale, scale)
    return before._replace(work=work, scale=scale, measured=min(before.measured + certain, MOST))


def _proportional(completed_work: CompletedWork) -> PrefillWork:
    """Return the time that a request occupies a prefill group, derived from the completed requests `completed_work`. The
    time is proportional to the tokens of the prompt.
    """
    if completed_work.tokens > 0:
        return PrefillWork(0.0, completed_work.groups / completed_work.tokens)
    return PrefillWork(completed_work.groups / completed_work.requests, 0.0)


def _shown(
    before: tuple[float, float] | None,
    sample: DemandSample,
    fleet: Fleet,
    on_time: Callable[[int, float], float | None],
    late: bool,
) -> tuple[float, float] | None:
    bound = _bound(sample, fleet, on_time)
    if bound is None:
        return before
    tokens, seconds = bound
    shorter = before is not None and shown_seconds(before, tokens) <= seconds
    if late:
        return None if shorter else before
    return before if shorter else (tokens, seconds)


def contradicts_measurement(
    work: PrefillWork | None, sample: DemandSample, fleet: Fleet, on_time: Callable[[int, float], float | None]
) -> bool:
    """Return whether the groups would serve the load in time if a request occupied a group for the time `work`. If the
    result is True and requests are late nevertheless, a request occupies a group for longer than `work`.
    """
    bound = _bound(sample, fleet, on_time)
    return work is not None and bound is not None and work.seconds(1.0, bound[0]) <= bound[1]


def _bound(sample: DemandSample, fleet: Fleet, on_time: Callable[[int, float], float | None]) -> tuple[float, float] | None:
    """Return the mean number of prompt tokens of a request, and the longest time in seconds that such a request may occupy
    a prefill group without being late. Return None if the length or the time is unknown.
    """
    groups = fleet.role(PREFILL).existing_groups
    if not groups or not sample.requests or not sample.prompt_tokens:
        return None
    seconds = on_time(groups, sample.requests)
    return None if seconds is None else (sample.prompt_tokens / sample.requests, seconds)


def shown_seconds(shown: tuple[float, float], tokens: float) -> float:
    """Return an upper bound of the time in seconds that a prompt of `tokens` tokens occupies a prefill group. It is derived
    from the bound `shown`, which was observed for another length (`LearnedProperties.shown`): a shorter prompt takes at most
    the same time, and a longer prompt at most proportionally longer.
    """
    return shown[1] * max(1.0, tokens / shown[0])


def _decode(before: Curve, sample: DemandSample, fleet: Fleet) -> Curve:
    groups = fleet.role(DECODE).ready
    if not groups or not sample.running or not sample.output_tokens or sample.running_now is None:
        return before
    if abs(sample.running_now - sample.running) > STABLE * sample.running or sample.running < groups:
        return before
    return observe_point(before, sample.running / groups, sample.running / sample.output_tokens)


def newest_steady_sample(samples: Sequence[DemandSample]) -> DemandSample:
    """Return the newest sample. Its output tokens are left out if they may differ from the tokens that were generated in its
    window.

    An engine may count all tokens of a request when the request ends, as SGLang does. The sample then lacks the tokens of
    requests that have not ended, and contains tokens that were generated before the window. On average, half of the tokens
    of such a request are counted in the wrong window. If the number of running requests about a window ago is unknown, the
    difference is unknown, too.
    """
    newest, before = samples[-1], nearest_sample(samples[:-1], samples[-1].at - WINDOW)
    if before is None or before.running_now is None or newest.running_now is None or not newest.ended:
        return newest._replace(output_tokens=None)
    missing = abs(newest.running_now - before.running_now) / 2 / (newest.at - before.at)
    return newest if missing <= STABLE * newest.ended else newest._replace(output_tokens=None)


def observe_point(curve: Curve, batch: float, seconds: float) -> Curve:
    """Return the curve after an observation: with `batch` requests in a group, a token took `seconds` seconds.

    The batch sizes are divided into intervals whose bounds grow by the factor `STEP`. The curve has at most one point in
    each interval, and only observations in this interval move it. The other points are therefore kept under a constant load.
    """
    place = round(math.log(max(batch, 1.0)) / math.log(STEP))
    points = {round(math.log(max(x, 1.0)) / math.log(STEP)): (x, y) for x, y in curve}
    x, y = points.get(place, (batch, seconds))
    points[place] = x + NEW * (batch - x), y + NEW * (seconds - y)
    return tuple(points[each] for each in sorted(points))


def with_start(before: LearnedProperties, seconds: float) -> LearnedProperties:
    """Return the measurements after adding `seconds`, the duration of another start of a group."""
    return before._replace(starts=(*before.starts, seconds)[-STARTS:])


def cold_start(known: LearnedProperties) -> float:
    """Return the seconds that a start takes: the median of the last starts."""
    if not known.starts:
        return FIRST_START
    return sorted(known.starts)[len(known.starts) // 2]
