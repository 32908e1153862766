"""The decision about a service as it is written and as it exists: known peaks, numbers that somebody else sets, nodes."""

from collections.abc import Callable, Mapping, Sequence

from ome_operator.core.demand.decide import decide, held
from ome_operator.core.demand.facts import DECODE, GROUPS, PREFILL, ROUTER, DemandSample, ScalingState, SizeDecision
from ome_operator.core.demand.holds import HOLDS, HoldReason
from ome_operator.core.demand.task import DemandTask

Granted = Callable[[Mapping[str, int]], Mapping[str, int]]
"""Returns for how many of the additional groups of each role the nodes have free capacity now."""


def follow(
    samples: Sequence[DemandSample],
    task: DemandTask,
    state: ScalingState,
    now: float,
    granted: Granted,
    *,
    heard: bool = True,
) -> tuple[SizeDecision, ScalingState]:
    """Return the size that a service should have, and what is to be kept until the next decision.

    The nodes are asked only if the size becomes larger than what exists. Groups that do not fit are not part of the size,
    so they are not created, and the decision states this as its reason. `heard` is False if the operator asks no router.
    """
    state = bounded(state, task)
    before = state.wanted or task.asked
    if task.problem:
        return held(state, now, before, HoldReason.INVALID, task.problem)
    if not heard:
        return held(state, now, before, HoldReason.UNHEARD, HOLDS[HoldReason.UNHEARD])
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
    the first decision, it is the size that the service is to have: groups that fail or start meanwhile are part of it. This
    also applies to a role that had no group, which the demand never decides: it comes back with the groups of the wake.
    """
    bounds = [task.targets.bounds[role] for role in (PREFILL, DECODE, ROUTER)]
    last = state.wanted or task.asked
    size = zip((number or asked for number, asked in zip(last, task.asked, strict=True)), bounds, strict=True)
    prefill, decode, routers = (bound.within(number) for number, bound in size)
    return state._replace(wanted=(prefill, decode, routers))
