"""The decision about a service as it is written and as it exists: known peaks, numbers that somebody else sets, nodes."""

from collections.abc import Callable, Mapping, Sequence

from ome_operator.core.demand.decide import decide, held
from ome_operator.core.demand.facts import DECODE, GROUPS, PREFILL, ROUTER, DemandSample, ScalingState, SizeDecision
from ome_operator.core.demand.holds import HoldReason
from ome_operator.core.demand.task import DemandTask

Granted = Callable[[Mapping[str, int]], Mapping[str, int]]
"""Returns for how many of the additional groups of each role the nodes have free capacity now."""


def follow(
    samples: Sequence[DemandSample], task: DemandTask, state: ScalingState, now: float, granted: Granted
) -> tuple[SizeDecision, ScalingState]:
    """Return the size that a service should have, and what is to be kept until the next decision.

    The nodes are asked only if the size becomes larger than what exists. Groups that do not fit are not part of the size,
    so they are not created, and the decision states this as its reason.
    """
    state = bounded(state, task)
    before = state.wanted or task.asked
    if task.problem:
        return held(state, now, before, HoldReason.INVALID, task.problem)
    targets = task.targets_at(now)
    made, after = decide(samples, task.fleet, targets, state, now)
    have = {role: task.fleet.role(role).exist for role in GROUPS}
    more = {role: max(0, made.of(role) - have[role]) for role in GROUPS}
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
    return decide(samples, fleet, targets, state, now)


def bounded(state: ScalingState, task: DemandTask) -> ScalingState:
    """Return the state with the last size inside the present bounds, which apply at once when somebody changes them. Before
    the first decision, it is the size that the service is to have: groups that fail or start meanwhile are part of it.
    """
    bounds = [task.targets.bounds[role] for role in (PREFILL, DECODE, ROUTER)]
    size = zip(state.wanted or task.asked, bounds, strict=True)
    prefill, decode, routers = (min(max(number, low), high) for number, (low, high, _) in size)
    return state._replace(wanted=(prefill, decode, routers))
