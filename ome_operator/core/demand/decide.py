"""Decide about the size of a service (docs/demand.md). The function is pure: equal arguments give an equal decision."""

from collections.abc import Sequence

from ome_operator.core.demand import learn, limits, queues
from ome_operator.core.demand.brakes import HOUR, brake
from ome_operator.core.demand.estimate import DemandEstimate, NeededGroups, estimate
from ome_operator.core.demand.facts import (
    DECODE,
    GROUPS,
    PREFILL,
    STALE,
    DemandSample,
    Fleet,
    GroupBounds,
    ScalingState,
    SizeDecision,
    Targets,
)
from ome_operator.core.demand.holds import HoldReason

DECISIONS, CHANGES = 10, 100
"""How many of the last decisions, and of the times of the last changes, are kept in the state."""
LASTING = (
    HoldReason.INVALID,
    HoldReason.FROZEN,
    HoldReason.UNHEARD,
    HoldReason.UNKNOWN,
    HoldReason.UNMEASURED,
    HoldReason.UNREACHABLE,
    HoldReason.MAXIMUM,
    HoldReason.BUDGET,
    HoldReason.NO_ROOM,
)
"""Reasons whose beginning and end are recorded among the last decisions. The other reasons only delay the removal of a
group, and would fill the list because they come and go often.
"""

Size = tuple[int, int, int]
"""The numbers of prefill groups, decode groups and routers."""


def decide(
    samples: Sequence[DemandSample], fleet: Fleet, targets: Targets, state: ScalingState, now: float
) -> tuple[SizeDecision, ScalingState]:
    """Return the size that the service should have at the time `now`, and the state for the next decision.

    `samples` are those of the last `KEPT` seconds in ascending order of time. The size does not change if the newest sample
    is missing, incomplete or older than `STALE` seconds.
    """
    present = state.wanted or _present(fleet)
    if fleet.frozen:
        return held(state, now, present, HoldReason.FROZEN, fleet.frozen)
    newest = samples[-1] if samples else None
    if newest is None or not 0 <= now - newest.at <= STALE or newest.arrivals is None or newest.waiting is None:
        return held(state, now, present, HoldReason.UNKNOWN, "the arrivals or the waiting requests are unknown")
    state = state._replace(learned=learn.learned(state.learned, newest, fleet))
    demand, routers = estimate(samples, fleet, state, now), limits.routers(samples, targets, present[2])
    if demand is None:
        why = "the lengths of requests or the speed of the groups are unknown"
        return _groups_stay(state, now, present, routers, HoldReason.UNMEASURED, why)
    state = state._replace(learned=state.learned._replace(request=(demand.prompt, demand.answer)))
    more, fewer = demand.more(targets), demand.fewer(targets)
    if None in more or None in fewer:
        what = "the time to the first token" if more.prefill is None or fewer.prefill is None else "the time between tokens"
        why = f"no number of groups meets the target of {what}"
        return _groups_stay(state, now, present, routers, HoldReason.UNREACHABLE, why)
    wanted, hold = limits.limited(more, fleet, targets)
    why = _why(demand, targets, more)
    more_groups = limits.grown(present[:2], wanted, fleet, targets)
    if more_groups != (max(wanted[0], present[0]), max(wanted[1], present[1])):
        hold = HoldReason.BUDGET
    grown = (*more_groups, max(routers, present[2]))
    if grown != present:
        return _changed(state._replace(lower_since=(None, None)), now, grown, hold, why)
    least, _ = limits.limited(fewer, fleet, targets)
    state = state._replace(lower_since=_lower_since(state, least, present, now))
    smaller = _smaller(state, present, routers)
    if smaller == present:
        return held(state, now, present, hold, why)
    if stop := brake(samples, fleet, targets, state, now):
        return held(state, now, present, stop, why)
    return _changed(state, now, smaller, hold, why)


def _groups_stay(
    state: ScalingState, now: float, present: Size, routers: int, hold: str, why: str
) -> tuple[SizeDecision, ScalingState]:
    """Return the decision in which the numbers of groups stay. Routers are added nevertheless, because their number follows
    the requests in flight alone.
    """
    size = (*present[:2], max(routers, present[2]))
    return held(state, now, present, hold, why) if size == present else _changed(state, now, size, hold, why)


def _lower_since(
    state: ScalingState, least: tuple[int, int], present: Size, now: float
) -> tuple[float | None, float | None]:
    """Return, for prefill and decode, the time since which fewer groups have been enough; None for a role that needs all of
    its groups.
    """
    found = [
        (since if since is not None else now) if enough < have else None
        for since, enough, have in zip(state.lower_since, least, present, strict=False)
    ]
    return found[0], found[1]


def _smaller(state: ScalingState, present: Size, routers: int) -> Size:
    """Return the size with one group less: of the role for which fewer groups have been enough for the longest time. If both
    roles need all of their groups, return the size with one router less if `routers` permits it.
    """
    prefill, decode, _ = present
    since = {role: at for role, at in zip(GROUPS, state.lower_since, strict=True) if at is not None}
    if not since:
        return prefill, decode, present[2] - (routers < present[2])
    role = min(since, key=lambda role: since[role])
    return prefill - (role == PREFILL), decode - (role == DECODE), present[2]


def _present(fleet: Fleet) -> Size:
    return fleet.prefill.exist, fleet.decode.exist, fleet.routers


def _why(demand: DemandEstimate, targets: Targets, need: NeededGroups) -> str:
    ahead = "" if demand.forecast.kind == "steady" else f", {demand.most:.1f} expected when a new group serves"
    behind = f"; the oldest request has waited {demand.age:.0f} s" if demand.extra else ""
    batch = min(queues.decode_batch(demand.curve, targets.tbt), 1e6)
    spare = sum(targets.bounds.get(role, GroupBounds(1, 1)).spare for role in GROUPS)
    kept = f", and {spare} spare" if spare else ""
    return (
        f"{demand.forecast.now:.1f} requests/s arrive{ahead}{behind}; a prefill group serves {1 / demand.service:.2f} "
        f"requests/s, a decode group holds {batch:.0f} requests of {demand.answer:.0f} tokens within the target: this needs "
        f"{need.prefill} prefill and {need.decode} decode groups{kept}"
    )


def _changed(state: ScalingState, now: float, size: Size, hold: str, why: str) -> tuple[SizeDecision, ScalingState]:
    made = SizeDecision(now, *size, hold, why)
    changes = (*(at for at in state.changes if now - at < HOUR), now)[-CHANGES:]
    return made, state._replace(wanted=size, changed=now, changes=changes, last=(*state.last, made)[-DECISIONS:])


def held(state: ScalingState, now: float, size: Size, hold: str, why: str) -> tuple[SizeDecision, ScalingState]:
    """Return a decision that changes nothing. It is recorded among the last decisions if a reason of `LASTING` begins or
    ends with it.
    """
    made, state = SizeDecision(now, *size, hold, why), state._replace(wanted=size)
    lasting = hold if hold in LASTING else ""
    before = state.last[-1].hold if state.last else None
    if before != lasting:
        state = state._replace(last=(*state.last, made._replace(hold=lasting))[-DECISIONS:])
    return made, state
