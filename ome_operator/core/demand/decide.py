"""Decide about the size of a service: its numbers of prefill groups, decode groups and routers (docs/demand.md). The
functions are pure: equal arguments give an equal decision.
"""

from collections.abc import Sequence

from ome_operator.core.demand import configurations, explain, learn, limits, queues, speeds
from ome_operator.core.demand.estimate import DemandEstimate, bound_below, estimate, mean_request, patience_factor_for
from ome_operator.core.demand.facts import (
    DECODE,
    GROUPS,
    NO_PLAN,
    PREFILL,
    STALE,
    WINDOW,
    DemandSample,
    Fleet,
    PlannedSpeeds,
    ScalingState,
    SizeDecision,
    Targets,
)
from ome_operator.core.demand.holds import SURPLUS, HoldReason
from ome_operator.core.demand.removal_holds import HOUR, at_cap, removal_hold

DECISIONS, CHANGES = 10, 100
"""How many of the last decisions, and of the times of the last changes, are kept in the state."""
LASTING = tuple(reason for reason in HoldReason if reason not in SURPLUS)
"""Reasons whose beginning and end are recorded in the list of the last decisions. All other reasons only delay the
removal of a group, and change so often that they would fill the list."""

LATE_FOR = 300.0
"""If too many requests are late for this many seconds without a change of the size, the groups are assumed to be slower
than measured before. For a shorter time, chance or a step of the load can make requests late."""

Size = tuple[int, int, int]
"""The numbers of prefill groups, decode groups and routers."""


def decide_size(
    samples: Sequence[DemandSample],
    fleet: Fleet,
    targets: Targets,
    state: ScalingState,
    now: float,
    planned: PlannedSpeeds = NO_PLAN,
) -> tuple[SizeDecision, ScalingState]:
    """Return the size that the service should have at the time `now`, and the state for the next decision.

    `samples` are the samples of the last `facts.KEPT` seconds in ascending order of time. The size does not change if the
    newest sample is missing, incomplete or older than `STALE` seconds. `planned` is used where measurements are missing.
    """
    present = state.wanted or _present(fleet)
    if fleet.frozen:
        return keep_size(state, now, present, HoldReason.FROZEN, fleet.frozen)
    newest = samples[-1] if samples else None
    if newest is None or not 0 <= now - newest.at <= STALE or newest.arrivals is None or newest.waiting is None:
        return keep_size(
            state, now, present, HoldReason.UNKNOWN, "the operator does not know how many requests arrive, or how many wait"
        )
    state, planned = _taught(samples, fleet, targets, configurations.bind_measurements(state, fleet, now), now, planned)
    demand, routers = estimate(samples, fleet, state, now, planned), limits.routers(samples, targets, present[2])
    if demand is None:
        known = state.learned.request is not None and planned.missing
        why = (
            "the operator does not know the lengths of requests or the speed of the "
            f"groups{f': {planned.missing}' if known else ''}"
        )
        return _groups_stay(targets, state, now, present, routers, HoldReason.UNMEASURED, why)
    needs = demand.groups_to_add(targets)
    if None in needs:
        made, state = _groups_stay(
            targets, state, now, present, routers, *explain.explain_unmet_targets(demand, targets, needs)
        )
    else:
        made, state = _sized(samples, fleet, targets, state, now, demand, routers)
    at_maximum = limits.at_maximum(needs, targets) if made.hold == HoldReason.MAXIMUM else {}
    return made._replace(basis=demand.basis, at_maximum=at_maximum), state


def _taught(
    samples: Sequence[DemandSample],
    fleet: Fleet,
    targets: Targets,
    state: ScalingState,
    now: float,
    planned: PlannedSpeeds,
) -> tuple[ScalingState, PlannedSpeeds]:
    """Return the state with the measurements of the newest sample, and the speeds that are used where nothing was measured.

    A role is not measured until all of its groups have had the same configuration for a window. If requests are late under a
    load that groups of the former configuration would have served in time, the measurements of the former configuration are
    not used any more.
    """
    mean = mean_request(samples, state.learned)
    if mean is not None:
        planned = speeds.expected_speeds(state, planned, mean.more)
    factor = patience_factor_for(mean, state.learned.work or planned.work) if mean is not None else 1.0

    def on_time(groups: int, rate: float) -> float | None:
        return queues.slowest_prefill(groups, rate, bound_below(targets.ttft), targets.share, factor)

    in_time, too_late = _judged(samples, fleet, targets, state, now)
    found = learn.update_measurements(
        state.learned,
        learn.newest_steady_sample(samples),
        fleet,
        planned,
        on_time if in_time or too_late else None,
        late=too_late,
    )
    for role, since in zip(GROUPS, state.configured, strict=True):
        if now - since <= WINDOW:
            found = configurations.with_speed(found, state.learned, role)
    if too_late and PREFILL in planned.former and learn.contradicts_measurement(planned.work, samples[-1], fleet, on_time):
        state = state._replace(doubted=True)
    return state._replace(learned=found if mean is None else found._replace(request=(mean.more, mean.answer))), planned


def _judged(
    samples: Sequence[DemandSample], fleet: Fleet, targets: Targets, state: ScalingState, now: float
) -> tuple[bool, bool]:
    """Return two values: whether the existing groups serve requests in time, and whether too many requests have been late
    for `LATE_FOR` seconds. Both values are False if groups, or their configuration, have changed recently. `samples` are the
    measurements of the service, the newest last, and `now` is in seconds since the epoch.
    """
    changing = any(role.starting or role.draining for role in (fleet.prefill, fleet.decode))
    late, same_for = samples[-1].late, now - max(state.changed, *state.configured)
    if changing or fleet.busy or same_for <= 2 * WINDOW:
        return False, False
    newest = [one for one in samples if one.at >= now - LATE_FOR]
    whole = len(newest) < len(samples) and same_for > LATE_FOR + WINDOW
    too_late = whole and all(one.late is not None and one.late > 1 - targets.share for one in newest)
    return late is not None and late <= 1 - targets.share, too_late


def _sized(
    samples: Sequence[DemandSample],
    fleet: Fleet,
    targets: Targets,
    state: ScalingState,
    now: float,
    demand: DemandEstimate,
    routers: int,
) -> tuple[SizeDecision, ScalingState]:
    """Return the decision about a service whose targets can be met according to the estimate `demand`, and the state for the
    next decision. `routers` is the needed number of routers.
    """
    present, needs = state.wanted or _present(fleet), demand.groups_to_add(targets)
    need = limits.first_steps(needs, fleet, demand.stepwise)
    wanted, hold = limits.limit_groups(need, fleet, targets)
    if not hold and need != needs:
        hold = HoldReason.FIRST_STEP
    why = explain.explain_demand(demand, targets, need)
    more_groups = limits.grow_groups(present[:2], wanted, fleet, targets)
    if more_groups != (max(wanted[0], present[0]), max(wanted[1], present[1])):
        hold = HoldReason.BUDGET
    grown = (*more_groups, max(routers, present[2]))
    if grown != present and at_cap(state, targets, now):
        hold, why = HoldReason.CAPPED, why + explain.explain_change_limit(targets)
        grown = (*limits.raise_to_minimum(present[:2], fleet, targets), present[2])
        if grown == present:
            return keep_size(state, now, present, hold, why)
    if grown != present:
        return change_size(state._replace(lower_since=(None, None)), now, grown, hold, why)
    least = _least(demand, fleet, targets, present)
    kept = [have if role in demand.unproven else enough for role, enough, have in zip(GROUPS, least, present, strict=False)]
    state = state._replace(lower_since=_lower_since(state, (kept[0], kept[1]), present, now))
    smaller = _smaller(state, present, routers)
    if smaller == present:
        if not hold and any(enough < stays for enough, stays in zip(least, kept, strict=True)):
            hold = HoldReason.PLANNED
        return keep_size(state, now, present, hold, why)
    if stop := removal_hold(samples, fleet, targets, state, now):
        return keep_size(state, now, present, hold or stop, why)
    return change_size(state, now, smaller, hold, why)


def _least(demand: DemandEstimate, fleet: Fleet, targets: Targets, present: Size) -> tuple[int, int]:
    """Return the numbers of prefill and decode groups that would be enough for the demand with a margin. For a role for
    which no number is known to be enough, return its present number.
    """
    fewer = demand.groups_with_margin(targets)
    enough, _ = limits.limit_groups(fewer, fleet, targets)
    found = [have if need is None else number for need, number, have in zip(fewer, enough, present, strict=False)]
    return found[0], found[1]


def _groups_stay(
    targets: Targets, state: ScalingState, now: float, present: Size, routers: int, hold: str, reason: str
) -> tuple[SizeDecision, ScalingState]:
    """Return a decision that does not change the numbers of groups. The decision may add routers, because the needed number
    of routers (`routers`) depends only on the requests in flight. `hold` and `reason` become the fields `hold` and `why` of
    the decision.
    """
    size = (*present[:2], max(routers, present[2]))
    stays = size == present or at_cap(state, targets, now)
    return keep_size(state, now, present, hold, reason) if stays else change_size(state, now, size, hold, reason)


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
    """Return the present size with one group less, taken from the role for which fewer groups have been enough for the
    longest time. If both roles need all of their groups, return the present size with one router less. If all routers
    are needed, too, return the present size unchanged. `routers` is the needed number of routers.
    """
    prefill, decode, _ = present
    since = {role: at for role, at in zip(GROUPS, state.lower_since, strict=True) if at is not None}
    if not since:
        return prefill, decode, present[2] - (routers < present[2])
    role = min(since, key=lambda role: since[role])
    return prefill - (role == PREFILL), decode - (role == DECODE), present[2]


def _present(fleet: Fleet) -> Size:
    return fleet.prefill.existing_groups, fleet.decode.existing_groups, fleet.routers


def change_size(state: ScalingState, now: float, size: Size, hold: str, reason: str) -> tuple[SizeDecision, ScalingState]:
    """Return a decision that changes the size to `size`, and the state in which this decision is recorded as the last one.
    `hold` and `reason` become the fields `hold` and `why` of the decision.
    """
    made = SizeDecision(now, *size, hold, reason)
    changes = (*(at for at in state.changes if now - at < HOUR), now)[-CHANGES:]
    return made, state._replace(wanted=size, changed=now, changes=changes, last=_recorded(state.last, made))


def keep_size(state: ScalingState, now: float, size: Size, hold: str, reason: str) -> tuple[SizeDecision, ScalingState]:
    """Return a decision that keeps the size `size`, and the next state. The decision is recorded in the state only if one of
    the reasons in `LASTING` begins or ends with it. `hold` and `reason` become the fields `hold` and `why` of the decision.
    """
    made, state = SizeDecision(now, *size, hold, reason), state._replace(wanted=size)
    lasting = hold if hold in LASTING else ""
    before = state.last[-1].hold if state.last else None
    if before != lasting:
        state = state._replace(last=_recorded(state.last, made._replace(hold=lasting)))
    return made, state


def _recorded(last: Sequence[SizeDecision], size_decision: SizeDecision) -> tuple[SizeDecision, ...]:
    """Return the decisions `last` and after them `size_decision`, at most `DECISIONS`.

    If there are more, the oldest decision is removed, except for two decisions: the last decision with a size other than
    the present size, to which `ome scale --undo` goes back, and the decision after it. Decisions in which a number is 0 are
    not among these two.
    """
    every = (*last[-DECISIONS:], size_decision)
    if len(every) <= DECISIONS:
        return every
    sizes = {number: one.size for number, one in enumerate(every) if min(one.size) > 0}
    present = [*sizes.values()][-1:]
    former = max((number for number, size in sizes.items() if size not in present), default=-1)
    kept = {former, min((number for number in sizes if number > former), default=-1)}
    gone = min(number for number in range(len(every)) if number not in kept)
    return (*every[:gone], *every[gone + 1 :])
