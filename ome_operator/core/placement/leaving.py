"""Choose the groups that are replaced by a group with another number. These are groups of two kinds: groups that have
failed and have a pod on a node that is avoided now, and groups that wait for nodes and exclude a node on which a new
group could be placed.
"""

from collections.abc import Collection, Iterable

from ome_operator import quantity
from ome_operator.core import group_numbers
from ome_operator.core.freeze.hold import active_hold
from ome_operator.core.observed.exclusions import Exclusion
from ome_operator.core.observed.objects import Pod
from ome_operator.core.observed.slices import Slice
from ome_operator.core.placement import timing
from ome_operator.core.placement.demand import demand
from ome_operator.core.placement.need import node_accepts
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.render.statefulsets import StoredRole


def group_to_replace(snapshot: Snapshot, excluded: Exclusion, found: Slice, name: str, role: StoredRole) -> frozenset[int]:
    """Return the number of the group of the role `name` that has to be replaced by a group with another number; an empty set
    if there is none. At most one group is replaced at a time. A group whose leader is ready is not replaced. `excluded`
    contains the nodes that new groups exclude.

    A recycle under the same number would not change the StatefulSets of the group: its pods could return to an avoided node,
    and would still exclude the nodes that were excluded when the group was created.
    """
    service, stamped = snapshot.service, group_numbers.exclusions(name, found)
    if not (excluded or any(stamped.values())):
        return frozenset()
    if active_hold(snapshot.deps, service.namespace, service.name, service.annotations) is not None:
        return frozenset()
    recycled = {
        group.get("index") or 0
        for group in service.status.get("groups") or ()
        if (group.get("component"), group.get("revision")) == (name, found.revision) and group.get("recyclesInARow")
    }
    groups: dict[int, list[Pod]] = {}
    for pod in group_numbers.pods(name, found):
        groups.setdefault(pod.group, []).append(pod)
    for number in sorted(group_numbers.existing_groups(name, found)):
        pods, before = groups.get(number, []), stamped.get(number, ())
        if any(pod.rank == 0 and pod.ready and not pod.deleting for pod in pods):
            continue
        failed = _failed(pods, set(excluded).difference(before), recycled)
        if failed or (_waits(snapshot, pods) and _accepted(snapshot, role, set(before).difference(excluded))):
            return frozenset((number,))
    return frozenset()


def _failed(pods: Collection[Pod], avoided: Collection[str], recycled: Collection[int]) -> bool:
    """Return whether a group has failed before, and has a pod on a node of `avoided`. A group that has not failed yet stays,
    because its start may succeed.
    """
    if not any(pod.node in avoided for pod in pods):
        return False
    return any(pod.group in recycled or pod.restarts or pod.over for pod in pods)


def _accepted(snapshot: Snapshot, role: StoredRole, names: Iterable[str]) -> bool:
    """Return whether one of these nodes accepts pods of the role."""
    nodes = [snapshot.deps.nodes[name] for name in names if name in snapshot.deps.nodes]
    asks = [demand(each["spec"]["template"], True) for each in (role.leader, role.worker) if each is not None]
    return any(node_accepts(each, node, False) for each in asks for node in nodes)


def _waits(snapshot: Snapshot, pods: Iterable[Pod]) -> bool:
    """Return whether a pod of a group has waited for a node for at least `timing.NARROWED`."""
    created = (quantity.moment(pod.times.created, snapshot.now) for pod in pods if not pod.node and not pod.deleting)
    return any(when is not None and snapshot.now - when >= timing.NARROWED for when in created)
