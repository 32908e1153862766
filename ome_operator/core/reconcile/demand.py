"""Describe a service to the autoscaler of the class Demand, and write the autoscaler's decision into the status of the
service (docs/demand.md).
"""

from collections.abc import Iterator, Mapping, Sequence

from ome_operator import keys, names, quantity
from ome_operator.api.scaling import DemandPolicy, Peak
from ome_operator.core.demand.facts import (
    COMPONENT_OF,
    DECODE,
    GROUPS,
    PREFILL,
    ROUTER,
    Fleet,
    GroupBounds,
    RoleFleet,
    Targets,
)
from ome_operator.core.demand.holds import HoldReason, Limit, describe_hold
from ome_operator.core.demand.task import APPLY, RECOMMEND, DemandTask, MeasuredStart, PeakTime
from ome_operator.core.freeze.hold import active_hold
from ome_operator.core.observed.autoscalers import writer_of
from ome_operator.core.observed.objects import Manifest, Pod
from ome_operator.core.placement.fit import ignores_fit
from ome_operator.core.reasons import FOLLOWS_DEMAND, Reason
from ome_operator.core.reconcile.configurations import configurations
from ome_operator.core.reconcile.decided import PassDecisions
from ome_operator.core.rollout import demand_fields, scheduled_zero
from ome_operator.core.rollout.applied import demand_applies, demand_policy, is_overridden, kept_groups, stored_groups
from ome_operator.core.status.conditions import Condition
from ome_operator.util.wording import count

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
NOT_FOLLOWED = {
    HoldReason.FROZEN: (Reason.DEMAND_FROZEN, False),
    HoldReason.UNDONE: (Reason.DEMAND_UNDONE, True),
    HoldReason.UNHEARD: (Reason.DEMAND_UNKNOWN, False),
    HoldReason.UNKNOWN: (Reason.DEMAND_UNKNOWN, False),
    HoldReason.UNMEASURED: (Reason.DEMAND_UNMEASURED, False),
    HoldReason.UNREACHABLE: (Reason.DEMAND_UNMET, True),
    HoldReason.MAXIMUM: (Reason.DEMAND_UNMET, True),
    HoldReason.BUDGET: (Reason.DEMAND_UNMET, True),
    HoldReason.NO_ROOM: (Reason.DEMAND_UNMET, True),
    HoldReason.CAPPED: (Reason.DEMAND_UNMET, True),
    HoldReason.FIRST_STEP: (Reason.DEMAND_FIRST_STEP, True),
}
"""Maps a `HoldReason` to the reason of the condition FollowsDemand, and to whether the message of the condition states the
size. The map contains every `HoldReason` with which a service may have too few groups. With every other `HoldReason`,
the service has enough groups."""
DISTURBED = frozenset({"Silent", "NotReady", "NodeLost", "SystemicFault", "Restarting", "Recycling", "Failed"})
"""Phases of a group during which no group of the service is removed."""


def task(decided: PassDecisions) -> DemandTask | None:
    """Return the description of the service for the autoscaler; None if no component has the class Demand."""
    intent, snapshot = decided.intent, decided.snapshot
    scaled = {role: name for role, name in COMPONENT_OF.items() if name in intent.policies and intent.policies[name].demand}
    if not scaled:
        return None
    policy, sizes = demand_policy(snapshot.service), intent.gpus
    asked = [intent.groups.get(COMPONENT_OF[role], 0) for role in (PREFILL, DECODE, ROUTER)]
    fleet = Fleet(
        _fleet(decided, PREFILL, sizes), _fleet(decided, DECODE, sizes), asked[2], _busy(decided), _frozen(decided)
    )
    bounds = {role: _bounds(decided, role, policy) for role in COMPONENT_OF}
    targets = _targets(policy, bounds)
    return DemandTask(
        mode=(policy.mode if policy is not None else None) or RECOMMEND,
        fleet=fleet,
        targets=targets,
        asked=(asked[0], asked[1], asked[2]),
        peaks=tuple(_peak(one) for one in (policy.schedule if policy is not None else None) or ()),
        priority=(policy.priority if policy is not None else None) or 0,
        revision=intent.target,
        fits=ignores_fit(snapshot.service.annotations) or not snapshot.deps.policy.sees_cluster,
        starts=tuple(_starts(snapshot.pods)),
        roles={role: name for role, name in scaled.items() if not intent.policies[name].unbounded},
        undone=demand_fields.undone_size(snapshot.service),
        back=scheduled_zero.sizes_before(snapshot),
        problem=problem(decided),
    )


def problem(decided: PassDecisions) -> str:
    """Return why the service cannot be scaled with its demand, and what to do; "" if it can, or if no component has the
    class Demand.
    """
    intent = decided.intent
    if not any(policy.demand for policy in intent.policies.values()):
        return ""
    found = demand_fields.problem(decided.snapshot.service, intent.policies, intent.gpus)
    if not found and not intent.target:
        return (
            "no revision of the service can run yet, so the GPUs of a group are unknown: see the other conditions of "
            "the service"
        )
    return found


def _targets(policy: DemandPolicy | None, bounds: Mapping[str, GroupBounds]) -> Targets:
    if policy is None:
        return Targets(0.0, 0.0, bounds=bounds)
    found = Targets(
        ttft=quantity.seconds(policy.time_to_first_token),
        tbt=quantity.seconds(policy.time_between_tokens),
        bounds=bounds,
        gpus=policy.gpu_budget,
        in_flight_of_a_router=policy.requests_per_router or 0,
    )
    if policy.changes_per_hour is not None:
        found = found._replace(changes_an_hour=policy.changes_per_hour)
    return found._replace(cool_down=quantity.seconds(policy.cool_down)) if policy.cool_down is not None else found


def _bounds(decided: PassDecisions, role: str, policy: DemandPolicy | None) -> GroupBounds:
    """Return the minimum and the maximum of a role. If the RoleScale or the spec sets the number of groups, or if the role
    has no maximum, both bounds are the present number. `policy` is `spec.scalingPolicy.demand`.
    """
    component = COMPONENT_OF[role]
    counts, present = decided.intent.policies.get(component), decided.intent.groups.get(component, 0)
    if counts is None or not (counts.demand and counts.is_scaled) or is_overridden(decided.snapshot, component, counts):
        return GroupBounds(present, present)
    spare = getattr(policy.spare, component, None) if policy is not None and policy.spare is not None else None
    return GroupBounds(counts.low, counts.high, spare or 0)


def _fleet(decided: PassDecisions, role: str, sizes: Mapping[str, int]) -> RoleFleet:
    component, have, ready = COMPONENT_OF[role], 0, 0
    left = 0
    for built in decided.counts.built.values():
        if component in built:
            have, ready = have + built[component].existing, ready + sum(built[component].ready)
            left += built[component].left
    marked = sum(bool(pod.draining) for pod in decided.snapshot.pods if pod.component == component and not pod.deleting)
    found = configurations(decided, component)
    return RoleFleet(
        ready, max(0, have - ready), max(0, left - have) + marked, sizes.get(component, 0), configurations=found
    )


def _busy(decided: PassDecisions) -> str:
    """Return a text that names the rollout, recycle, move or drain because of which no group may be removed now; "" if there
    is none.
    """
    if decided.step.rolls or len(decided.snapshot.slices) > 1:
        return "a rollout is in progress"
    if decided.moving.extra or decided.moving.goes:
        return "a group leaves its node"
    if decided.recovery.recycle or any(group.get("phase") in DISTURBED for group in decided.recovery.groups):
        return "a group has failed"
    return "groups wait for nodes" if any(decided.placing.withheld.values()) else ""


def _frozen(decided: PassDecisions) -> str:
    service = decided.snapshot.service
    hold = active_hold(decided.snapshot.deps, service.namespace, service.name, service.annotations)
    if hold is not None:
        return hold.sentence
    return "spec.rollout.paused is true" if decided.intent.strategy.paused else ""


def _peak(peak: Peak) -> PeakTime:
    written = {role: getattr(peak.minimum, COMPONENT_OF[role]) for role in GROUPS}
    minimum = {role: number for role, number in written.items() if number is not None}
    days = frozenset(DAYS.index(day) for day in peak.days) if peak.days else frozenset(range(7))
    return PeakTime(days, _minutes(peak.start), _minutes(peak.end), minimum)


def _minutes(time: str) -> int:
    hours, minutes = time.split(":")
    return int(hours) * 60 + int(minutes)


def _starts(pods: tuple[Pod, ...]) -> Iterator[MeasuredStart]:
    for pod in pods:
        if pod.component != keys.ROUTER and pod.rank == 0 and pod.ready and not pod.restarts:
            begin, end = _time(pod.times.scheduled or pod.times.created), _time(pod.times.ready)
            if begin is not None and end is not None and end > begin:
                yield MeasuredStart(pod.uid, pod.times.ready, end - begin)


def _time(text: str) -> float | None:
    found = quantity.parse_instant(text)
    return None if found is None else found.timestamp()


def scaling(decided: PassDecisions) -> Manifest | None:
    """Return `status.scaling`: the last decision, if the service is scaled with its demand; None if there is nothing to
    store.

    If the service is no longer scaled with its demand, only the numbers that its RoleScales do not have yet are returned. A
    number that somebody has set by hand replaces the decided number at once, so that later decisions start from it.
    """
    intent, service = decided.intent, decided.snapshot.service
    numbers = kept_groups(decided.snapshot, intent.policies, intent.groups)
    if not any(policy.demand for policy in intent.policies.values()):
        return {"applied": numbers} if numbers else None
    out = dict(decided.snapshot.observed.scaling or {})
    rests = scheduled_zero.is_stored(out) and scheduled_zero.sizes_before(decided.snapshot) is not None
    for name, number in {**stored_groups(service.status), **(out.pop("applied", None) or {})}.items():
        if name in intent.policies and demand_applies(service, intent.policies[name]):
            hand = is_overridden(decided.snapshot, name, intent.policies[name])
            numbers[name] = 0 if rests and name != keys.ROUTER else intent.groups[name] if hand else number
    return {**out, "applied": numbers} if numbers else out or None


def seconds_until_pass(decided: PassDecisions) -> float | None:
    """Return the seconds until the next pass that the class Demand needs: 0 if the status that this pass stores changes the
    decisions of the next pass, which then has to run at once; otherwise None.
    """
    numbers, status = (scaling(decided) or {}).get("applied") or {}, decided.snapshot.service.status
    begins = removes_all_groups(decided) and not scheduled_zero.is_stored(status.get("scaling"))
    return 0.0 if begins or numbers != stored_groups(status) else None


def removes_all_groups(decided: PassDecisions) -> bool:
    """Return whether all groups of the service have to be removed now: the autoscaler has just decided this, and nothing in
    the observed state forbids it. A stored decision does not suffice, because it may be hours old after a restart.
    """
    if not decided.snapshot.observed.goes or (asked := task(decided)) is None:
        return False
    kept = asked.mode != APPLY or asked.problem or asked.undone is not None or asked.fleet.frozen
    return not kept and asked.rests_at(decided.snapshot.now.timestamp())


def condition(decided: PassDecisions) -> Condition | None:
    """Return the condition FollowsDemand; None if no component has the class Demand, or if nothing was decided yet. Its
    message contains no number that changes while the decision stays the same.
    """
    found, intent = decided.snapshot.observed.scaling or {}, decided.intent
    wanted, hold, why = found.get("wanted"), str(found.get("hold") or ""), str(found.get("why") or "")
    demanded = [name for name, policy in intent.policies.items() if policy.demand]
    if not demanded or not isinstance(wanted, Mapping):
        return None
    hand = [name for name in demanded if is_overridden(decided.snapshot, name, intent.policies[name])]
    differs = [role for role in GROUPS if wanted.get(role) != intent.groups.get(COMPONENT_OF[role])]
    size = f"{wanted.get(PREFILL)} prefill and {wanted.get(DECODE)} decode groups"
    if keys.ROUTER in demanded:
        routers = int(wanted.get("routers") or 0)
        size += f", and {count(routers, 'router')}"
        differs += [ROUTER] if routers != intent.groups.get(keys.ROUTER) else []
    if hold == HoldReason.INVALID:
        return _false(Reason.DEMAND_IGNORED, why)
    if hand:
        return _false(Reason.SCALED_BY_HAND, _by_hand(decided, hand))
    recommended = bool(differs) and found.get("mode") != APPLY
    if hold in NOT_FOLLOWED:
        reason, says_size = NOT_FOLLOWED[HoldReason(hold)]
        stated = f"The wanted size is {size}; the mode is Recommend" if recommended else f"The size is {size}"
        limits = {name: Limit.UNSET if intent.policies[name].unbounded else Limit.MAX_REPLICAS for name in demanded}
        says = describe_hold(hold, found.get("atMaximum"), limits)
        return _false(reason, f"{says} {stated}" if says_size else says)
    if recommended:
        return Condition(FOLLOWS_DEMAND, True, Reason.RECOMMENDED, f"the demand needs {size}; the mode is Recommend")
    return Condition(FOLLOWS_DEMAND, True, Reason.FOLLOWED, f"the size is {size}")


def _by_hand(decided: PassDecisions, hand: Sequence[str]) -> str:
    """Return the message about components whose RoleScales somebody else has written: an autoscaler, if one is known that
    scales the RoleScale, and otherwise a person.
    """
    autoscalers, service = decided.snapshot.observed.autoscalers, decided.snapshot.service.name
    writers = {name: writer_of(autoscalers, names.component(service, name)) for name in hand}
    people = [name for name, one in writers.items() if one is None]
    parts = [f"the number of {name} was set in the RoleScale by {one.title}" for name, one in writers.items() if one]
    parts += [f"the number of {' and '.join(people)} was set by hand in the RoleScale"] if people else []
    return f"{', and '.join(parts)}, and applies instead of the demand"


def _false(reason: str, message: str) -> Condition:
    return Condition(FOLLOWS_DEMAND, False, reason, message)
