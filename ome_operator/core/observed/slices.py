"""What exists of each revision of a service: its slices, and the pods that count."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ome_operator import keys, names
from ome_operator.core.observed.objects import Child, Observed, Pod


class Slice(NamedTuple):
    """What exists of one revision."""

    revision: str
    workloads: tuple[Child, ...]
    """StatefulSets, Deployments and budgets with this revision."""
    pods: tuple[Pod, ...]


def ours(child: Child, uid: str) -> bool:
    """Whether the service with this UID controls an object, or may adopt it: no controller, and applied by us."""
    return child.owner == uid or (not child.owner and bool(child.owned))


def slices(observed: Observed, uid: str) -> dict[str, Slice]:
    """Everything that exists per revision, for the service with this UID."""
    workloads: dict[str, list[Child]] = {}
    for one in observed.children.values():
        if one.kind in ("StatefulSet", "Deployment", "PodDisruptionBudget") and ours(one, uid):
            workloads.setdefault(one.labels.get(keys.REVISION, ""), []).append(one)
    pods: dict[str, list[Pod]] = {}
    for pod in observed.pods:
        pods.setdefault(pod.revision, []).append(pod)
    return {
        name: Slice(name, tuple(workloads.get(name, ())), tuple(pods.get(name, ())))
        for name in sorted(workloads.keys() | pods.keys())
        if name
    }


def own_pods(observed: Observed, uid: str) -> tuple[Pod, ...]:
    """Pods of workloads that the service with this UID controls: not those of a former service of its name."""
    sets = {one.uid for one in observed.children.values() if one.kind == "StatefulSet" and one.owner == uid}
    deployments = {one.name for one in observed.children.values() if one.kind == "Deployment" and one.owner == uid}
    return tuple(
        pod
        for pod in observed.pods
        if pod.workload_uid in sets
        or (pod.component == keys.ROUTER and pod.workload.rpartition("-")[0] in deployments)  # through a ReplicaSet
    )


def group_number(child: Child) -> int | None:
    """The group that a StatefulSet belongs to, by its name: labels can be taken off by hand. None for other objects."""
    found = names.group(child.name) if child.kind == "StatefulSet" else None
    return found[0] if found else None


def nameless(child: Child) -> bool:
    """Whether it is a StatefulSet whose name tells no group: that of all leaders of a role, in a former shape."""
    return child.kind == "StatefulSet" and group_number(child) is None


def is_leader_set(child: Child) -> bool:
    """Whether it is the StatefulSet of a group's leader (rank 0)."""
    return group_number(child) is not None and not names.leader_of(child.name)


def started(one: Slice) -> bool:
    """Whether the slice has, or is getting, engines."""
    return any(is_leader_set(child) and not child.deleting for child in one.workloads)


class Revision(NamedTuple):
    """One stored revision."""

    name: str
    """The value of the label `ome.io/revision`."""
    number: int
    """Order of creation; the largest is the newest."""
    data: Mapping[str, Any]
    child: Child


def stored(children: Iterable[Child], uid: str) -> list[Revision]:
    """Revisions of the service with this UID, oldest first, orphans that it may adopt included.

    StatefulSets make ControllerRevisions too: those are controlled by the StatefulSet.
    """
    found = [
        Revision(one.labels.get(keys.REVISION, ""), int(one.content["revision"]), one.content["data"], one)
        for one in children
        if one.kind == "ControllerRevision" and ours(one, uid) and one.content and not one.deleting
    ]
    return sorted((one for one in found if one.name), key=lambda one: one.number)


def inputs(known: Iterable[Revision]) -> dict[str, Mapping[str, Any]]:
    """Revision -> stored inputs, in the order of `known`."""
    return {one.name: one.data["inputs"] for one in known if one.data.get("inputs")}
