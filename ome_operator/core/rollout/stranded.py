"""Groups that have served and are on nodes no more as a whole: what they hold serves nobody (docs/placement.md).

A lost rank is a matter of recovery, and its group is never given back for that alone. It goes only when it has found no node
for as long as a gang may try, and when somebody would be placed in what it holds (`core/placement/giving_way.py`).
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from ome_operator import quantity
from ome_operator.core.observed.slices import Slice, started
from ome_operator.core.observed.snapshot import Snapshot
from ome_operator.core.placement.fit import Needs
from ome_operator.core.placement.gangs import Numbers
from ome_operator.core.placement.turns import Idle
from ome_operator.core.render.statefulsets import Stored
from ome_operator.core.rollout import members
from ome_operator.core.rollout.fitting import needs
from ome_operator.core.rollout.intent import Intent

PENDING = "Pending"
"""The phase of a group of which not every rank is on a node, as recovery notes it."""
Groups = Mapping[str, frozenset[int]]
"""Numbers of groups, by role."""


class Stranded(NamedTuple):
    """Groups that hold nodes and serve nobody, or will when their time is over."""

    goes: Groups
    """What is given back when somebody else would be placed then."""
    stays: Groups
    """The other groups that have served."""
    founded: bool
    """Whether the service may serve with those."""
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
    bound = {name: members.on_nodes(name, role.size, found) for name, role in roles.items()}
    left = {
        (role, index): lasts - (snapshot.now - since).total_seconds()
        for (role, index, revision), since in _pending(snapshot.service.status, snapshot.now).items()
        if revision == intent.target and index in served.get(role, frozenset()) - bound.get(role, frozenset())
    }
    if not left:
        return None
    lost = {name: frozenset(index for role, index in left if role == name and left[role, index] <= 0) for name in roles}
    there = {name: (served[name] - lost[name]) | bound[name] for name in roles}
    founded = all(there[name] or not lost[name] for name in roles)
    goes = lost if founded else {name: served[name] | bound[name] for name in roles}
    again = min((seconds for seconds in left.values() if seconds > 0), default=None)
    return Stranded(goes, {name: served[name] - goes[name] for name in roles}, founded, again)


def idle(snapshot: Snapshot, intent: Intent, roles: Mapping[str, Stored], share: Numbers, lost: Stranded) -> Idle | None:
    """What the service asks about them; None while the time of none is over."""
    if not any(lost.goes.values()):
        return None
    found = snapshot.slices.get(intent.target, Slice(intent.target, (), ()))
    bound = {name: members.on_nodes(name, role.size, found) for name, role in roles.items()}
    keeps = {name: len(lost.stays[name] | (bound[name] - lost.goes[name])) for name in roles}
    goes = {name: len(lost.goes[name]) for name in roles}
    unit = [next(name for name in roles if goes[name])] if lost.founded else [name for name in roles if share.get(name)]
    holding = {(pod.component, pod.group) for name in roles for pod in members.pods(name, found) if pod.node}
    several = sum((name, number) in holding for name in roles for number in lost.goes[name]) > 1

    def pods(groups: Numbers) -> Needs:
        return needs(roles, {name: groups.get(name, 0) for name in roles}, snapshot.service.namespace, True)

    return Idle(
        pods(keeps), pods(goes), pods(dict.fromkeys(unit, 1)), several, lost_since(snapshot.service.status, snapshot.now)
    )


def lost_since(status: Mapping[str, Any], now: datetime) -> float:
    """When the first of the groups that have served began to look for a node, in seconds since the epoch; 0.0 for none."""
    return min((since.timestamp() for since in _pending(status, now).values()), default=0.0)


def _pending(status: Mapping[str, Any], now: datetime) -> dict[tuple[str, int, str], datetime]:
    """Role, number and revision of the groups that have served and are not on nodes as a whole, by what recovery has noted;
    and since when.
    """
    return {
        (group["component"], group.get("index") or 0, group["revision"]): quantity.moment(group["since"], now) or now
        for group in status.get("groups") or ()
        if group.get("incarnation") and group.get("phase") == PENDING
    }
