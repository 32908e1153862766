"""Which pods of ours hold room on which nodes, kept by difference: a pod that changes costs its own node."""

from collections import Counter
from collections.abc import Container, Mapping
from typing import NamedTuple

from ome_operator import keys
from ome_operator.core.observed.objects import Pod


class PodOrigin(NamedTuple):
    """What a pod was made from: pods with the same ask for the same."""

    namespace: str
    service: str
    revision: str
    component: str
    leads: bool


class Occupancy:
    """Node -> pods of engines there. Routers are small, and nobody stores what they ask for."""

    def __init__(self) -> None:
        self._held: dict[str, Counter[PodOrigin]] = {}
        self._moved: set[str] = set()

    def pod(self, old: Pod | None, new: Pod | None) -> None:
        """A pod changed."""
        before, after = _place(old), _place(new)
        if before == after:
            return
        if before is not None:
            self._add(*before, -1)
        if after is not None:
            self._add(*after, 1)

    def on(self, node: str) -> Mapping[PodOrigin, int]:
        """What holds a node -> how many pods of it."""
        return self._held.get(node, {})

    def moved(self) -> set[str]:
        """Nodes that hold something else than at the last call."""
        moved, self._moved = self._moved, set()
        return moved

    def tidy(self, nodes: Container[str]) -> None:
        """Forget what was noted of nodes that do not exist: who comes again under such a name is another node."""
        self._moved = {node for node in self._moved if node in nodes}

    def _add(self, node: str, made: PodOrigin, number: int) -> None:
        here = self._held.setdefault(node, Counter())
        here[made] += number
        if not here[made]:
            del here[made]
        if not here:
            del self._held[node]
        self._moved.add(node)


def _place(pod: Pod | None) -> tuple[str, PodOrigin] | None:
    """Where a pod holds room, and which."""
    if pod is None or not pod.node or pod.over or pod.component == keys.ROUTER:
        return None
    return pod.node, PodOrigin(pod.namespace, pod.service, pod.revision, pod.component, pod.rank == 0)
