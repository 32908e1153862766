"""Estimate the present rate of arrivals, the rate at the time when a group that is added now will serve, and how long the
oldest waiting request has waited.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from ome_operator.core.demand.facts import WINDOW, DemandSample, nearest_sample

POINTS = 5
"""Number of windows to which a trend is fitted."""
FEW, UNSURE = 3, 2.0
"""If there are fewer than `FEW` windows, for example after a restart of the operator, `UNSURE` standard errors are
subtracted from the estimated rate of arrivals, so that no group is added because of a chance deviation. Waiting requests
still cause groups to be added."""
SIGNIFICANT = 4.0
"""Number of standard errors by which a slope has to differ from 0 to be treated as a trend. A smaller slope is treated as
chance."""
STEP = 4.5
"""Number of standard errors by which the newest arrivals have to deviate to be treated as a step of the load. Thousands of
decisions are made each day, so a limit of 3 would report several steps a day for a constant load.
"""
UNLIKELY = 25.9
"""Limit of the sum of squared deviations of the rates from a fitted line, in units of the variance. A load that is constant
or grows linearly exceeds this limit once in 100,000 windows (chi-squared distribution with 3 degrees of freedom). A day
has 1,440 windows."""
RECENT = 20.0
"""Length in seconds of the period before now that is compared with the time before it to detect a step."""
FASTEST = 10.0
"""Length in seconds of a second, shorter period before now. The period is used like `RECENT`, but only to detect an
increase of the load, because a large increase is significant after this short time already."""


class ArrivalForecast(NamedTuple):
    """The present and the expected rate of arrivals, in requests per second."""

    now: float
    ahead: float
    """The expected rate at the end of the horizon."""
    error: float
    """Standard error of `now`, in requests per second."""
    kind: str
    """Kind of the load that was found: `steady`, `trend` or `step`."""


def forecast(samples: Sequence[DemandSample], horizon: float) -> ArrivalForecast | None:
    """Return the present rate and the rate in `horizon` seconds; None if the newest rate is unknown.

    `samples` are in ascending order of time. Method: a line is fitted by least squares to the means of up to `POINTS`
    windows that do not overlap. For independent arrivals (Poisson), the usual size of chance deviations from the line is
    known. If the windows, or the arrivals of the last `RECENT` or `FASTEST` seconds, deviate by far more, the load has made
    a step, and only the newest arrivals are used. Otherwise the line is used if its slope is significant, and the mean if it
    is not. A trend is extrapolated for at most the time over which it was observed.
    """
    if not samples or samples[-1].arrivals is None:
        return None
    rates = _windows(samples)
    found = _line(rates, horizon)
    for length in (RECENT, FASTEST):
        recent = _recent(samples, length)
        if recent is not None and (length == RECENT or recent > found.now):
            noise = math.sqrt(2 * max(recent, found.now, 1 / length) / length)
            if abs(recent - found.now) > STEP * noise:
                return ArrivalForecast(recent, recent, noise / math.sqrt(2), "step")
    return found


def _line(rates: Sequence[float], horizon: float) -> ArrivalForecast:
    """Return the forecast from the rates of consecutive windows, the newest first. `horizon` is the number of seconds from
    now for which the forecast is wanted.
    """
    newest, mean, count = rates[0], sum(rates) / len(rates), len(rates)
    alone = math.sqrt(max(newest, 1 / WINDOW) / WINDOW)
    if count < FEW:
        sure = max(0.0, newest - UNSURE * alone)
        return ArrivalForecast(sure, sure, alone, "steady")
    middle = -(count - 1) / 2 * WINDOW
    spread = sum((-k * WINDOW - middle) ** 2 for k in range(count))
    tilt = sum((-k * WINDOW - middle) * rate for k, rate in enumerate(rates)) / spread
    rest = sum((rate - mean - tilt * (-k * WINDOW - middle)) ** 2 for k, rate in enumerate(rates))
    variance = max(mean, 1 / WINDOW) / WINDOW
    if rest > UNLIKELY * variance:
        return ArrivalForecast(newest, newest, alone, "step")
    if abs(tilt) <= SIGNIFICANT * math.sqrt(variance / spread):
        return ArrivalForecast(mean, mean, math.sqrt(variance / count), "steady")
    end = WINDOW / 2 - middle
    now = max(0.0, mean + tilt * end)
    error = math.sqrt(variance * (1 / count + end * end / spread))
    ahead = now + tilt * min(horizon, count * WINDOW)
    return ArrivalForecast(now, max(0.0, ahead), error, "trend")


def _windows(samples: Sequence[DemandSample]) -> list[float]:
    """Return the rates of consecutive windows, the newest first, which overlap as little as the times of the samples permit.
    A window whose rate is unknown ends the list.
    """
    found, sample = list[float](), nearest_sample(samples, samples[-1].at)
    while sample is not None and sample.arrivals is not None and len(found) < POINTS:
        found.append(sample.arrivals)
        sample = nearest_sample(samples, sample.at - WINDOW)
    return found


def _recent(samples: Sequence[DemandSample], length: float) -> float | None:
    """Return the rate of about the last `length` seconds; None if it is unknown.

    The samples contain only means over windows of `WINDOW` seconds. While a window moves on by `length` seconds, its mean
    changes by (rate of the part that is added − rate of the part that is dropped) · length / WINDOW. The rate of the
    dropped part is taken from the window that ended when the newest window began.
    """
    newest, before = samples[-1], nearest_sample(samples[:-1], samples[-1].at - length)
    if newest.arrivals is None or before is None or before.arrivals is None:
        return None
    length = newest.at - before.at
    oldest = _at(samples, newest.at - WINDOW)
    if oldest is None:
        oldest = _at(samples, newest.at - WINDOW - length)
    if oldest is None:
        return None
    return max(0.0, (newest.arrivals - before.arrivals) * WINDOW / length + oldest)


def _at(samples: Sequence[DemandSample], at: float) -> float | None:
    """Return the rate of arrivals in the sample nearest to the time `at`. Return None if there is no such sample, or if its
    rate is unknown.
    """
    near = nearest_sample(samples, at)
    return near.arrivals if near is not None else None


def oldest_wait(samples: Sequence[DemandSample]) -> float | None:
    """Return the seconds for which the oldest waiting request has waited; None if it is unknown.

    Requests are served in the order of their arrival, so the waiting requests are those that arrived last. Arrivals are
    therefore added up, from the newest backwards, until their sum is the number of waiting requests.
    """
    if not samples or samples[-1].waiting is None or samples[-1].arrivals is None:
        return None
    left, age = float(samples[-1].waiting), 0.0
    rate, end = samples[-1].arrivals, samples[-1].at
    for sample in reversed(samples):
        if left <= 0:
            break
        rate = sample.arrivals if sample.arrivals is not None else rate
        begin = sample.at - WINDOW if sample is samples[0] else sample.at
        length = max(0.0, end - begin)
        if rate > 0 and left <= rate * length:
            return age + left / rate
        left, age, end = left - rate * length, age + length, begin
    return age
