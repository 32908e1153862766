"""Learn the service rates of the groups and the time of a start from what the service shows."""

import math

from ome_operator.core.demand.facts import DECODE, Curve, DemandSample, Fleet, Learned, PrefillWork

NEW = 0.2
"""Weight of a new measurement."""
MOST = 1000
"""Number up to which measurements are counted."""
STEP = 1.4
"""Ratio between the numbers of requests of two neighbouring points of the curve of decode."""
STARTS = 5
"""Number of starts that are kept."""
FIRST_START = 300.0
"""Seconds of a start while this service has had none. It is long, so that the first decision looks far ahead."""
STABLE = 0.1
"""Largest relative change of the requests in decode at which Little's law is used."""


def learned(before: Learned, sample: DemandSample, fleet: Fleet) -> Learned:
    """Return what is known after a new sample.

    A prefill group in which requests waited during the whole window was busy all the time, so the requests that it
    completed took one second of a group for each second. Without an estimate, this is the estimate.
    """
    return _prefill(before, sample)._replace(curve=_decode(before.curve, sample, fleet))


def _prefill(before: Learned, sample: DemandSample) -> Learned:
    if not sample.saturated or sample.saturated_requests <= 0:
        return before
    if before.work is None:
        each = sample.saturated / sample.saturated_requests
        prompt = sample.saturated_tokens / sample.saturated_requests
        # Without an estimate, the time is assumed to be proportional to the tokens.
        work = PrefillWork(0.0, each / prompt) if prompt > 0 else PrefillWork(each, 0.0)
        return before._replace(work=work, scale=1.0, measured=1)
    planned = before.work.seconds(sample.saturated_requests, sample.saturated_tokens)
    if planned <= 0:
        return before
    weight = NEW if before.measured else 1.0
    scale = before.scale + weight * (sample.saturated / planned - before.scale)
    return before._replace(scale=scale, measured=min(before.measured + 1, MOST))


def _decode(before: Curve, sample: DemandSample, fleet: Fleet) -> Curve:
    groups = fleet.role(DECODE).ready
    if not groups or not sample.running or not sample.output_tokens or sample.running_now is None:
        return before
    if abs(sample.running_now - sample.running) > STABLE * sample.running or sample.running < groups:
        return before
    return observed(before, sample.running / groups, sample.running / sample.output_tokens)


def observed(curve: Curve, batch: float, seconds: float) -> Curve:
    """Return the curve after an observation: with `batch` requests in a group, a token took `seconds` seconds.

    The curve has a point for each interval of the batch between two powers of `STEP`, which moves towards the observations
    in that interval. So a constant load does not let the other points be forgotten.
    """
    place = round(math.log(max(batch, 1.0)) / math.log(STEP))
    points = {round(math.log(max(x, 1.0)) / math.log(STEP)): (x, y) for x, y in curve}
    x, y = points.get(place, (batch, seconds))
    points[place] = x + NEW * (batch - x), y + NEW * (seconds - y)
    return tuple(points[each] for each in sorted(points))


def rising(curve: Curve) -> Curve:
    """Return the curve without the points that are faster than a point with fewer requests, which noise causes."""
    found = list[tuple[float, float]]()
    for x, y in curve:
        found.append((x, max(y, found[-1][1] if found else 0.0)))
    return tuple(found)


def with_start(before: Learned, seconds: float) -> Learned:
    """Return what is known after a group has served for the first time, `seconds` after it was created."""
    return before._replace(starts=(*before.starts, seconds)[-STARTS:])


def cold_start(known: Learned) -> float:
    """Return the seconds that a start takes: the median of the last starts."""
    if not known.starts:
        return FIRST_START
    return sorted(known.starts)[len(known.starts) // 2]
