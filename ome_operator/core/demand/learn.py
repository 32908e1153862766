"""Measure how fast the groups of a service serve requests, and how long a group takes to start."""

import math

from ome_operator.core.demand.facts import DECODE, Curve, DemandSample, Fleet, Learned, PrefillWork

NEW = 0.2
"""Weight of a new measurement."""
MOST = 1000
"""Largest value of the counter of measurements."""
STEP = 1.4
"""Ratio of the numbers of requests at neighbouring points of the curve of decode."""
STARTS = 5
"""Number of starts that are kept."""
FIRST_START = 300.0
"""Assumed seconds of a start until the first start was measured. The value is long, so that the first decision looks far
ahead.
"""
STABLE = 0.1
"""Largest relative difference between the present and the mean number of requests in decode at which a window is used as a
measurement, because Little's law holds only for a steady load.
"""


def learned(before: Learned, sample: DemandSample, fleet: Fleet) -> Learned:
    """Return the measurements, updated with a new sample.

    A prefill group in which requests waited during the whole window was busy all the time. The length of the window, divided
    by the number of requests that it completed, is therefore the time that a request occupies a group. If there is no
    estimate yet, this measurement becomes the estimate. Before the first such measurement, a group in which requests waited
    at each reading of the window gives a provisional estimate. The group may have been idle between two readings, so this
    estimate is at most too slow, and only a faster one replaces it.
    """
    return _prefill(before, sample)._replace(curve=_decode(before.curve, sample, fleet))


def _prefill(before: Learned, sample: DemandSample) -> Learned:
    if not sample.saturated or sample.saturated_requests <= 0:
        return _queued(before, sample)
    if before.work is None:
        work = _proportional(sample.saturated, sample.saturated_requests, sample.saturated_tokens)
        return before._replace(work=work, scale=1.0, measured=1)
    planned = before.work.seconds(sample.saturated_requests, sample.saturated_tokens)
    if planned <= 0:
        return before
    weight = NEW if before.measured else 1.0
    scale = before.scale + weight * (sample.saturated / planned - before.scale)
    return before._replace(scale=scale, measured=min(before.measured + 1, MOST))


def _queued(before: Learned, sample: DemandSample) -> Learned:
    """Return what is known after a sample without a saturated group."""
    if before.measured or not sample.queued or sample.queued_requests <= 0:
        return before
    if before.work is None:
        work = _proportional(sample.queued, sample.queued_requests, sample.queued_tokens)
        return before._replace(work=work, scale=1.0)
    planned = before.work.seconds(sample.queued_requests, sample.queued_tokens)
    return before._replace(scale=min(before.scale, sample.queued / planned)) if planned > 0 else before


def _proportional(groups: float, requests: float, tokens: float) -> PrefillWork:
    """Return the time of a prefill group for a request, proportional to the tokens of its prompt, if so many groups complete
    these requests and prompt tokens a second.
    """
    return PrefillWork(0.0, groups / tokens) if tokens > 0 else PrefillWork(groups / requests, 0.0)


def _decode(before: Curve, sample: DemandSample, fleet: Fleet) -> Curve:
    groups = fleet.role(DECODE).ready
    if not groups or not sample.running or not sample.output_tokens or sample.running_now is None:
        return before
    if abs(sample.running_now - sample.running) > STABLE * sample.running or sample.running < groups:
        return before
    return observed(before, sample.running / groups, sample.running / sample.output_tokens)


def observed(curve: Curve, batch: float, seconds: float) -> Curve:
    """Return the curve after an observation: with `batch` requests in a group, a token took `seconds` seconds.

    The batch sizes are divided into intervals whose bounds grow by the factor `STEP`. The curve has at most one point in
    each interval, and only observations in this interval move it. The other points are therefore kept under a constant load.
    """
    place = round(math.log(max(batch, 1.0)) / math.log(STEP))
    points = {round(math.log(max(x, 1.0)) / math.log(STEP)): (x, y) for x, y in curve}
    x, y = points.get(place, (batch, seconds))
    points[place] = x + NEW * (batch - x), y + NEW * (seconds - y)
    return tuple(points[each] for each in sorted(points))


def rising(curve: Curve) -> Curve:
    """Return the curve in which no point is faster than a point with fewer requests: such a point is due to noise, and gets
    the time of the slower point.
    """
    found = list[tuple[float, float]]()
    for x, y in curve:
        found.append((x, max(y, found[-1][1] if found else 0.0)))
    return tuple(found)


def with_start(before: Learned, seconds: float) -> Learned:
    """Return the measurements with another start, which took `seconds` seconds."""
    return before._replace(starts=(*before.starts, seconds)[-STARTS:])


def cold_start(known: Learned) -> float:
    """Return the seconds that a start takes: the median of the last starts."""
    if not known.starts:
        return FIRST_START
    return sorted(known.starts)[len(known.starts) // 2]
