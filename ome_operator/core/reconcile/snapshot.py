"""The complete input of one pass over a service, read once."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from ome_operator import quantity
from ome_operator.api import InferenceService
from ome_operator.core.observed import slices
from ome_operator.core.observed.objects import Child, Deps, Observed, Pod
from ome_operator.core.observed.restored import original_namespace
from ome_operator.core.observed.slices import Revision, Slice


@dataclass(frozen=True)
class Snapshot:
    """A service, the objects that it may refer to, and the objects that exist for it, at one moment.

    Derived values are computed when they are first read. A snapshot is never modified.
    """

    service: InferenceService
    deps: Deps
    observed: Observed
    now: datetime

    @cached_property
    def slices(self) -> Mapping[str, Slice]:
        """The slice of each revision: its workloads and pods on the cluster. Pods of a former service of the same name are
        included, because they hold accelerators too. Copies of pods, and pods of other controllers, are not included.
        Slices of `restored_revisions` revisions are left out.
        """
        return {name: found for name, found in self._all_slices.items() if name not in self.restored_revisions}

    @cached_property
    def _all_slices(self) -> Mapping[str, Slice]:
        return slices.slices(self.observed, self.service.uid)

    @cached_property
    def restored_revisions(self) -> Mapping[str, str]:
        """Maps each stored revision that was restored from a backup of another namespace to that namespace. These revisions
        are never used, and none of their pods may run, because the pods would contact the ranks of the original service.
        """
        service = self.service
        found = {one.name: original_namespace(one, service.name, service.namespace) for one in self.revisions}
        return {name: place for name, place in found.items() if place and not self._controls(name)}

    def _controls(self, revision: str) -> bool:
        """Return whether the service controls a workload of a revision, which may then be serving."""
        found = self._all_slices.get(revision)
        return found is not None and any(child.owner == self.service.uid for child in found.workloads)

    @cached_property
    def unusable_slices(self) -> tuple[Slice, ...]:
        """The existing objects of the revisions in `restored_revisions`."""
        return tuple(found for name, found in self._all_slices.items() if name in self.restored_revisions)

    @cached_property
    def pods(self) -> tuple[Pod, ...]:
        """Pods of workloads that this service, identified by its UID, controls."""
        return slices.own_pods(self.observed, self.service.uid)

    @cached_property
    def revisions(self) -> tuple[Revision, ...]:
        """The stored revisions, oldest first."""
        return tuple(slices.stored_revisions(self.observed.children.values(), self.service.uid))

    @cached_property
    def inputs(self) -> Mapping[str, Mapping[str, Any]]:
        """The stored inputs of each revision, the oldest revision first."""
        return slices.inputs(self.revisions)

    def has_engines(self, revision: str) -> bool:
        """Return whether a revision has engines on the cluster, or is about to get them."""
        return revision in self.slices and slices.has_started(self.slices[revision])

    def is_node_lost(self, node: str) -> bool:
        """Return whether a node is gone or its kubelet does not report, so that the deletions of its pods are not
        confirmed.

        Return False if the operator may not read nodes; no deletion is forced in this case.
        """
        return (
            bool(node) and self.deps.policy.sees_cluster and (node not in self.deps.nodes or not self.deps.nodes[node].alive)
        )

    def is_abandoned(self, pod: Pod) -> bool:
        """Return whether a pod should have ended by now, but its node is lost and cannot confirm that it has."""
        return pod.deleting and self.is_node_lost(pod.node) and quantity.moment(pod.ends, self.now) is not None

    def has_statefulset(self, revision: str) -> bool:
        """Return whether a StatefulSet of a revision exists."""
        return revision in self.slices and any(one.kind == "StatefulSet" for one in self.slices[revision].workloads)

    def controlled(self, kind: str, name: str) -> Child | None:
        """Return the object with the kind `kind` and the name `name` if the service controls it; otherwise None."""
        found = self.observed.children.get((kind, name))
        return found if found is not None and found.owner == self.service.uid else None
