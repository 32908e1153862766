"""All that one pass over a service looks at, read once."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from ome_operator import quantity
from ome_operator.api import InferenceService
from ome_operator.core.observed import slices
from ome_operator.core.observed.objects import Child, Deps, Observed, Pod
from ome_operator.core.observed.slices import Revision, Slice


@dataclass(frozen=True)
class Snapshot:
    """A service, what it may refer to and what exists of it, at one moment.

    What is derived from these is computed when it is first read. Nobody changes anything of a snapshot.
    """

    service: InferenceService
    deps: Deps
    observed: Observed
    now: datetime

    @cached_property
    def slices(self) -> Mapping[str, Slice]:
        """Revision -> what exists of it, with pods of a former service of this name: they hold accelerators, too."""
        return slices.slices(self.observed, self.service.uid)

    @cached_property
    def pods(self) -> tuple[Pod, ...]:
        """Pods of workloads that this very service controls."""
        return slices.own_pods(self.observed, self.service.uid)

    @cached_property
    def revisions(self) -> tuple[Revision, ...]:
        """The stored revisions, oldest first."""
        return tuple(slices.stored(self.observed.children.values(), self.service.uid))

    @cached_property
    def inputs(self) -> Mapping[str, Mapping[str, Any]]:
        """Revision -> its stored inputs, oldest first."""
        return slices.inputs(self.revisions)

    def started(self, revision: str) -> bool:
        """Whether a revision has a slice that has, or is getting, engines."""
        return revision in self.slices and slices.started(self.slices[revision])

    def lost(self, node: str) -> bool:
        """Whether a node is gone, or its kubelet does not report: it confirms no deletion. Of nodes that we may not read
        nobody knows that, and nothing is done by force.
        """
        return (
            bool(node) and self.deps.policy.sees_cluster and (node not in self.deps.nodes or not self.deps.nodes[node].alive)
        )

    def abandoned(self, pod: Pod) -> bool:
        """Whether a pod should have ended by now, and nobody is there to say so."""
        return pod.deleting and self.lost(pod.node) and quantity.moment(pod.ends, self.now) is not None

    def made(self, revision: str) -> bool:
        """Whether a StatefulSet of a revision is left."""
        return revision in self.slices and any(one.kind == "StatefulSet" for one in self.slices[revision].workloads)

    def controlled(self, kind: str, name: str) -> Child | None:
        """The object of this kind and name if the service controls it."""
        found = self.observed.children.get((kind, name))
        return found if found is not None and found.owner == self.service.uid else None
