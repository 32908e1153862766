"""Decide about the size of a service, including everything that limits the size: the times of the schedule, numbers of
groups that a person or another autoscaler sets, and the free capacity of nodes.
"""

from collections.abc import Callable, Mapping, Sequence

from ome_operator.core.demand.decide import change_size, decide_size, keep_size
from ome_operator.core.demand.facts import (
    DECODE,
    GROUPS,
    KEPT,
    NO_PLAN,
    PREFILL,
    ROUTER,
    DemandSample,
    PlannedSpeeds,
    ScalingState,
    SizeDecision,
)
from ome_operator.core.demand.holds import HOLDS, HoldReason
from ome_operator.core.demand.rest import decide_by_schedule, is_idle
from ome_operator.core.demand.task import APPLY, DemandTask
from ome_operator.core.demand.undo import limit_to_bounds

Granted = Callable[[Mapping[str, int]], Mapping[str, int]]
"""A function that takes the number of additional groups of each role, and returns how many of them fit on the nodes now."""


def follow(
    samples: Sequence[DemandSample],
    task: DemandTask,
    state: ScalingState,
    now: float,
    granted: Granted,
    *,
    heard: bool = True,
    planned: PlannedSpeeds = NO_PLAN,
) -> tuple[SizeDecision, ScalingState]:
    """Return the size that a service should have, and the state for the next decision.

    `granted` takes a number of additional groups by role, and returns how many of them fit on the nodes now. It is called
    only if the size grows and groups have to be created for it. Groups that do not fit on the nodes are left out of the
    size, so they are not created, and the decision states this as its reason. `heard` is False if the operator does not read
    the reports of routers, so that the load is unknown. `planned` is the prediction of `ome plan`.
    """
    state = limit_last_size(state, task) if not _goes(state, task, samples, now) else state
    before = state.wanted or task.asked
    if task.problem:
        return keep_size(state, now, before, HoldReason.INVALID, task.problem)
    if task.undone is not None and not task.fleet.frozen:
        size, why = limit_to_bounds(task.undone, task), "somebody went back to this size with `ome scale --undo`"
        act = keep_size if size == before else change_size
        return act(state._replace(lower_since=(None, None)), now, size, HoldReason.UNDONE, why)
    if (resting := decide_by_schedule(samples, task, state, now)) is not None:
        return resting
    if not heard:
        return keep_size(state, now, before, HoldReason.UNHEARD, HOLDS[HoldReason.UNHEARD])
    targets = task.targets_at(now)
    made, after = decide_size(samples, task.fleet, targets, state, now, planned)
    have = {role: task.fleet.role(role).existing_groups for role in GROUPS}
    more = {role: max(0, made.groups_of(role) - have[role]) for role in GROUPS}
    grows = made.prefill > before[0] or made.decode > before[1]
    if task.fits or not grows or not any(more.values()):
        return made, after
    free = granted(more)
    if all(free[role] >= more[role] for role in GROUPS):
        return made, after
    room = {role: have[role] + free[role] if free[role] < more[role] else None for role in GROUPS}
    fleet = task.fleet._replace(
        prefill=task.fleet.prefill._replace(room=room[PREFILL]), decode=task.fleet.decode._replace(room=room[DECODE])
    )
    return decide_size(samples, fleet, targets, state, now, planned)


def _goes(state: ScalingState, task: DemandTask, samples: Sequence[DemandSample], now: float) -> bool:
    """Return whether the last decision removes all groups because of the schedule, and the removal has not begun yet."""
    if state.wanted is None or any(state.wanted[:2]) or task.problem or task.fleet.frozen:
        return False
    # After this time, a service with groups has been woken. A new decision may remove its groups again.
    waits = task.mode != APPLY or now - state.changed < KEPT
    return waits and task.rests_at(now) and is_idle(samples, now)


def limit_last_size(state: ScalingState, task: DemandTask) -> ScalingState:
    """Return the state with the last size limited to the present bounds, because a change of the bounds applies at once.

    Before the first decision, the number of groups that the service should have, whether or not they serve, is used as the
    last size. The same number is used for a role that has 0 groups in the last size, because demand alone never starts the
    first group. Only a request that wakes the service, or its schedule, starts the first group.
    """
    bounds = [task.targets.bounds[role] for role in (PREFILL, DECODE, ROUTER)]
    last = state.wanted or task.asked
    size = zip((number or asked for number, asked in zip(last, task.asked, strict=True)), bounds, strict=True)
    prefill, decode, routers = (bound.clamp(number) for number, bound in size)
    return state._replace(wanted=(prefill, decode, routers))
