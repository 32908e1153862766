"""Choose the groups that are replaced under another number, because they failed on a node that is avoided now."""

from ome_operator.core import group_numbers
from ome_operator.core.freeze.hold import active_hold
from ome_operator.core.observed.exclusions import Exclusion
from ome_operator.core.observed.objects import Pod
from ome_operator.core.observed.slices import Slice
from ome_operator.core.reconcile.snapshot import Snapshot


def leaving(snapshot: Snapshot, excluded: Exclusion, found: Slice, role: str) -> frozenset[int]:
    """Return the number of the group of a role that is to be replaced by a group with another number; an empty set if there
    is none. At most one group is replaced at a time.

    The group has failed before, is not ready, and has a pod on a node that new groups exclude. A group that serves stays,
    and so does a group that has not failed yet, because its start may succeed. If the group were recycled under the same
    number, its StatefulSets would not change, so its pods could return to the node.
    """
    service = snapshot.service
    if not excluded or active_hold(snapshot.deps, service.namespace, service.name, service.annotations) is not None:
        return frozenset()
    recycled = {
        group.get("index") or 0
        for group in service.status.get("groups") or ()
        if (group.get("component"), group.get("revision")) == (role, found.revision) and group.get("recyclesInARow")
    }
    stamped = group_numbers.exclusions(role, found)
    groups: dict[int, list[Pod]] = {}
    for pod in group_numbers.pods(role, found):
        groups.setdefault(pod.group, []).append(pod)
    goes = [
        number
        for number in sorted(group_numbers.existing(role, found))
        if (mine := groups.get(number))
        and not any(pod.rank == 0 and pod.ready and not pod.deleting for pod in mine)
        and {pod.node for pod in mine} & set(excluded).difference(stamped.get(number, ()))
        and (number in recycled or any(pod.restarts or pod.over for pod in mine))
    ]
    return frozenset(goes[:1])
