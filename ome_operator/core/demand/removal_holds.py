"""Check for reasons not to remove a group although fewer groups would be enough. Also check whether the largest number of
changes within an hour is reached.
"""

from collections.abc import Sequence
from itertools import pairwise

from ome_operator.core.demand.facts import KEPT, STALE, WINDOW, DemandSample, Fleet, ScalingState, Targets
from ome_operator.core.demand.holds import HoldReason

LOWER_FOR = 90.0
"""Seconds for which fewer groups must have been enough before a group is removed."""
HOUR = 3600.0
FAILING, RISE = 0.01, 1.5
"""Failures are considered to rise if the share of requests that fail exceeds `FAILING`, and also exceeds `RISE` times the
share in the earlier windows."""


def removal_hold(samples: Sequence[DemandSample], fleet: Fleet, targets: Targets, state: ScalingState, now: float) -> str:
    """Return the reason (`HoldReason`) not to remove a group now; "" if a group may be removed."""
    since = min((at for at in state.lower_since if at is not None), default=now - LOWER_FOR)
    reasons = (
        (HoldReason.BUSY, bool(fleet.busy or fleet.prefill.draining or fleet.decode.draining)),
        (HoldReason.STARTING, bool(fleet.prefill.starting or fleet.decode.starting)),
        (HoldReason.HOLE, has_gap(samples, now)),
        (HoldReason.LATE, (samples[-1].late or 0.0) > 1 - targets.share),
        (HoldReason.ERRORS, _errors_rise(samples)),
        (HoldReason.COOL_DOWN, now - since < LOWER_FOR or now - state.changed < targets.cool_down),
        (HoldReason.CAP, at_cap(state, targets, now)),
    )
    return next((reason for reason, holds in reasons if holds), "")


def at_cap(state: ScalingState, targets: Targets, now: float) -> bool:
    """Return whether the number of changes within the last hour has reached its limit."""
    return sum(now - at < HOUR for at in state.changes) >= targets.changes_an_hour


def has_gap(samples: Sequence[DemandSample], now: float) -> bool:
    """Return whether the samples of the last `KEPT` seconds have a gap: more than `STALE` seconds in which the arrivals or
    the number of waiting requests are unknown.
    """
    known = [one.at for one in samples if one.at >= now - KEPT and one.arrivals is not None and one.waiting is not None]
    return any(after - before > STALE for before, after in pairwise((now - KEPT, *known, now)))


def _errors_rise(samples: Sequence[DemandSample]) -> bool:
    shares = [
        (one.at, one.errors / max(one.arrivals, 1e-9))
        for one in samples
        if one.errors is not None and one.arrivals is not None
    ]
    if not shares:
        return False
    end, newest = shares[-1]
    older = [share for at, share in shares if at <= end - WINDOW]
    return newest > FAILING and newest > RISE * (sum(older) / len(older) if older else 0.0)
