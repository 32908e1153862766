"""Compute how many groups a role needs for a demand (docs/demand.md explains the formulas)."""

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

MOST = 512
"""Largest number of groups that is tried."""


@cache
def _blocked(servers: int, load: float) -> float:
    """Return the share of requests that find all servers busy if requests cannot wait (Erlang B, computed by recurrence)."""
    share = 1.0
    for number in range(1, servers + 1):
        share = load * share / (number + load * share)
    return share


def late_share(servers: int, load: float, service: float, patience: float) -> float:
    """Return the share of requests that wait longer than `patience` seconds for one of the servers.

    `load` is the arrivals per second times `service`, the mean seconds of a request in a server. Method: M/M/c, that is,
    Erlang C for the share that waits, whose wait is exponential with the rate (servers − load) / service.
    """
    if servers <= load:
        return 1.0
    blocked = _blocked(servers, round(load, 3))
    waits = blocked / (1 - load / servers * (1 - blocked))
    return waits * math.exp(-(servers - load) * patience / service)


def prefill_groups(rate: float, service: float, patience: float, share: float) -> int | None:
    """Return the smallest number of prefill groups in which at most a share of `1 - share` of the requests waits longer
    than `patience` seconds; None if no number is enough.

    `rate` is the arrivals per second, and `service` the mean seconds of a request in a group.
    """
    if patience < 0:
        return None
    load = rate * service
    first = max(1, math.floor(load))
    return next((n for n in range(first, MOST) if late_share(n, load, service, patience) <= 1 - share), None)


def decode_batch(curve: Sequence[tuple[float, float]], target: float) -> float:
    """Return the number of requests in a decode group at which the time between tokens reaches `target` seconds; 0 if it is
    longer even with the fewest requests.

    `curve` contains at least one pair of requests and seconds, in ascending order. Between pairs the time is interpolated.
    Below the first pair it is the time of this pair, and above the last pair the last line is extended. If there is only one
    pair, the time is assumed to be proportional to the requests. This is too steep, so the result may be too small, but
    never too large.
    """
    if curve[0][1] > target:
        return 0.0
    if len(curve) == 1:
        return curve[0][0] * target / curve[0][1]
    for (x0, y0), (x1, y1) in pairwise(curve):
        if y1 > target:
            return x0 + (x1 - x0) * (target - y0) / (y1 - y0)
    (x0, y0), (x1, y1) = curve[-2:]
    slope = max((y1 - y0) / (x1 - x0), y1 / x1 / 4)
    return x1 + (target - y1) / slope


def decode_groups(tokens: float, curve: Sequence[tuple[float, float]], target: float) -> int | None:
    """Return the smallest number of decode groups that generate `tokens` tokens per second while the time between tokens
    stays within `target` seconds; None if no number is enough.

    A group with B requests generates B / (time between tokens) tokens per second (Little's law). The number of requests in a
    group fluctuates by about its square root, as with random arrivals, so the mean is kept two square roots below the limit.
    """
    limit = decode_batch(curve, target)
    if limit < 1:
        return None
    usual = (math.sqrt(limit + 1) - 1) ** 2
    return max(1, math.ceil(tokens * target / max(usual, 0.1) - 1e-9))
