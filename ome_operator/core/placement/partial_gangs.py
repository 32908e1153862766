"""Groups that have served and are on nodes no more as a whole: what they hold serves nobody (docs/placement.md).

A lost rank is a matter of recovery, and its group is never given back for that alone. It goes only when it has found no node
for as long as a gang may try, and when somebody would be placed in what it holds (`core/placement/release.py`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from ome_operator import quantity
from ome_operator.core import group_numbers
from ome_operator.core.observed.objects import Pod
from ome_operator.core.observed.slices import Slice, started
from ome_operator.core.placement.admission import Idle, Member
from ome_operator.core.placement.attempts import Numbers
from ome_operator.core.placement.capacity_check import needs
from ome_operator.core.placement.demand import demand
from ome_operator.core.placement.fit import Needs
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.render.statefulsets import Stored
from ome_operator.core.rollout.intent import Intent

PENDING = "Pending"
"""The phase of a group of which not every rank is on a node, as recovery notes it."""
Groups = Mapping[str, frozenset[int]]
"""Numbers of groups, by role."""


class Stranded(NamedTuple):
    """Groups that hold nodes and serve nobody, or will when their time is over."""

    goes: Groups
    """What is given back when somebody else would be placed then; nothing while no time is over."""
    stays: Groups
    """The other groups that have served."""
    founded: bool
    """Whether the service may serve with those."""
    since: float
    """When the first of those that go lost its rank, in seconds since the epoch; 0.0 while none goes."""
    again: float | None
    """Seconds until the next group has looked for a node for long enough."""


def stranded(
    snapshot: Snapshot, intent: Intent, roles: Mapping[str, Stored], served: Groups, lasts: float
) -> Stranded | None:
    """Groups of the target that have found no node for a rank for `lasts` seconds. Where no other group of such a role is
    left, none of the service serves anybody. None where all are placed, and beside another slice, which may serve.
    """
    if any(started(other) for name, other in snapshot.slices.items() if name != intent.target):
        return None
    found = snapshot.slices.get(intent.target, Slice(intent.target, (), ()))
    bound = {name: group_numbers.on_nodes(name, role.size, found) for name, role in roles.items()}
    leads = {(pod.component, pod.group): pod.uid for pod in found.pods if pod.rank == 0 and pod.ready and not pod.deleting}
    since = {
        (lost.role, lost.number): lost.since
        for lost in _pending(snapshot.service.status, snapshot.now)
        if lost.revision == intent.target
        and lost.number in served.get(lost.role, frozenset()) - bound.get(lost.role, frozenset())
        # A leader that was there when all served says that it serves with the ranks that are left; a new one has none.
        and not (lost.leader and leads.get((lost.role, lost.number), "").startswith(lost.leader))
    }
    if not since:
        return None
    left = {group: lasts - (snapshot.now - when).total_seconds() for group, when in since.items()}
    over = {group for group, seconds in left.items() if seconds <= 0}
    lost = {name: frozenset(index for role, index in over if role == name) for name in roles}
    there = {name: (served[name] - lost[name]) | bound[name] for name in roles}
    founded = all(there[name] or not lost[name] for name in roles)
    goes = lost if founded else {name: served[name] | bound[name] for name in roles}
    return Stranded(
        goes,
        {name: served[name] - goes[name] for name in roles},
        founded,
        min((since[group].timestamp() for group in over), default=0.0),
        min((seconds for seconds in left.values() if seconds > 0), default=None),
    )


def idle(snapshot: Snapshot, intent: Intent, roles: Mapping[str, Stored], share: Numbers, lost: Stranded) -> Idle | None:
    """What the service asks about them; None while the time of none is over."""
    goes = frozenset((name, number) for name in roles for number in lost.goes[name])
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
    wanted = [name for name in roles if (lost.goes[name] if lost.founded else share.get(name))]
    parts = [[name] for name in wanted] if lost.founded else [wanted]
    several = sum(map(bool, holding.values())) > 1
    namespace = snapshot.service.namespace
    return Idle(
        goes,
        tuple((node, tuple(sorted(amounts.items()))) for node, amounts in sorted(rooms.items())),
        tuple(_lacking(roles, namespace, part, holding) for part in parts),
        tuple(_lacking(roles, namespace, part, {}) for part in parts) if several else (),
        lost.since,
    )


def lost_since(status: Mapping[str, Any], now: datetime) -> datetime | None:
    """When the first of the groups that have served began to look for a node; None where none does."""
    return min((lost.since for lost in _pending(status, now)), default=None)


def _requests(role: Stored, pod: Pod) -> dict[str, int]:
    workload = role.worker if pod.rank and role.worker else role.leader
    return dict(demand(workload["spec"]["template"], True).requests)


def _lacking(roles: Mapping[str, Stored], namespace: str, part: list[str], holding: Mapping[Member, set[int]]) -> Needs:
    """The pods that a group of each role of a part lacks, of the group that lacks fewest."""
    lacks: Counter[tuple[str, bool]] = Counter()
    for name in part:
        groups = [ranks for (role, _), ranks in holding.items() if role == name]
        most = max(groups, key=len, default=set())
        lacks.update((name, rank == 0) for rank in range(roles[name].size) if rank not in most)
    found, led = [], set[str]()
    for need in needs(roles, dict.fromkeys(roles, 1), namespace, True):
        (name,) = need.components
        found.append(need._replace(pods=lacks[name, name not in led]))
        led.add(name)
    return tuple(found)


class _Pending(NamedTuple):
    """A group that has served and is not on nodes as a whole, by what recovery has noted."""

    role: str
    number: int
    revision: str
    since: datetime
    leader: str
    """The beginning of the UID of the leader with which it served."""


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
