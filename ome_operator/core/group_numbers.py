"""Which groups a number of groups means: who stays when there are too many, and which numbers new ones get.

Any group can be made and removed by itself, so the one that is worth least goes: a group that was marked already, so that
readiness which flickers costs one group and not two; then a group that is not ready, first of all if it is on no node; then
the highest number. A new group gets the lowest number of which no object is left: a hole is filled before a higher number is
used, and nothing waits for pods that cannot end.
"""

from collections.abc import Collection, Sequence
from itertools import count, islice

from ome_operator import keys, names
from ome_operator.core.observed.objects import Child, Pod
from ome_operator.core.observed.slices import Slice, group_number, is_leader_set


def by_worth(role: str, size: int, slice_: Slice) -> tuple[int, ...]:
    """Numbers of the groups of a role that exist, the one that is worth most first; `size` in pods."""
    ready, placed = ready_groups(role, size, slice_), on_nodes(role, size, slice_, ending=True)
    marked = {pod.group for pod in pods(role, slice_) if pod.rank == 0 and pod.draining and not pod.deleting}
    worth = {number: (number in marked, number not in ready, number not in placed) for number in existing(role, slice_)}
    return tuple(sorted(worth, key=lambda number: (worth[number], number)))


def existing(role: str, slice_: Slice) -> frozenset[int]:
    """Numbers of the groups that have their leader's StatefulSet, or lost it while the pod was left behind.

    A pod without a controller goes back to the StatefulSet as soon as it is made again.
    """
    led = {group_number(child) for child in sets(role, slice_) if is_leader_set(child) and not child.deleting}
    orphans = {pod.group for pod in pods(role, slice_) if is_leader(pod) and not pod.deleting and not pod.workload_uid}
    return frozenset(number for number in led | orphans if number is not None)


def taken(role: str, slice_: Slice) -> frozenset[int]:
    """Numbers of groups of which any object is left, on its way out or not: a new group needs another number.

    Where no StatefulSet of the role is left the pods are those of a former service, or of a slice that comes back: it
    begins at 0 again, and its StatefulSets wait for the names of their pods.
    """
    stored = {number for child in sets(role, slice_) if (number := group_number(child)) is not None}
    return frozenset(stored | {pod.group for pod in pods(role, slice_)}) if stored else frozenset()


def left(role: str, slice_: Slice) -> int:
    """How many groups there are of which any object is left."""
    return len({*map(group_number, sets(role, slice_)), *(pod.group for pod in pods(role, slice_))} - {None})


def ready_groups(role: str, size: int, slice_: Slice) -> frozenset[int]:
    """Numbers of the groups of which every rank has a ready pod of a StatefulSet that exists."""
    uids = {child.uid for child in sets(role, slice_)}
    ranks: dict[int, set[int]] = {}
    for pod in pods(role, slice_):
        if pod.ready and not pod.deleting and pod.workload_uid in uids and 0 <= pod.rank < size:
            ranks.setdefault(pod.group, set()).add(pod.rank)
    return frozenset(group for group, ready in ranks.items() if len(ready) == size)


def on_nodes(role: str, size: int, slice_: Slice, ending: bool = False) -> frozenset[int]:
    """Numbers of the groups of which every rank is on a node, also those that are `ending` there if that is asked for.

    Whether they are ready is no matter of placement.
    """
    ranks: dict[int, set[int]] = {}
    for pod in pods(role, slice_):
        if pod.node and (ending or not pod.deleting) and 0 <= pod.rank < size:
            ranks.setdefault(pod.group, set()).add(pod.rank)
    return frozenset(group for group, found in ranks.items() if len(found) == size)


def chosen(wanted: int, order: Sequence[int], used: Collection[int]) -> tuple[int, ...]:
    """So many numbers: the first ones of `order`, then the lowest that are not `used`."""
    kept = order[:wanted]
    free = (number for number in count() if number not in used and number not in kept)
    return tuple(sorted((*kept, *islice(free, wanted - len(kept)))))


def sets(role: str, slice_: Slice) -> list[Child]:
    """The StatefulSets of a role of a slice, those that are being deleted included."""
    return [child for child in slice_.workloads if child.kind == "StatefulSet" and child.labels.get(keys.COMPONENT) == role]


def pods(role: str, slice_: Slice) -> list[Pod]:
    """The pods of the groups of a role of a slice; a pod whose labels name no group is of no group."""
    return [pod for pod in slice_.pods if pod.component == role and pod.group >= 0]


def is_leader(pod: Pod) -> bool:
    """Whether a pod is the leader of its group, by name too: a copy that somebody made for debugging has its labels."""
    return pod.rank == 0 and pod.name == names.leader_pod(names.stem(pod.service, pod.component, pod.revision), pod.group)
