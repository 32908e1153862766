"""Find groups that have served and are no longer completely on nodes: the nodes that these groups hold serve no requests
(docs/placement.md).

Recovery replaces a lost rank, and the loss alone does not remove the rest of the group. The group is removed only if the
lost rank has found no node within the time limit of a placement attempt, and if another gang would be placed on the nodes of
the group (`core/placement/release.py`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from ome_operator import quantity
from ome_operator.core import group_numbers
from ome_operator.core.observed.objects import Pod
from ome_operator.core.observed.slices import Slice, has_started
from ome_operator.core.placement.attempts import Numbers
from ome_operator.core.placement.capacity_check import revision_needs
from ome_operator.core.placement.claims import IdleNodes, Member
from ome_operator.core.placement.demand import demand
from ome_operator.core.placement.fit import Needs
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.render.statefulsets import StoredRole
from ome_operator.core.rollout.intent import Intent

PENDING = "Pending"
"""The phase, in the recovery record, of a group that does not have every rank on a node."""
Groups = Mapping[str, frozenset[int]]
"""Numbers of groups by role."""


class Stranded(NamedTuple):
    """Groups that hold nodes without serving requests, and the time until further groups reach the time limit."""

    groups_to_remove: Groups
    """The groups to remove if another gang would be placed on their nodes; empty while no group has reached the time
    limit."""
    groups_to_keep: Groups
    """The groups that have served and are not in `groups_to_remove`."""
    can_serve: bool
    """Whether the service can serve with the groups in `groups_to_keep`."""
    since: float
    """When the first of the groups that have reached the time limit lost its rank, in seconds since the epoch; 0.0 if
    there is no such group."""
    again: float | None
    """Seconds until the next group reaches the time limit; None if there is no such group."""


def find_stranded(
    snapshot: Snapshot, intent: Intent, roles: Mapping[str, StoredRole], served: Groups, lasts: float
) -> Stranded | None:
    """Return the groups of the target revision in which a rank has found no node for `lasts` seconds.

    If all groups of any role have lost a rank in this way, all groups of the service are returned, because the service
    serves no requests. Return None if all groups are placed, or if another revision exists that may serve.
    """
    if any(has_started(other) for name, other in snapshot.slices.items() if name != intent.target):
        return None
    found = snapshot.slices.get(intent.target, Slice(intent.target, (), ()))
    bound = {name: group_numbers.on_nodes(name, role.size, found) for name, role in roles.items()}
    leads = {(pod.component, pod.group): pod.uid for pod in found.pods if pod.rank == 0 and pod.ready and not pod.deleting}
    since = {
        (lost.role, lost.number): lost.since
        for lost in _pending(snapshot.service.status, snapshot.now)
        if lost.revision == intent.target
        and lost.number in served.get(lost.role, frozenset()) - bound.get(lost.role, frozenset())
        # The leader with which the group served still serves with the remaining ranks; a new leader has no other ranks.
        and not (lost.leader and leads.get((lost.role, lost.number), "").startswith(lost.leader))
    }
    if not since:
        return None
    left = {group: lasts - (snapshot.now - when).total_seconds() for group, when in since.items()}
    over = {group for group, seconds in left.items() if seconds <= 0}
    lost = {name: frozenset(index for role, index in over if role == name) for name in roles}
    there = {name: (served[name] - lost[name]) | bound[name] for name in roles}
    can_serve = all(there[name] or not lost[name] for name in roles)
    goes = lost if can_serve else {name: served[name] | bound[name] for name in roles}
    return Stranded(
        goes,
        {name: served[name] - goes[name] for name in roles},
        can_serve,
        min((since[group].timestamp() for group in over), default=0.0),
        min((seconds for seconds in left.values() if seconds > 0), default=None),
    )


def idle_nodes(
    snapshot: Snapshot, intent: Intent, roles: Mapping[str, StoredRole], share: Numbers, lost: Stranded
) -> IdleNodes | None:
    """Return the nodes that the groups `lost.groups_to_remove` hold, and the pods that the groups lack; None if no group has
    reached the time limit.
    """
    goes = frozenset((name, number) for name in roles for number in lost.groups_to_remove[name])
    if not goes:
        return None
    found = snapshot.slices.get(intent.target, Slice(intent.target, (), ()))
    holding: dict[Member, set[int]] = {group: set() for group in goes}
    rooms: dict[str, Counter[str]] = {}
    for pod in found.pods:
        if (pod.component, pod.group) in goes and pod.node:
            if not pod.deleting:
                holding[pod.component, pod.group].add(pod.rank)
            rooms.setdefault(pod.node, Counter()).update(_requests(roles[pod.component], pod))
    wanted = [name for name in roles if (lost.groups_to_remove[name] if lost.can_serve else share.get(name))]
    parts = [[name] for name in wanted] if lost.can_serve else [wanted]
    several = sum(map(bool, holding.values())) > 1
    namespace = snapshot.service.namespace
    return IdleNodes(
        goes,
        tuple((node, tuple(sorted(amounts.items()))) for node, amounts in sorted(rooms.items())),
        tuple(_lacking(roles, namespace, part, holding) for part in parts),
        tuple(_lacking(roles, namespace, part, {}) for part in parts) if several else (),
        lost.since,
    )


def unplaced_needs(needs: Needs, found: Slice, placed: Groups) -> Needs:
    """Return the pods in `needs` that are on no node; () if none of the pods is on a node. `needs` has the leaders and
    the workers of the groups that are not in `placed`, the leaders of each role first.
    """
    there = Counter(
        (pod.component, pod.rank == 0)
        for pod in found.pods
        if pod.node and not pod.deleting and pod.group not in placed.get(pod.component, frozenset())
    )
    left, led = [], set[str]()
    for need in needs:
        (name,) = need.components
        left.append(need._replace(pods=max(0, need.pods - there[name, name not in led])))
        led.add(name)
    return tuple(left) if there else ()


def expected(needs: Needs, pods: Iterable[Pod]) -> Needs:
    """Return `needs`, with the number of pods of each role limited to the number of the role's pods that are on no node or
    are being deleted. A service that serves thus claims no capacity for more pods than it lacks, even if its next revision
    has more pods.
    """
    left = Counter(pod.component for pod in pods if pod.deleting or not pod.node)
    found = []
    for need in needs:
        (name,) = need.components
        found.append(need._replace(pods=min(need.pods, left[name])))
        left[name] -= found[-1].pods
    return tuple(found)


def lost_since(status: Mapping[str, Any], now: datetime) -> datetime | None:
    """Return the time since which a rank of a group has waited for a node after the group had served; the earliest time if
    there are several groups. Return None if no such group waits for a node.
    """
    return min((lost.since for lost in _pending(status, now)), default=None)


def _requests(role: StoredRole, pod: Pod) -> dict[str, int]:
    workload = role.worker if pod.rank and role.worker else role.leader
    return dict(demand(workload["spec"]["template"], True).requests)


def _lacking(roles: Mapping[str, StoredRole], namespace: str, part: list[str], holding: Mapping[Member, set[int]]) -> Needs:
    """Return the pods that a group of each role in `part` lacks. For each role the group that lacks the fewest pods is
    used. `holding` contains the ranks of each group that are on nodes.
    """
    lacks: Counter[tuple[str, bool]] = Counter()
    for name in part:
        groups = [ranks for (role, _), ranks in holding.items() if role == name]
        most = max(groups, key=len, default=set())
        lacks.update((name, rank == 0) for rank in range(roles[name].size) if rank not in most)
    found, led = [], set[str]()
    for need in revision_needs(roles, dict.fromkeys(roles, 1), namespace, True):
        (name,) = need.components
        found.append(need._replace(pods=lacks[name, name not in led]))
        led.add(name)
    return tuple(found)


class _Pending(NamedTuple):
    """A group that has served and is not completely on nodes, according to the recovery record."""

    role: str
    number: int
    revision: str
    since: datetime
    leader: str
    """The first characters of the UID of the leader with which the group served; "" if the UID was not recorded."""


def _pending(status: Mapping[str, Any], now: datetime) -> Iterator[_Pending]:
    for group in status.get("groups") or ():
        if group.get("incarnation") and group.get("phase") == PENDING:
            yield _Pending(
                group.get("component") or "",
                group.get("index") or 0,
                group.get("revision") or "",
                quantity.moment(group.get("since") or "", now) or now,
                str((group.get("members") or {}).get("0") or "").partition(".")[0],
            )
