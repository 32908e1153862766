"""Choose the groups of a role for a desired number of groups: which groups stay if there are too many, and which numbers
new groups get.

Each group can be created and removed by itself, so the least valuable group is removed first. A group that is already marked
for draining is removed first, so that flapping readiness costs one group and not two. The next are groups that are not
ready, beginning with groups that are not on nodes. Among equal groups, the group with the highest number is removed first. A
new group gets the lowest number for which no object exists: gaps are filled before higher numbers are used, and no new group
waits for pods that cannot end.
"""

from collections.abc import Collection, Sequence
from itertools import count, islice

from ome_operator import names
from ome_operator.core.observed.exclusions import Exclusion
from ome_operator.core.observed.objects import Child, Pod
from ome_operator.core.observed.slices import Slice, group_number, is_leader_set
from ome_operator.util.memoize import memoize_by_identity

WORKER_GRACE = 1
"""Grace period in seconds for each rank above 0 whose leader is gone, and for all ranks of a group that releases its
nodes."""


def by_worth(role: str, size: int, slice_: Slice, leaving: Collection[int] = ()) -> tuple[int, ...]:
    """Return the numbers of the existing groups of a role, the most valuable group first. `size` is the number of pods of a
    group. Groups in `leaving` have to leave their nodes, so they are less valuable than equal groups.
    """
    ready, placed = ready_groups(role, size, slice_), on_nodes(role, size, slice_, True)
    marked = {pod.group for pod in pods(role, slice_) if pod.rank == 0 and pod.draining and not pod.deleting}
    worth = {
        number: (number in marked, number not in ready, number not in placed) for number in existing_groups(role, slice_)
    }
    return tuple(sorted(worth, key=lambda number: (worth[number], number in leaving, number)))


@memoize_by_identity(64, grows=False)
def existing_groups(role: str, slice_: Slice) -> frozenset[int]:
    """Return the numbers of the groups whose leader has a StatefulSet, or whose leader pod was left behind when its
    StatefulSet was deleted.

    A pod without a controller is adopted by its StatefulSet as soon as the StatefulSet is created again.
    """
    led = {group_number(child) for child in statefulsets(role, slice_) if is_leader_set(child) and not child.deleting}
    orphans = {pod.group for pod in pods(role, slice_) if not pod.workload_uid and not pod.deleting and is_leader(pod)}
    return frozenset(number for number in led | orphans if number is not None)


def used_numbers(role: str, slice_: Slice) -> frozenset[int]:
    """Return the numbers of the groups of which any object still exists, terminating or not. A new group needs another
    number.

    If no StatefulSet of the role exists, the pods belong to a former service or to a revision that is created again. The
    result is empty in this case: numbering begins at 0 again, and the StatefulSets wait until the names of their pods are
    free.
    """
    stored = {number for child in statefulsets(role, slice_) if (number := group_number(child)) is not None}
    return frozenset(stored | {pod.group for pod in pods(role, slice_)}) if stored else frozenset()


def finishing_groups(role: str, slice_: Slice) -> frozenset[int]:
    """Return the numbers of the groups that have no StatefulSet of a leader any more, and whose leader may still have
    requests. A leader may have requests if it is ready, if it was drained, or if it ends slowly (`_ends_slowly`).

    A group that is removed to release its nodes loses both StatefulSets at once, and its pods get the grace period
    `WORKER_GRACE`. Its leader is usually not ready.
    """
    found, led = statefulsets(role, slice_), existing_groups(role, slice_)
    kept = {group_number(child) for child in found if not (is_leader_set(child) or child.deleting)}
    leaders = (pod for pod in pods(role, slice_) if is_leader(pod) and not pod.over and pod.group not in led)
    waited = (pod for pod in leaders if pod.ready or pod.draining or _ends_slowly(pod, kept))
    return frozenset(pod.group for pod in waited)


def _ends_slowly(leader: Pod, kept: Collection[int | None]) -> bool:
    """Return whether a leader may still have requests although it is not ready: it runs, nobody has shortened its grace
    period, and its group is in `kept`, the groups whose StatefulSet of workers exists.
    """
    return leader.running and leader.grace > WORKER_GRACE and leader.group in kept


def remaining_groups(role: str, slice_: Slice) -> int:
    """Return the number of groups of which any object still exists, terminating or not."""
    return len({*map(group_number, statefulsets(role, slice_)), *(pod.group for pod in pods(role, slice_))} - {None})


@memoize_by_identity(64, grows=False)
def ready_groups(role: str, size: int, slice_: Slice) -> frozenset[int]:
    """Return the numbers of the groups in which every rank has a ready pod of an existing StatefulSet. `size` is the number
    of ranks of a group.
    """
    uids = {child.uid for child in statefulsets(role, slice_)}
    ranks: dict[int, set[int]] = {}
    for pod in pods(role, slice_):
        if pod.ready and not pod.deleting and pod.workload_uid in uids and 0 <= pod.rank < size:
            ranks.setdefault(pod.group, set()).add(pod.rank)
    return frozenset(group for group, ready in ranks.items() if len(ready) == size)


@memoize_by_identity(64, grows=False)
def on_nodes(role: str, size: int, slice_: Slice, ending: bool = False) -> frozenset[int]:
    """Return the numbers of the groups in which every rank has a pod on a node. If `ending` is true, terminating pods are
    included. `size` is the number of ranks of a group.

    The pods need not be ready, because readiness does not matter for placement.
    """
    ranks: dict[int, set[int]] = {}
    for pod in pods(role, slice_):
        if pod.node and (ending or not pod.deleting) and 0 <= pod.rank < size:
            ranks.setdefault(pod.group, set()).add(pod.rank)
    return frozenset(group for group, found in ranks.items() if len(found) == size)


def pick_numbers(wanted: int, order: Sequence[int], used: Collection[int]) -> tuple[int, ...]:
    """Return `wanted` group numbers: first the numbers in `order`, then the lowest numbers that are not in `used`."""
    kept = order[:wanted]
    free = (number for number in count() if number not in used and number not in kept)
    return tuple(sorted((*kept, *islice(free, wanted - len(kept)))))


def statefulsets(role: str, slice_: Slice) -> Sequence[Child]:
    """Return the StatefulSets of a role of a revision, including those that are being deleted."""
    return slice_.all_statefulsets.get(role, ())


def exclusions(role: str, slice_: Slice) -> dict[int, Exclusion]:
    """Return the nodes that each group of a role excludes, by the number of the group, including groups that are being
    deleted. A group keeps the nodes with which it was created.
    """
    return {number: child.excluded for child in statefulsets(role, slice_) if (number := group_number(child)) is not None}


def pods(role: str, slice_: Slice) -> Sequence[Pod]:
    """Return the pods of the groups of a role of a revision. Pods whose labels name no group are left out."""
    return slice_.group_pods.get(role, ())


def is_leader(pod: Pod) -> bool:
    """Return whether a pod is the leader of its group. The name of the pod is checked too, because a debugging copy of a
    pod has the same labels.
    """
    return pod.rank == 0 and pod.name == names.leader_pod(
        names.object_prefix(pod.service, pod.component, pod.revision), pod.group
    )
