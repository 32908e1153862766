"""Remove all groups of a service in the scheduled times in which nobody needs it, and create them again when these times end
(docs/demand.md).
"""

from collections.abc import Mapping, Sequence

from ome_operator.core.demand.decide import change_size, keep_size
from ome_operator.core.demand.facts import (
    DECODE,
    GROUPS,
    KEPT,
    PREFILL,
    ROUTER,
    STALE,
    DemandSample,
    ScalingState,
    SizeDecision,
)
from ome_operator.core.demand.holds import HoldReason
from ome_operator.core.demand.limits import limit_to_budget
from ome_operator.core.demand.removal_holds import has_gap, removal_hold
from ome_operator.core.demand.task import APPLY, DemandTask


def decide_by_schedule(
    samples: Sequence[DemandSample], task: DemandTask, state: ScalingState, now: float
) -> tuple[SizeDecision, ScalingState] | None:
    """Return the decision if the schedule decides: to remove all groups, to keep the service without groups, or to create
    the groups again. Return None if the decision depends on the demand.

    Prefill and decode are removed and created together, because neither role serves requests without the other. They are
    removed only if no request has arrived for `KEPT` seconds, none is in flight, and there is no other reason to keep
    groups (`removal_hold`).
    """
    if task.fleet.frozen:
        return None
    prefill, decode, routers = state.wanted or task.asked
    zero, may_rest = (0, 0, routers), task.rests_at(now)
    if task.back is not None and not all(task.asked[:2]):
        if may_rest:
            return keep_size(state, now, zero, HoldReason.SCHEDULED_ZERO, "the schedule lets the service have no groups now")
        size = (*_size_back(task, now), routers)
        # The last decision may have this size although the groups do not exist: in the mode Recommend, or if writes
        # fail.
        act = keep_size if size == state.wanted else change_size
        return act(state, now, size, "", "the scheduled time without groups has ended")
    if not may_rest or not is_idle(samples, now):
        return None
    why = f"no request has arrived for {KEPT / 60:.0f} minutes, and the schedule lets the service have no groups now"
    if not prefill and not decode:  # the removal was decided already, and is about to begin
        return keep_size(state, now, zero, HoldReason.SCHEDULED_ZERO, why)
    if removal_hold(samples, task.fleet, task.targets, state, now):
        return None
    return change_size(state._replace(lower_since=(None, None)), now, zero, HoldReason.SCHEDULED_ZERO, why)


def is_idle(samples: Sequence[DemandSample], now: float) -> bool:
    """Return whether no request arrived in the last `KEPT` seconds, and none waits, runs or is in flight. If any of these
    numbers is unknown, the result is False. The arrivals from before the operator started are unknown, too.
    """
    newest = samples[-1] if samples else None
    if newest is None or not 0 <= now - newest.at <= STALE or has_gap(samples, now):
        return False
    present = (newest.waiting, newest.running_now, newest.in_flight)
    return present == (0, 0, 0) and all(one.arrivals == 0 for one in samples if one.at >= now - KEPT)


def removes_all_groups(task: DemandTask, size_decision: SizeDecision) -> bool:
    """Return whether the groups of the service still exist, and the decision `size_decision` removes them now."""
    return size_decision.hold == HoldReason.SCHEDULED_ZERO and task.mode == APPLY and task.back is None


def groups_to_apply(
    task: DemandTask, size_decision: SizeDecision, state: ScalingState, before: Mapping[str, int]
) -> dict[str, int]:
    """Return the numbers of groups, by component, that reconciliations have to use. `before` contains the numbers that they
    use at present, and `state` is the state after the decision `size_decision`.

    A service whose groups the schedule removes keeps its numbers until the numbers of its RoleScales are 0. From then on, a
    number above 0 in a RoleScale wakes the service, and this number is used.
    """
    numbers = {
        component: size_decision.groups_of(role) if role in GROUPS else size_decision.routers
        for role, component in task.roles.items()
    }
    if size_decision.hold != HoldReason.SCHEDULED_ZERO or task.back is not None:
        return numbers
    asked = dict(zip((PREFILL, DECODE, ROUTER), task.asked, strict=True))
    have = {component: asked[role] for role, component in task.roles.items()}
    return have if size_decision.at == state.changed else {**have, **before}


def _size_back(task: DemandTask, now: float) -> tuple[int, int]:
    """Return the numbers of prefill and decode groups that a service gets again after it had no groups: the numbers that it
    had before, limited by the present bounds.
    """
    targets = task.targets_at(now)
    last = dict(zip(GROUPS, task.back or (1, 1), strict=True))
    size = {role: targets.bounds[role].clamp(max(1, last[role])) for role in GROUPS}
    return limit_to_budget((size[PREFILL], size[DECODE]), task.fleet, targets)
