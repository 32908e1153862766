"""Decide, in a pass over a service, which of its desired groups are not created for now, and which nodes the service
claims.

This applies only to the groups of the target revision, and only if `Policy.gang_timeout` is set. The state machine of a gang
is in `core/placement/attempts.py`. The admission of the gangs of all services is in `core/placement/admission.py`.
Gangs in a queue of Kueue are in `core/placement/kueue.py`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from ome_operator import keys, quantity
from ome_operator.core import group_numbers
from ome_operator.core.observed.admission import GangAdmission
from ome_operator.core.observed.slices import Slice, group_number, has_started, is_leader_set
from ome_operator.core.placement import kueue, timing
from ome_operator.core.placement.attempts import Decision, Numbers, Record, SeenGroups, advance, gang, has_rested, to_place
from ome_operator.core.placement.capacity_check import revision_needs
from ome_operator.core.placement.claims import Claim, IdleNodes, is_contested
from ome_operator.core.placement.fit import find_unplaced, ignores_fit
from ome_operator.core.placement.partial_gangs import Groups, Stranded, expected, find_stranded, idle_nodes, unplaced_needs
from ome_operator.core.reconcile.plan import Delete
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.render.statefulsets import StoredRole
from ome_operator.core.rollout.intent import Intent
from ome_operator.core.rollout.retire import shorten_grace_periods
from ome_operator.core.rollout.step import RolloutStep
from ome_operator.core.waves.shared_edits import whole_before

LONGEST = 300
"""Maximum number of characters of the message in the status that states why pods could not be created. A longer message is
shortened."""


EMPTY: Groups = MappingProxyType({})


class GangPlan(NamedTuple):
    """The decision about the gangs of a service in this pass."""

    status_placement: Mapping[str, Any]
    """The new `status.placement`; {} if the service is placed completely."""
    withheld: Numbers
    """Number of desired groups by role that are not created for now."""
    served: Groups
    """Numbers, by role, of the groups that have served and are not removed to release nodes."""
    claim: Claim | None = None
    again: float | None = None
    waits: str = ""
    """What the gang waits for, worded so that it can follow "waits for"; "" if the gang does not wait, or if the reason is
    unknown."""
    refused: str = ""
    """Why pods could not be created in the last placement attempt; "" if they could be created."""
    held: str = ""
    """Which services hold nodes that pods without a node could take; "" if unknown."""
    placed_groups: Groups = EMPTY
    """Numbers, by role, of the groups that have served or are placed. If groups have to be removed, other groups are
    removed first."""


PLACED = GangPlan({}, {}, {})


def decide_gangs(snapshot: Snapshot, intent: Intent, step: RolloutStep, *, held: bool) -> GangPlan:
    """Decide which groups of the target revision are not created for now, and which nodes the service claims. If `held` is
    true (the service is frozen), the stored state does not change.
    """
    deps, target = snapshot.deps, intent.target
    if not deps.policy.gang_timeout:
        return PLACED
    roles, share = intent.roles(target), step.groups.get(target)
    if share is None or not (deps.policy.sees_cluster and deps.nodes) or kueue.placed_elsewhere(roles):
        return PLACED
    found = snapshot.slices.get(target, Slice(target, (), ()))
    before, admission = _record(snapshot, found), snapshot.observed.turn
    ready = _ready(snapshot, roles, found)
    if before is not None and all(
        group_numbers.ready_groups(name, roles[name].size, found) for name in roles if share.get(name)
    ):
        before = before._replace(anew=False)
    whole = before is None or not before.anew
    served: Groups = _served(snapshot, ready, share, found) if whole else dict.fromkeys(roles, frozenset())
    on_demand = admission.coming or ignores_fit(snapshot.service.annotations)
    timeout = timing.TRY_ON_DEMAND if on_demand and not admission.pressed else kueue.timeout(roles, deps.policy.gang_timeout)
    lost = None if held or kueue.is_queued(roles) else find_stranded(snapshot, intent, roles, served, timeout)
    held_back = idle_nodes(snapshot, intent, roles, share, lost) if lost is not None else None
    gives_way = held_back is not None and admission.gives_way == held_back.goes
    if lost is not None and gives_way:
        served = lost.groups_to_keep
    placed = _placed(roles, share, served, found)
    seen = _seen(roles, share, served, placed, found)
    if held or (before is not None and not before.trying and not any(share.values())):
        # A service that is frozen, or whose released pods are still terminating, must not be admitted: it makes no claim.
        placing = _placing(snapshot, intent, seen, served, Decision(before), {})
        return placing._replace(placed_groups=placed, claim=None)
    decision = _advanced(snapshot, intent, share, found, before, seen, timeout=timeout, gives_way=gives_way)
    placing = _placing(snapshot, intent, seen, served, decision, _unplaced(snapshot, intent))
    placing = placing._replace(placed_groups=placed, held=admission.held)
    if placing.claim is not None and placing.claim.trying and not placing.claim.serves:
        placing = placing._replace(claim=placing.claim._replace(missing=unplaced_needs(placing.claim.needs, found, placed)))
    return placing if lost is None or gives_way else _asking(placing, held_back, lost, admission)


def _advanced(
    snapshot: Snapshot,
    intent: Intent,
    share: Numbers,
    found: Slice,
    before: Record | None,
    seen: SeenGroups,
    *,
    timeout: float,
    gives_way: bool,
) -> Decision:
    """Return the decision about the gangs of the service. Its state includes the priority of the pods and, after a failed
    placement attempt, the reason why pods could not be created. `timeout` is the time limit of a placement attempt in
    seconds.
    """
    roles = intent.roles(intent.target)
    replaces = any(has_started(other) for name, other in snapshot.slices.items() if name != found.revision)
    new = before is None and not replaces and not any(group_numbers.existing_groups(name, found) for name in roles)
    wanted = new or (before is not None and before.trying and not seen.half)
    queued = kueue.is_queued(roles)
    decision = advance(
        before,
        seen,
        turn=kueue.may_create_again(before, _key(snapshot), snapshot.now) if queued else snapshot.observed.turn.sure,
        contested=wanted and not queued and _contested(snapshot, intent, share, new),
        timeout=timeout,
        now=snapshot.now,
        gives_way=gives_way,
    )
    if decision.record is not None and before is None:
        priority = max((pod.priority for pod in found.pods), default=0)
        decision = decision._replace(record=decision.record._replace(priority=priority))
    if decision.failed and decision.record is not None:
        decision = decision._replace(record=decision.record._replace(refused=_refused(snapshot)))
    return decision


def _key(snapshot: Snapshot) -> str:
    return f"{snapshot.service.namespace}/{snapshot.service.name}"


def _asking(placing: GangPlan, asks: IdleNodes | None, lost: Stranded, admission: GangAdmission) -> GangPlan:
    """Return `placing` with two changes: its claim contains the nodes that the service could release (`asks`; None if there
    are none), and the next pass is early enough to read the decision about these nodes.
    """
    waits = [timing.RECHECK if admission.gives_way is not None else timing.FIRST_ANSWER] if asks is not None else []
    waits += [again for again in (placing.again, lost.again) if again is not None]
    return placing._replace(claim=placing.claim and placing.claim._replace(idle=asks), again=min(waits, default=None))


def _placed(roles: Mapping[str, StoredRole], share: Numbers, served: Groups, found: Slice) -> Groups:
    """Return the numbers, by role, of the groups that are not removed to release nodes: groups that have served and, if
    every role has a group that is on nodes or has served, all groups that are on nodes.
    """
    bound = {name: group_numbers.on_nodes(name, role.size, found) for name, role in roles.items()}
    founded = all(bound[name] | served[name] for name in roles if share.get(name))
    return {name: served[name] | (bound[name] if founded else frozenset()) for name in roles}


def _seen(roles: Mapping[str, StoredRole], share: Numbers, served: Groups, placed: Groups, found: Slice) -> SeenGroups:
    """Return the observed groups as the input of the state machine (`attempts.advance`)."""
    there = {name: len(group_numbers.on_nodes(name, role.size, found) | served[name]) for name, role in roles.items()}
    stays = {name: placed[name] | group_numbers.finishing_groups(name, found) for name in roles}
    pods = (pod for name in roles for pod in group_numbers.pods(name, found) if pod.group not in stays[name])
    half = any(pod.node and not pod.deleting for pod in pods)
    return SeenGroups(share, there, {name: len(served[name]) for name in roles}, half)


def _contested(snapshot: Snapshot, intent: Intent, share: Numbers, new: bool) -> bool:
    """Return whether other claims for the same nodes affect this gang. If so, a new gang has to be admitted first, and the
    pods of an existing gang are removed if they have no node.

    The other claims are those of gangs that wait and, for an existing gang, of serving services that make capacity available
    for themselves. A new gang does not wait for a gang that the nodes of the cluster cannot hold. A new gang with a
    PriorityClass waits only for gangs whose priority is known to be at least as high, because preemption has to see its
    pods.
    """
    nodes, roles = snapshot.deps.nodes, intent.roles(intent.target)
    rivals = [claim for claim in snapshot.observed.turn.rivals if not claim.trying or (claim.serves and not new)]
    rivals = [claim for claim in rivals if not (new and find_unplaced(claim.needs, nodes))]
    if new and (mine := _priority_class(roles)):
        known = max(
            (claim.priority for claim in snapshot.observed.turn.rivals if claim.priority_class == mine), default=None
        )
        rivals = [claim for claim in rivals if known is not None and claim.priority >= known]
    asked = revision_needs(roles, share, snapshot.service.namespace, True, intent.fit.excluded)
    return bool(rivals) and is_contested(asked, rivals, nodes)


def _refused(snapshot: Snapshot) -> str:
    """Return why pods of a StatefulSet of the service could not be created; "" if no creation failed."""
    failures = ((key, why) for key, why in snapshot.observed.failures.items() if why and key[0] == "StatefulSet")
    return next((why[:LONGEST] for key, why in failures if snapshot.controlled(*key) is not None), "")


def _priority_class(roles: Mapping[str, StoredRole]) -> str:
    """Return the name of the PriorityClass in the pod template of the first of these roles; "" if the template has none."""
    spec = next(iter(roles.values())).leader["spec"]["template"]["spec"]
    return str(spec.get("priorityClassName") or "")


def _unplaced(snapshot: Snapshot, intent: Intent) -> Numbers:
    """Return, by role, how many more groups are desired than are on nodes, counted over all revisions.

    A rollout, a recycle or a recovery makes capacity available for the missing groups. The capacity is reserved for the
    service until these groups are on nodes.
    """
    there: Counter[str] = Counter()
    for revision, found in snapshot.slices.items():
        for name, role in intent.roles(revision).items():
            there[name] += len(group_numbers.on_nodes(name, role.size, found))
    missing = {name: intent.groups.get(name, 0) - there[name] for name in intent.roles(intent.target)}
    return {name: count for name, count in missing.items() if count > 0}


def _placing(
    snapshot: Snapshot, intent: Intent, seen: SeenGroups, served: Groups, decision: Decision, room: Numbers
) -> GangPlan:
    roles, excluded = intent.roles(intent.target), intent.fit.excluded
    record, queued = decision.record, kueue.is_queued(roles)
    key, namespace, pods = _key(snapshot), snapshot.service.namespace, _priority_class(roles)
    if record is None and queued:
        return GangPlan({}, {}, served)
    if record is None:
        present = (pod for found in snapshot.slices.values() for pod in found.pods)
        asked = expected(revision_needs({name: roles[name] for name in room}, room, namespace, True, excluded), present)
        priority = max((pod.priority for pod in snapshot.pods), default=0)
        promise = Claim(key, asked, trying=True, priority=priority, priority_class=pods, serves=True)
        return GangPlan({}, {}, served, promise if room else None)
    revision = next(iter(roles.values())).leader["metadata"]["labels"][keys.REVISION]
    stored = {"revision": revision, **record._asdict()}
    if queued and record.trying:
        return GangPlan(stored, record.waiting, served, again=decision.again)
    if queued:
        # no pause is left if the service was frozen when the pause ended
        pause = kueue.seconds_until_creation(record, key, snapshot.now) or timing.RECHECK
        return GangPlan(stored, record.waiting, served, again=pause, waits=kueue.WAITS, refused=record.refused)
    groups = to_place(record, seen) if record.trying else gang(record, seen)
    claim = Claim(
        key=key,
        needs=revision_needs({name: roles[name] for name in groups}, groups, namespace, True, excluded),
        trying=record.trying,
        priority=record.priority,
        first=_seconds(record.first),
        since=_seconds(record.since),
        rested=has_rested(record, snapshot.now),
        priority_class=pods,
        failed=decision.failed,
        refused=bool(_refused(snapshot) if record.trying else record.refused),
    )
    again = _again(claim, snapshot) if decision.again is None else decision.again
    waits = "" if record.trying else snapshot.observed.turn.waits
    return GangPlan(stored, record.waiting, served, claim if groups else None, again, waits, record.refused)


def _again(claim: Claim, snapshot: Snapshot) -> float:
    """Return the seconds until the service is reconciled again: `timing.RECHECK`, or less if the gang timeout ends earlier,
    because other services may then release nodes for the service.
    """
    left = claim.since + snapshot.deps.policy.gang_timeout - snapshot.now.timestamp()
    return min(left, timing.RECHECK) if left > 0 else timing.RECHECK


def _record(snapshot: Snapshot, found: Slice) -> Record | None:
    """Return the state that the status stores for this revision, with the present priority of its pods if there are pods;
    None if no state is stored.
    """
    stored = snapshot.service.status.get("placement") or {}
    if stored.get("revision") != found.revision:
        return None
    known = {name: stored[name] for name in Record._fields if stored.get(name) is not None}
    record = Record(**{"waiting": {}, "since": "", **known})
    return record._replace(priority=max((pod.priority for pod in found.pods), default=record.priority))


def _ready(snapshot: Snapshot, roles: Mapping[str, StoredRole], found: Slice) -> dict[str, frozenset[int]]:
    """Return the numbers, by role, of the groups that are ready, or that were ready according to the recovery record."""
    noted: dict[str, set[int]] = {name: set() for name in roles}
    for group in snapshot.service.status.get("groups") or ():
        if group.get("revision") == found.revision and group.get("incarnation") and group.get("component") in noted:
            noted[group["component"]].add(group.get("index") or 0)
    return {
        name: (group_numbers.existing_groups(name, found) & noted[name]) | group_numbers.ready_groups(name, role.size, found)
        for name, role in roles.items()
    }


def _served(snapshot: Snapshot, ready: Groups, share: Numbers, found: Slice) -> Groups:
    """Return the numbers, by role, of the groups that have served. If the service has never had a ready group of every role
    at the same time, no group counts as one that has served, even if it is ready.
    """
    whole = found.revision in whole_before(snapshot.service.status) or all(ready[name] for name in ready if share.get(name))
    return ready if whole else dict.fromkeys(ready, frozenset())


def _seconds(text: str) -> float:
    """Return a time in RFC 3339 as seconds since the epoch; 0 if `text` is not a time."""
    when = quantity.parse_instant(text)
    return 0.0 if when is None else when.timestamp()


def served_first(placing: GangPlan, component: str, order: tuple[int, ...]) -> tuple[int, ...]:
    """Return the group numbers of `order`, sorted: first the groups that have served, then other groups that are placed,
    then all other groups. Within each of these parts, the order stays the same.
    """
    served, placed = placing.served.get(component, ()), placing.placed_groups.get(component, ())
    return tuple(sorted(order, key=lambda number: (number not in served, number not in placed)))


def without_gangs(placing: GangPlan, component: str, found: Slice) -> Slice:
    """Return the objects of a revision, `found`. If groups are withheld, leave out those pods of the role whose groups have
    not served: these pods serve no requests, so they need not be drained from a router before they are removed.
    """
    if not placing.withheld:
        return found
    served = placing.served.get(component, ())
    return replace(found, pods=tuple(pod for pod in found.pods if pod.component != component or pod.group in served))


def give_back(placing: GangPlan, component: str, kept: tuple[int, ...], found: Slice) -> tuple[Delete, ...]:
    """Return the deletions of the groups of a role that were created and now have to wait for nodes: their StatefulSets and
    their remaining pods. Groups whose leaders finish their requests are left to `retire.remove_extra_groups`.

    The workers of these groups are deleted without waiting for the end of their leader, unlike workers of groups that may
    have served (`retire.remove_extra_groups`). If they waited, they would hold their nodes longer, and a worker without a
    node would take the node of the leader.
    """
    if not placing.withheld:
        return ()
    stays = {*kept, *placing.served.get(component, ()), *group_numbers.finishing_groups(component, found)}
    goes = [
        child
        for child in group_numbers.statefulsets(component, found)
        if not child.deleting and group_number(child) not in stays
    ]
    remade = {group_number(child) for child in goes if not is_leader_set(child)}
    pods = [pod for pod in group_numbers.pods(component, found) if pod.group not in stays]
    return (
        *(Delete(child.kind, child.name, child.uid) for child in goes),
        *shorten_grace_periods(pod for pod in pods if pod.rank == 0 or pod.group not in remade),
    )
