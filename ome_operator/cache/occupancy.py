"""Index of the operator's own pods by node. It is updated with each change; a changed pod causes work only for its own
node.
"""

from collections import Counter
from collections.abc import Container, Mapping
from typing import NamedTuple

from ome_operator import keys
from ome_operator.core.observed.objects import Pod


class PodOrigin(NamedTuple):
    """The part of a stored revision from which a pod was created. Pods of the same origin have the same resource
    requests.
    """

    namespace: str
    service: str
    revision: str
    component: str
    is_leader: bool


class Occupancy:
    """Index of engine pods by node. Routers are left out, because they are small and their requests are not stored."""

    def __init__(self) -> None:
        self._held: dict[str, Counter[PodOrigin]] = {}
        self._moved: set[str] = set()

    def pod(self, old: Pod | None, new: Pod | None) -> None:
        """Update the index; `old` or `new` is None for a pod that appeared or is gone."""
        before, after = _place(old), _place(new)
        if before == after:
            return
        if before is not None:
            self._add(*before, -1)
        if after is not None:
            self._add(*after, 1)

    def pods_on(self, node: str) -> Mapping[PodOrigin, int]:
        """Return the number of pods of each origin on a node."""
        return self._held.get(node, {})

    def pop_changed_nodes(self) -> set[str]:
        """Return the nodes whose pods have changed since the last call."""
        moved, self._moved = self._moved, set()
        return moved

    def tidy(self, nodes: Container[str]) -> None:
        """Discard recorded changes of nodes that do not exist, because a node that is created later with the same name is a
        different node.
        """
        self._moved = {node for node in self._moved if node in nodes}

    def _add(self, node: str, pod_origin: PodOrigin, number: int) -> None:
        here = self._held.setdefault(node, Counter())
        here[pod_origin] += number
        if not here[pod_origin]:
            del here[pod_origin]
        if not here:
            del self._held[node]
        self._moved.add(node)


def _place(pod: Pod | None) -> tuple[str, PodOrigin] | None:
    """Return the node that an engine pod occupies, and the pod's origin; None if it occupies no node."""
    if pod is None or not pod.node or pod.over or pod.component == keys.ROUTER:
        return None
    return pod.node, PodOrigin(pod.namespace, pod.service, pod.revision, pod.component, pod.rank == 0)
