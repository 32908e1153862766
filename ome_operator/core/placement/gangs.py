"""Decide, in a pass over a service, which of its desired groups are not created for now, and which nodes it claims.

Applies only to the slice of the target revision, and only if `Policy.gang_timeout` is set. The states of a gang are in
`core/placement/attempts.py`, admission over all services in `core/placement/admission.py`.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.core import group_numbers
from ome_operator.core.observed.objects import Turn
from ome_operator.core.observed.slices import Slice, group_number, is_leader_set, started
from ome_operator.core.placement import timing
from ome_operator.core.placement.admission import Claim, Idle, contested
from ome_operator.core.placement.attempts import Decision, Numbers, Record, Seen, advance, gang, rested, trying
from ome_operator.core.placement.capacity_check import needs
from ome_operator.core.placement.demand import elsewhere
from ome_operator.core.placement.fit import lacks
from ome_operator.core.placement.partial_gangs import Groups, Stranded, idle, stranded
from ome_operator.core.reconcile.plan import Delete
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.render.statefulsets import Stored
from ome_operator.core.rollout.intent import Intent
from ome_operator.core.rollout.retire import hurry
from ome_operator.core.rollout.step import RolloutStep
from ome_operator.core.waves.shared_edits import whole_before

LONGEST = 300
"""Characters that a status keeps of the reason why pods could not be created."""


EMPTY: Groups = MappingProxyType({})


class Placing(NamedTuple):
    """The decision about the gangs of a service in this pass."""

    stored: Mapping[str, Any]
    """`status.placement`; {} if everything is placed."""
    withheld: Numbers
    """The number of desired groups by role that are not created for now."""
    served: Groups
    """Numbers of the groups that have served and are not given back, by role."""
    claim: Claim | None = None
    again: float | None = None
    waits: str = ""
    """What the gang waits for; "" if it does not wait, or if that is unknown."""
    refused: str = ""
    """Why pods could not be created in the last try."""
    placed: Groups = EMPTY
    """Numbers of the groups that have served or are placed, by role: other groups are removed first."""


PLACED = Placing({}, {}, {})


def place(snapshot: Snapshot, intent: Intent, step: RolloutStep, *, held: bool) -> Placing:
    """Decide about the gangs of the target revision. While the service is `held` (frozen), the stored state stays as it
    is.
    """
    deps, target = snapshot.deps, intent.target
    if not deps.policy.gang_timeout:
        return PLACED
    roles, share = intent.roles(target), step.groups.get(target)
    templates = [work["spec"]["template"] for role in roles.values() for work in (role.leader, role.worker) if work]
    if share is None or not (deps.policy.sees_cluster and deps.nodes) or any(map(elsewhere, templates)):
        return PLACED
    found = snapshot.slices.get(target, Slice(target, (), ()))
    before, told = _record(snapshot, found), snapshot.observed.turn
    ready = _ready(snapshot, roles, found)
    if before is not None and all(
        group_numbers.ready_groups(name, roles[name].size, found) for name in roles if share.get(name)
    ):
        before = before._replace(anew=False)
    whole = before is None or not before.anew
    served: Groups = _served(snapshot, ready, share, found) if whole else dict.fromkeys(roles, frozenset())
    on_demand = told.coming or snapshot.service.annotations.get(keys.IGNORE_FIT) == "true"
    timeout = timing.TRY_ON_DEMAND if on_demand else deps.policy.gang_timeout
    lost = None if held else stranded(snapshot, intent, roles, served, timeout)
    held_back = idle(snapshot, intent, roles, share, lost) if lost is not None else None
    gives_way = held_back is not None and told.gives_way == held_back.goes
    if lost is not None and gives_way:
        served = lost.stays
    placed = _placed(roles, share, served, found)
    seen = _seen(roles, share, served, placed, found)
    if held or (before is not None and not before.trying and not any(share.values())):
        # No admission is spent on a service that is held, or whose released pods are still terminating.
        placing = _placing(snapshot, roles, seen, served, Decision(before), {})
        return placing._replace(placed=placed, claim=None)
    decision = _advanced(snapshot, roles, share, found, before, seen, timeout=timeout, gives_way=gives_way)
    placing = _placing(snapshot, roles, seen, served, decision, _room(snapshot, intent, roles))._replace(placed=placed)
    return placing if lost is None or gives_way else _asking(placing, held_back, lost, told)


def _advanced(
    snapshot: Snapshot,
    roles: Mapping[str, Stored],
    share: Numbers,
    found: Slice,
    before: Record | None,
    seen: Seen,
    *,
    timeout: float,
    gives_way: bool,
) -> Decision:
    """Return the next state of the gangs, with the priority of their pods and, after a failed try, why none were created."""
    replaces = any(started(other) for name, other in snapshot.slices.items() if name != found.revision)
    new = before is None and not replaces and not any(group_numbers.existing(name, found) for name in roles)
    wanted = new or (before is not None and before.trying and not seen.half)
    decision = advance(
        before,
        seen,
        turn=snapshot.observed.turn.sure,
        contested=wanted and _contested(snapshot, roles, share, new),
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


def _asking(placing: Placing, asks: Idle | None, lost: Stranded, told: Turn) -> Placing:
    """Add the question whether nodes that serve nothing are released, and the time at which it is asked again."""
    waits = [timing.RECHECK if told.gives_way is not None else timing.FIRST_ANSWER] if asks is not None else []
    waits += [again for again in (placing.again, lost.again) if again is not None]
    return placing._replace(claim=placing.claim and placing.claim._replace(idle=asks), again=min(waits, default=None))


def _placed(roles: Mapping[str, Stored], share: Numbers, served: Groups, found: Slice) -> Groups:
    """Return the groups that are not given back: those that have served and, if each role has such a group, all that are
    on nodes.
    """
    bound = {name: group_numbers.on_nodes(name, role.size, found) for name, role in roles.items()}
    founded = all(bound[name] | served[name] for name in roles if share.get(name))
    return {name: served[name] | (bound[name] if founded else frozenset()) for name in roles}


def _seen(roles: Mapping[str, Stored], share: Numbers, served: Groups, placed: Groups, found: Slice) -> Seen:
    """Return the groups as they are on nodes."""
    there = {name: len(group_numbers.on_nodes(name, role.size, found) | served[name]) for name, role in roles.items()}
    pods = (pod for name in roles for pod in group_numbers.pods(name, found) if pod.group not in placed[name])
    half = any(pod.node and not pod.deleting for pod in pods)
    return Seen(share, there, {name: len(served[name]) for name in roles}, half)


def _contested(snapshot: Snapshot, roles: Mapping[str, Stored], share: Numbers, new: bool) -> bool:
    """Return whether a new gang has to be admitted first, and whether pods without a node make way.

    True if gangs that wait, or a serving service that makes capacity available for itself, want the same nodes. A new gang
    does not wait for a gang that the nodes of the cluster cannot hold. A new gang of a PriorityClass that is not known to be
    at most as high as that of every waiting gang tries at once, because preemption has to see its pods.
    """
    nodes = snapshot.deps.nodes
    rivals = [claim for claim in snapshot.observed.turn.rivals if not claim.trying or (claim.serves and not new)]
    rivals = [claim for claim in rivals if not (new and lacks(claim.needs, nodes))]
    if new and (mine := _priority_class(roles)):
        known = max(
            (claim.priority for claim in snapshot.observed.turn.rivals if claim.priority_class == mine), default=None
        )
        rivals = [claim for claim in rivals if known is not None and claim.priority >= known]
    return bool(rivals) and contested(needs(roles, share, snapshot.service.namespace, True), rivals, nodes)


def _refused(snapshot: Snapshot) -> str:
    """Return why the pods of a StatefulSet could not be created; "" if they could."""
    told, there = snapshot.observed.failures.items(), snapshot.observed.children
    return next((why[:LONGEST] for key, why in told if why and key[0] == "StatefulSet" and key in there), "")


def _priority_class(roles: Mapping[str, Stored]) -> str:
    """Return the PriorityClass of the pods of the first role."""
    spec = next(iter(roles.values())).leader["spec"]["template"]["spec"]
    return str(spec.get("priorityClassName") or "")


def _room(snapshot: Snapshot, intent: Intent, roles: Mapping[str, Stored]) -> Numbers:
    """Return the groups that the service wants and that exist in no slice.

    A rollout, a recycle or a recovery makes capacity available for them, which is reserved for the service until they are on
    nodes.
    """
    there: Counter[str] = Counter()
    for revision, found in snapshot.slices.items():
        for name, role in intent.roles(revision).items():
            there[name] += len(group_numbers.on_nodes(name, role.size, found))
    missing = {name: intent.groups.get(name, 0) - there[name] for name in roles}
    return {name: count for name, count in missing.items() if count > 0}


def _placing(
    snapshot: Snapshot,
    roles: Mapping[str, Stored],
    seen: Seen,
    served: Groups,
    decision: Decision,
    room: Numbers,
) -> Placing:
    service, record = snapshot.service, decision.record
    key, namespace, pods = f"{service.namespace}/{service.name}", service.namespace, _priority_class(roles)
    if record is None:
        asked = needs({name: roles[name] for name in room}, room, namespace, True)
        priority = max((pod.priority for pod in snapshot.pods), default=0)
        promise = Claim(key, asked, trying=True, priority=priority, priority_class=pods, serves=True)
        return Placing({}, {}, served, promise if room else None)
    groups = trying(record, seen) if record.trying else gang(record, seen)
    claim = Claim(
        key=key,
        needs=needs({name: roles[name] for name in groups}, groups, namespace, True),
        trying=record.trying,
        priority=record.priority,
        first=_seconds(record.first),
        since=_seconds(record.since),
        rested=rested(record, snapshot.now),
        priority_class=pods,
        failed=decision.failed,
    )
    again = _again(claim, snapshot) if decision.again is None else decision.again
    waits = "" if record.trying else snapshot.observed.turn.waits
    revision = next(iter(roles.values())).leader["metadata"]["labels"][keys.REVISION]
    stored = {"revision": revision, **record._asdict()}
    return Placing(stored, record.waiting, served, claim if groups else None, again, waits, record.refused)


def _again(claim: Claim, snapshot: Snapshot) -> float:
    """Return the seconds until the service is reconciled again: at the latest when it has waited long enough for others
    to release nodes.
    """
    left = claim.since + snapshot.deps.policy.gang_timeout - snapshot.now.timestamp()
    return min(left, timing.RECHECK) if left > 0 else timing.RECHECK


def _record(snapshot: Snapshot, found: Slice) -> Record | None:
    """Return what the status stores for this revision, with the priority of its pods while there are any."""
    stored = snapshot.service.status.get("placement") or {}
    if stored.get("revision") != found.revision:
        return None
    known = {name: stored[name] for name in Record._fields if stored.get(name) is not None}
    record = Record(**{"waiting": {}, "since": "", **known})
    return record._replace(priority=max((pod.priority for pod in found.pods), default=record.priority))


def _ready(snapshot: Snapshot, roles: Mapping[str, Stored], found: Slice) -> dict[str, frozenset[int]]:
    """Return the groups that are ready, or were ready according to the recovery record."""
    noted: dict[str, set[int]] = {name: set() for name in roles}
    for group in snapshot.service.status.get("groups") or ():
        if group.get("revision") == found.revision and group.get("incarnation") and group.get("component") in noted:
            noted[group["component"]].add(group.get("index") or 0)
    return {
        name: (group_numbers.existing(name, found) & noted[name]) | group_numbers.ready_groups(name, role.size, found)
        for name, role in roles.items()
    }


def _served(snapshot: Snapshot, ready: Groups, share: Numbers, found: Slice) -> Groups:
    """Return the groups that have served. If there has never been a group of every role, none has served, whether or not
    it is ready.
    """
    whole = found.revision in whole_before(snapshot.service.status) or all(ready[name] for name in ready if share.get(name))
    return ready if whole else dict.fromkeys(ready, frozenset())


def _seconds(text: str) -> float:
    """Return a time in seconds since the epoch, 0 if there is none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def served_first(placing: Placing, component: str, order: tuple[int, ...]) -> tuple[int, ...]:
    """Return groups of a role in this order, except that groups that have served come first, and groups to be given back
    last.
    """
    served, placed = placing.served.get(component, ()), placing.placed.get(component, ())
    return tuple(sorted(order, key=lambda number: (number not in served, number not in placed)))


def without_gangs(placing: Placing, component: str, found: Slice) -> Slice:
    """Return the slice without those pods of a role that may be given back at once: they serve nothing, so no router has
    to be drained.
    """
    if not placing.withheld:
        return found
    served = placing.served.get(component, ())
    return found._replace(pods=tuple(pod for pod in found.pods if pod.component != component or pod.group in served))


def give_back(placing: Placing, component: str, kept: tuple[int, ...], found: Slice) -> tuple[Delete, ...]:
    """Return the deletions of the groups of a role that were created and have to wait now: their StatefulSets and
    remaining pods.

    Workers do not wait until their leader has ended, as they do in a group that may have served (`retire.leftovers`): they
    would hold their nodes longer, and a worker without a node would take the node of the leader.
    """
    if not placing.withheld:
        return ()
    stays = {*kept, *placing.served.get(component, ())}
    goes = [
        child for child in group_numbers.sets(component, found) if not child.deleting and group_number(child) not in stays
    ]
    remade = {group_number(child) for child in goes if not is_leader_set(child)}
    pods = [pod for pod in group_numbers.pods(component, found) if pod.group not in stays]
    return (
        *(Delete(child.kind, child.name, child.uid) for child in goes),
        *hurry(pod for pod in pods if pod.rank == 0 or pod.group not in remade),
    )
