"""Compute how many groups a role needs for a demand (docs/demand.md explains the formulas)."""

import math
from functools import lru_cache
from typing import NamedTuple

from ome_operator.core.demand import curves
from ome_operator.core.demand.facts import Curve

MOST = 512
"""In the search for the needed number of prefill groups, waits are computed only for fewer groups than this number. With
so many groups, hardly any request waits, so the groups that the load keeps busy are enough."""

HALVINGS = 12
"""Number of steps of a search by bisection, after which its result is exact to 0.03 % of the searched interval."""


@lru_cache(maxsize=4096)
def _blocked(servers: int, load: float) -> float:
    """Return the share of requests that find all servers busy if requests cannot wait (Erlang B, computed by recurrence).
    `load` is the mean number of servers that the requests would occupy if none were refused.
    """
    share = 1.0
    for number in range(1, servers + 1):
        share = load * share / (number + load * share)
    return share


def late_share(servers: int, load: float, service: float, patience: float) -> float:
    """Return the share of requests that wait longer than `patience` seconds for one of the servers.

    `load` is the arrivals per second times `service`, the mean seconds of a request in a server. Method: M/M/c. Erlang C
    gives the share of requests that wait, and their wait is exponentially distributed with the rate (servers − load) /
    service.
    """
    if servers <= load:
        return 1.0
    blocked = _blocked(servers, round(load, 3))
    waits = blocked / (1 - load / servers * (1 - blocked))
    return waits * math.exp(-(servers - load) * patience / service)


def patience_factor(variation: float) -> float:
    """Return the ratio of two mean waits in a queue: with exponential service times, and with service times whose squared
    coefficient of variation is `variation`. The ratio is 2 if all service times are equal, and less than 1 for a few
    long times among many short times.

    Method: the mean wait in a queue with random arrivals is about proportional to 1 + variation (Kingman; Allen and Cunneen
    for several servers), and the wait of the requests that wait is assumed to be exponential.
    """
    return 2 / (1 + variation)


def prefill_groups(rate: float, service: float, patience: float, share: float) -> int | None:
    """Return the smallest number of prefill groups with which at least the fraction `share` of the requests waits for at
    most `patience` seconds; None if no number is enough.

    `rate` is the arrivals per second, and `service` the mean seconds of a request in a group. `patience` is the permitted
    wait in seconds, multiplied by `patience_factor`, because the formula holds for exponential service times.
    """
    if patience < 0:
        return None
    load = rate * service
    first = max(1, math.floor(load))
    enough = (n for n in range(first, MOST) if late_share(n, load, service, patience) <= 1 - share)
    return next(enough, max(MOST, first + 1))


def slowest_prefill(groups: int, rate: float, bound: float, share: float, factor: float) -> float | None:
    """Return the longest mean time in seconds that a request may occupy a prefill group so that `groups` groups serve the
    fraction `share` of `rate` requests per second in time; None if no time is short enough. A request is in time if its wait
    and its time in the group are at most `bound` seconds together. `factor` is the `patience_factor` of the service times.
    """
    low, high = 0.0, min(bound, groups / rate)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        late = late_share(groups, rate * middle, middle, factor * (bound - middle)) > 1 - share
        low, high = (low, middle) if late else (middle, high)
    return low or None


def decode_groups(tokens: float, curve: Curve, target: float, shown: float = 0.0) -> int | None:
    """Return the smallest number of decode groups that generate `tokens` tokens per second while the time between tokens
    stays within `target` seconds; None if no number is enough.

    A group with B requests generates B / (time between tokens) tokens per second (Little's law). The number of requests in a
    group fluctuates by about its square root, as with random arrivals, so the mean number of requests is kept below the
    limit by two square roots. `shown` is the number of tokens per second that a group was measured to generate within the
    target: a group is never assumed to generate less.
    """
    limit = curves.batch_within(curve, target)
    if limit < 1:
        return None
    return max(1, math.ceil(tokens / max(_usual(limit) / target, shown) - 1e-9))


def _usual(limit: float) -> float:
    """Return the mean number m of requests of a decode group for which m + 2√m = `limit`. The number of requests varies by
    about √m, as with random arrivals, so the group then rarely has more than `limit` requests.
    """
    return (math.sqrt(limit + 1) - 1) ** 2


class DecodeGrowth(NamedTuple):
    """The quantities that determine how fast the number of requests in decode may increase. They are used if nothing is
    known about loads above the measured loads.
    """

    running: float
    """Requests in decode now, in all groups together."""
    rate: float
    """Tokens per second that a group generates at the largest measured load."""
    horizon: float
    """Seconds until a larger load has been measured, and a group that is added because of this measurement serves."""


def groups_until_full(tokens: float, limit: float, answer: float, filling: DecodeGrowth) -> int:
    """Return the smallest number of decode groups with which no group gets more than `limit` requests within the horizon of
    `filling`, while `tokens` tokens per second are requested, `answer` tokens for each request.

    A group with more requests than were measured generates at least as many tokens per second (batching), but how many more
    is unknown. If it generates no more, the number of requests increases by (requested - generated tokens) / answer each
    second. If a group reaches `limit` requests only after the horizon, a further measurement comes in time. So no group is
    needed before this measurement.
    """
    usual, seconds = max(_usual(limit), 1e-9), filling.horizon / answer
    full = (filling.running + tokens * seconds) / (usual + filling.rate * seconds)
    return max(1, math.ceil(max(filling.running / usual, full) - 1e-9))
