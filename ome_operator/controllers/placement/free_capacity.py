"""Maintain the free capacity of all nodes incrementally: a node is computed again only when the node, or a pod on it, has
changed.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.foreign_pods import ForeignPods
from ome_operator.cache.occupancy import PodOrigin
from ome_operator.cache.owned import revision_of_pods
from ome_operator.core.observed.objects import Node, Ref
from ome_operator.core.placement.claims import subtract_held
from ome_operator.core.placement.demand import demand
from ome_operator.core.render.statefulsets import roles_by_component


class FreeCapacity:
    """The free capacity of every node: the allocatable amounts, minus the requests of all pods on the node.

    The requests of the operator's pods are current. The requests of foreign pods (all pods that do not belong to services of
    this operator) are as of the time at which the foreign pods were last read.
    """

    def __init__(self, cluster: ClusterCache, foreign: ForeignPods) -> None:
        self._cluster, self._foreign = cluster, foreign
        self._seen: Mapping[str, Node] = {}
        self._known: dict[str, Node] = {}
        """Copy of `_seen` that was made when `_seen` was replaced by a new mapping."""
        self._free: dict[str, Node] = {}
        self._unknown: set[str] = set()
        """Nodes with pods whose requests are not known yet."""
        self.version = 0
        """A number that increases with every change of the free capacity, so that callers can detect changes."""

    def nodes(self) -> Mapping[str, Node]:
        """Return the nodes with their free capacity. The mapping is valid until the next call."""
        now = self._cluster.deps().nodes
        moved = self._cluster.occupancy.pop_changed_nodes() | self._foreign.pop_changed_nodes() | self._unknown
        self._unknown = set()
        if (
            now is not self._seen
        ):  # otherwise at most the version of a node has changed (cache/indices.py:Index.current_deps)
            moved |= {name for name, node in now.items() if self._known.get(name) is not node}
            moved |= self._known.keys() - now.keys()
            self._seen, self._known = now, dict(now)
        for name in moved:
            if name in now:
                self._free[name] = subtract_held(now[name], self._held(name))
            else:
                self._free.pop(name, None)
        self.version += bool(moved)
        return self._free

    def nodes_without(self, services: Iterable[Ref], *, foreign: bool) -> Mapping[str, Node]:
        """Return the nodes with the free capacity that they would have without the pods of `services`. If `foreign` is
        False, foreign pods are left out, too.
        """
        free, nodes, but = self.nodes(), self._cluster.deps().nodes, {(ref.namespace, ref.name) for ref in services}
        other = set() if foreign else self._foreign.recently_read_nodes()
        other |= {pod.node for each in but for pod in self._cluster.pods_of(*each)}
        return {
            **free,
            **{name: subtract_held(nodes[name], self._held(name, but, foreign)) for name in other & nodes.keys()},
        }

    def _held(self, node: str, but: Collection[tuple[str, str]] = (), foreign: bool = True) -> Mapping[str, int]:
        held = Counter(self._foreign.requests_on(node) if foreign else {})
        for made, count in self._cluster.occupancy.pods_on(node).items():
            if (made.namespace, made.service) in but:
                continue
            for resource, amount in self._asked(node, made):
                held[resource] += amount * count
        return held

    def _asked(self, node: str, pod_origin: PodOrigin) -> tuple[tuple[str, int], ...]:
        """Return the requests of a pod, from the stored revision from which the pod was created; () if that revision
        cannot be read.
        """
        try:
            data = revision_of_pods(self._cluster, pod_origin.namespace, pod_origin.service, pod_origin.revision)
            role = roles_by_component(data).get(pod_origin.component)
            workload = role and (role.leader if pod_origin.is_leader else role.worker)
            if workload:
                return demand(workload["spec"]["template"], True).requests
        except (AttributeError, KeyError, TypeError, ValueError):
            return ()  # anybody can write a ControllerRevision with our labels; it must not fail other passes
        self._unknown.add(node)
        return ()
