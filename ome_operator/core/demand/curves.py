"""The time between tokens of a decode group as a function of the number of its requests: a curve through measured points."""

import math
from itertools import pairwise

from ome_operator.core.demand.facts import FULL, Curve

STEP = 1.4
"""Ratio between the numbers of requests at two neighboring points of a measured curve."""
FLATTEST = 0.25
"""Smallest assumed slope above the last point of a curve, as a fraction of the slope of the line from the origin to
this point."""
SHOWN = 0.9
"""A group is known to serve a number of requests within the target if the time between tokens that was measured with this
number of requests is at most this fraction of the target."""


def make_monotonic(curve: Curve) -> Curve:
    """Return the curve with times that never decrease. If a point has a shorter time than a point with fewer requests, the
    difference is noise, and the point gets the longer time.
    """
    found = list[tuple[float, float]]()
    for x, y in curve:
        found.append((x, max(y, found[-1][1] if found else 0.0)))
    return tuple(found)


def seconds_at(curve: Curve, batch: float) -> float:
    """Return the time between tokens with `batch` requests. `curve` is not empty. Between points the time is interpolated,
    below the first point it is constant, and above the last point the line through the last two points is extended.
    """
    if batch <= curve[0][0] or len(curve) == 1:
        return curve[0][1]
    place = next((number for number, (x, _) in enumerate(curve) if x >= batch), len(curve) - 1)
    return curve[place][1] + _slope(curve[place - 1], curve[place]) * (batch - curve[place][0])


def extend_curve(measured: Curve, planned: Curve) -> Curve:
    """Return the measured curve, continued to smaller and larger numbers of requests in the shape of the planned curve: a
    planned time is multiplied by the ratio of measured to planned time at the nearest measured point. If one of the
    curves is empty, return the other curve.

    The planned point of a full KV cache (`FULL`) is a limit and not a part of the shape. The point is kept if it has more
    requests than every measured point. Otherwise it is dropped, because the measurements have shown that the cache holds
    more than was planned.
    """
    shape = tuple((x, y) for x, y in planned if y < FULL)
    if not measured or not shape:
        return measured or planned
    (low, first), (high, last) = measured[0], measured[-1]
    below, above = first / seconds_at(shape, low), last / seconds_at(shape, high)
    limits = tuple((x, y) for x, y in planned if y >= FULL and x > high)
    # The number of requests at which the KV cache is full stays a point of the curve, even if it is close to `high`.
    most = shape[-1][0] if limits else math.inf
    return (
        *((x, y * below) for x, y in shape if STEP * x <= low),
        *measured,
        *((x, y * above) for x, y in shape if x >= STEP * high or x == most > high),
        *limits,
    )


def batch_within(curve: Curve, target: float) -> float:
    """Return the number of requests in a decode group at which the time between tokens reaches `target` seconds; 0 if no
    number of requests is fast enough.

    `curve` is not empty, and its times rise (`make_monotonic`). Between points the time is interpolated. Below the first
    point and above the last point, a line is extended. It runs through this point and the nearest point whose number of
    requests differs by at least the factor `STEP`, because noise determines the slope between closer points. If there is no
    such point, the line runs through the most distant point. A time without load cannot be negative, so an extended line is
    never steeper than the line from the origin to its point. A curve with a single point is extended along the line from
    the origin. In this case, the result is a lower bound if the target is above the time of the point, and an upper bound
    if the target is below that time.
    """
    (x0, y0), (x1, y1) = curve[0], curve[-1]
    if len(curve) == 1:
        return x0 * target / y0
    if y0 > target:
        other = next((point for point in curve if point[0] >= STEP * x0), curve[-1])
        slope = min(_slope(curve[0], other), y0 / x0)
        alone = y0 - slope * x0
        return (target - alone) / slope if target > alone else 0.0
    for one, two in pairwise(curve):
        if two[1] > target:
            return one[0] + (target - one[1]) / _slope(one, two)
    other, steepest = next((point for point in reversed(curve) if STEP * point[0] <= x1), curve[0]), y1 / x1
    return x1 + (target - y1) / min(max(_slope(other, curve[-1]), FLATTEST * steepest), steepest)


def shown_rate(measured: Curve, target: float) -> float:
    """Return the largest number of tokens per second that a decode group was measured to generate within the target; 0 if
    every measured time between tokens is above the fraction `SHOWN` of the target.
    """
    return max((x / y for x, y in measured if y <= SHOWN * target), default=0.0)


def _slope(one: tuple[float, float], two: tuple[float, float]) -> float:
    return (two[1] - one[1]) / (two[0] - one[0])
