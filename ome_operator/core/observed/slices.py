"""Group the existing objects of a service by revision. The existing objects of one revision are called a slice."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ome_operator import keys, names
from ome_operator.core.observed.objects import Child, Observed, Pod


@dataclass(frozen=True)
class Slice:
    """The existing objects of one revision. Derived values are computed when they are first read."""

    revision: str
    workloads: tuple[Child, ...]
    """StatefulSets, Deployments and disruption budgets of this revision."""
    pods: tuple[Pod, ...]

    @cached_property
    def all_statefulsets(self) -> Mapping[str, Sequence[Child]]:
        """The StatefulSets by component, including those that are being deleted."""
        found: dict[str, list[Child]] = {}
        for child in self.workloads:
            if child.kind == "StatefulSet":
                found.setdefault(child.labels.get(keys.COMPONENT, ""), []).append(child)
        return found

    @cached_property
    def group_pods(self) -> Mapping[str, Sequence[Pod]]:
        """The pods whose labels name a group, by component."""
        found: dict[str, list[Pod]] = {}
        for pod in self.pods:
            if pod.group >= 0:
                found.setdefault(pod.component, []).append(pod)
        return found


def controlled_or_adoptable(child: Child, uid: str) -> bool:
    """Return whether the service with this UID controls an object, or may adopt the object. An object may be adopted if the
    operator applied it and it has no controller.
    """
    return child.owner == uid or (not child.owner and bool(child.owned))


_OF_SET = re.compile(r"(\d{1,5}(-w)?-)?\d+")
_OF_ROUTER = re.compile(r"[a-z0-9]{1,63}-[a-z0-9]{1,63}")
"""`_OF_SET` matches the rest of the name of a StatefulSet's pod after the stem of the role. `_OF_ROUTER` matches the rest
of the name of a pod of a router's Deployment."""


def made_by_workload(pod: Pod) -> bool:
    """Return whether a pod was created by the operator's workload for the role and the revision in the labels of the pod.

    The result is derived from the names of the pod and of its controller, because the UID of a deleted workload is not
    known any more, while its pods still hold accelerators. The result is also True for two other kinds of pods: pods of a
    former service of the same name, and pods without a controller whose names have the form that a workload gives. The
    result is False for copies of pods, such as those of `kubectl debug`, and for pods of other controllers, even if these
    pods have the labels.
    """
    stem = names.object_prefix(pod.service, pod.component, pod.revision)
    if pod.workload:
        return pod.workload == stem or pod.workload.startswith(f"{stem}-")
    form = _OF_ROUTER if pod.component == keys.ROUTER else _OF_SET
    return pod.name.startswith(f"{stem}-") and form.fullmatch(pod.name, len(stem) + 1) is not None


def slices(observed: Observed, uid: str) -> dict[str, Slice]:
    """Return the existing objects of the service with the UID `uid`, by the name of their revision."""
    workloads: dict[str, list[Child]] = {}
    for child in observed.children.values():
        if child.kind in ("StatefulSet", "Deployment", "PodDisruptionBudget") and controlled_or_adoptable(child, uid):
            workloads.setdefault(child.labels.get(keys.REVISION, ""), []).append(child)
    pods: dict[str, list[Pod]] = {}
    for pod in filter(made_by_workload, observed.pods):
        pods.setdefault(pod.revision, []).append(pod)
    return {
        name: Slice(name, tuple(workloads.get(name, ())), tuple(pods.get(name, ())))
        for name in sorted(workloads.keys() | pods.keys())
        if name
    }


def own_pods(observed: Observed, uid: str) -> tuple[Pod, ...]:
    """Return the pods of workloads that the service with this UID controls. Pods of a former service of the same name are
    left out.
    """
    sets = {child.uid for child in observed.children.values() if child.kind == "StatefulSet" and child.owner == uid}
    deployments = {child.name for child in observed.children.values() if child.kind == "Deployment" and child.owner == uid}
    return tuple(
        pod
        for pod in observed.pods
        if pod.workload_uid in sets
        or (pod.component == keys.ROUTER and pod.workload.rpartition("-")[0] in deployments)  # owned through a ReplicaSet
    )


def group_number(child: Child) -> int | None:
    """Return the number of a StatefulSet's group; None for other objects. The number is read from the name, because
    labels can be removed manually.
    """
    parts = names.group(child.name) if child.kind == "StatefulSet" else None
    return parts[0] if parts else None


def has_former_name(child: Child) -> bool:
    """Return whether an object is a StatefulSet without a group in its name. Older versions of the operator created a
    single StatefulSet for all leaders of a role.
    """
    return child.kind == "StatefulSet" and group_number(child) is None


def is_leader_set(child: Child) -> bool:
    """Return whether an object is the StatefulSet of a group's leader (rank 0)."""
    return group_number(child) is not None and not names.leader_of(child.name)


def has_started(slice_: Slice) -> bool:
    """Return whether a slice has a StatefulSet of a leader that is not being deleted, so that it has engines or is about to
    get them.
    """
    return any(is_leader_set(child) and not child.deleting for child in slice_.workloads)


class Revision(NamedTuple):
    """A stored revision."""

    name: str
    """Value of the label `ome.io/revision`."""
    number: int
    """Number that increases with each new revision of the service."""
    data: Mapping[str, Any]
    child: Child


def stored_revisions(children: Iterable[Child], uid: str) -> list[Revision]:
    """Return the stored revisions of the service with this UID, oldest first, including orphans that it may adopt.

    ControllerRevisions that StatefulSets create for themselves are left out, because the StatefulSet controls them.
    """
    revisions = [
        Revision(child.labels.get(keys.REVISION, ""), int(child.content["revision"]), child.content["data"], child)
        for child in children
        if child.kind == "ControllerRevision"
        and controlled_or_adoptable(child, uid)
        and child.content
        and not child.deleting
    ]
    return sorted((child for child in revisions if child.name), key=lambda child: child.number)


def inputs(revisions: Iterable[Revision]) -> dict[str, Mapping[str, Any]]:
    """Return the stored inputs of the revisions by the name of the revision, in the order of `revisions`."""
    return {revision.name: revision.data["inputs"] for revision in revisions if revision.data.get("inputs")}
