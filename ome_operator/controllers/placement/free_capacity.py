"""What is free on the nodes, kept by difference: a node is looked at again when it, or a pod there, has changed."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.foreign_pods import ForeignPods
from ome_operator.cache.occupancy import PodOrigin
from ome_operator.core.observed.objects import Node, Ref
from ome_operator.core.placement.admission import less
from ome_operator.core.placement.demand import demand


class FreeRoom:
    """Allocatable of every node, less what pods of ours hold, less what others held when somebody looked."""

    def __init__(self, cluster: ClusterCache, foreign: ForeignPods) -> None:
        self._cluster, self._foreign = cluster, foreign
        self._seen: Mapping[str, Node] = {}
        self._known: dict[str, Node] = {}
        """The nodes of `_seen` when that map was new."""
        self._free: dict[str, Node] = {}
        self._unknown: set[str] = set()
        """Nodes with pods of which nobody knows yet what they ask for."""
        self.version = 0
        """Another number after every change."""

    def nodes(self) -> Mapping[str, Node]:
        """As it is until the next call."""
        now = self._cluster.deps().nodes
        moved = self._cluster.occupancy.moved() | self._foreign.moved() | self._unknown
        self._unknown = set()
        if now is not self._seen:  # else a node has another version at most (cache/indices.py:Index.asked)
            moved |= {name for name, node in now.items() if self._known.get(name) is not node}
            moved |= self._known.keys() - now.keys()
            self._seen, self._known = now, dict(now)
        for name in moved:
            if name in now:
                self._free[name] = less(now[name], self._held(name))
            else:
                self._free.pop(name, None)
        self.version += bool(moved)
        return self._free

    def without(self, services: Iterable[Ref], *, strangers: bool) -> Mapping[str, Node]:
        """As it would be without the pods of some services; and without what strangers held when somebody looked."""
        free, nodes, but = self.nodes(), self._cluster.deps().nodes, {(ref.namespace, ref.name) for ref in services}
        other = set() if strangers else self._foreign.known()
        other |= {pod.node for each in but for pod in self._cluster.pods_of(*each)}
        return {**free, **{name: less(nodes[name], self._held(name, but, strangers)) for name in other & nodes.keys()}}

    def _held(self, node: str, but: Collection[tuple[str, str]] = (), strangers: bool = True) -> Mapping[str, int]:
        held = Counter(self._foreign.on(node) if strangers else {})
        for made, count in self._cluster.occupancy.on(node).items():
            if (made.namespace, made.service) in but:
                continue
            for resource, amount in self._asked(node, made):
                held[resource] += amount * count
        return held

    def _asked(self, node: str, made: PodOrigin) -> tuple[tuple[str, int], ...]:
        """What such a pod requests, by the stored revision that it was made from."""
        try:
            role = self._cluster.roles(made.namespace, made.service, made.revision).get(made.component)
            workload = role and (role.leader if made.leads else role.worker)
            if workload:
                return demand(workload["spec"]["template"], True).requests
        except (AttributeError, KeyError, TypeError, ValueError):
            return ()  # anybody may write a ControllerRevision with our labels, which costs nobody else a pass
        self._unknown.add(node)
        return ()
