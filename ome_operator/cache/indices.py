"""Indices over the stored facts. They are updated with each change, so that no event and no query has to visit all
objects.
"""

from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ome_operator import names
from ome_operator.api import Invalid
from ome_operator.cache.node_labels import LabelIndex, label_changes
from ome_operator.cache.node_sets import NodeNumbers, NodeSet
from ome_operator.cache.resources import ACCELERATORS, FINE_TUNED, JOB, MODELS, SERVICE, Resource
from ome_operator.core.observed.objects import Deps, Node, NodeHolding, NodeRecord, Pod, Ref


class Index:
    """Indices that are updated with each change and queried by name. If several objects have the same name, the newest
    object is used.
    """

    def __init__(self, settled: Deps) -> None:
        self._models: dict[Ref, Any] = {}
        self._runtimes: dict[Ref, Any] = {}
        self._accelerators: dict[str, Any] = {}
        self._weights: dict[str, Any] = {}
        self._nodes: dict[str, Node] = {}
        self._nodes_changed = False
        self._numbers = NodeNumbers()
        self._holders: dict[str, NodeSet] = {}
        """Maps the node label of a model to the names of the nodes that have the model."""
        self._moved: set[str] = set()
        self._on_node: dict[str, dict[str, None]] = {}
        self._records: dict[str, NodeRecord] = {}
        self._benchmarks: dict[tuple[str, str, str], dict[Ref, None]] = {}
        self.unmade: dict[Ref, None] = {}
        """Servings whose status has no address yet."""
        self.models = LabelIndex()
        self.holdings: dict[Ref, dict[str, NodeHolding]] = {}
        """Maps a model to a map from nodes to what the node's agent reports about the model."""
        self.deps = replace(
            settled,
            models=self._models,
            runtimes=self._runtimes,
            accelerators=self._accelerators,
            weights=self._weights,
            nodes=self._nodes,
            holders=self._holders,
        )

    def current_deps(self) -> Deps:
        """Return the catalog and the nodes. Whenever a node has changed, the mapping `nodes` of the result is a new object,
        because results about nodes are memoized by the identity of this mapping (core/placement/fit.py:find_unplaced).
        """
        if self._nodes_changed:
            self._nodes_changed, self.deps = False, replace(self.deps, nodes=MappingProxyType(self._nodes))
        return self.deps

    def refer(self, ref: Ref, parsed: Any) -> None:
        """Store a catalog object that was edited; `parsed` is None if the object is gone."""
        if ref.kind in ACCELERATORS:
            _put(self._accelerators, ref.name, None if isinstance(parsed, Invalid) else parsed)
        elif ref.kind == FINE_TUNED:
            _put(self._weights, ref.name, parsed)
        else:
            _put(self._models if ref.kind in MODELS else self._runtimes, ref, parsed)

    def node(self, name: str, now: Node | None) -> None:
        """Store a node that changed; `now` is None if the node is gone."""
        former = self._nodes.get(name)
        if former is None or now is None or former._replace(version=now.version) != now:
            self._nodes_changed = True
        _put(self._nodes, name, now)
        for label, holds in label_changes(former, now):
            self._moved.add(label)
            nodes = self._holders.get(label)
            if nodes is None:
                nodes = self._holders[label] = NodeSet(self._numbers)
            if holds:
                nodes.add(name)
            else:
                nodes.remove(name)
                _tidy(self._holders, label)
        if now is None:
            self._numbers.free(name)

    def moved(self) -> set[str]:
        """Return the node labels of models whose set of nodes has changed since the last call."""
        moved, self._moved = self._moved, set()
        return moved

    def record(self, node: str, now: NodeRecord | None) -> None:
        """Store the NodeModels record of a node; `now` is None if the record is gone."""
        before, after = (
            {each.ref: each for each in (record.holdings if record else ())} for record in (self._records.get(node), now)
        )
        _put(self._records, node, now)
        for ref in before.keys() - after.keys():
            del self.holdings[ref][node]
            _tidy(self.holdings, ref)
        for ref, holding in after.items():
            self.holdings.setdefault(ref, {})[node] = holding

    def benchmark(self, old: Resource | None, new: Resource | None) -> None:
        """Update the index of BenchmarkJobs; `old` or `new` is None for an object that appeared or is gone."""
        if old is not None:
            for key in _about(old):
                del self._benchmarks[key][old.ref]
                _tidy(self._benchmarks, key)
        if new is not None:
            for key in _about(new):
                self._benchmarks.setdefault(key, {})[new.ref] = None

    def benchmarks(self, kind: str, namespace: str, name: str) -> tuple[Ref, ...]:
        """Return the BenchmarkJobs that depend on an object, which is their Job or the service that they wait for; () if no
        BenchmarkJob does.
        """
        return tuple(self._benchmarks.get((kind, namespace, name), ()))

    def serving(self, old: Resource | None, new: Resource | None) -> None:
        """Update the Servings without an address; `old` or `new` is None for an object that appeared or is gone."""
        for resource in (each for each in (old, new) if each is not None):
            self.unmade.pop(resource.ref, None)
        if new is not None and not new.status.get("url"):
            self.unmade[new.ref] = None

    def pod(self, old: Pod | None, new: Pod | None) -> None:
        """Update the pods of nodes; `old` or `new` is None for a pod that appeared or is gone."""
        before, after = (pod.node if pod is not None else "" for pod in (old, new))
        if before == after:
            return
        if before and old is not None:
            del self._on_node[before][old.uid]
            _tidy(self._on_node, before)
        if after and new is not None:
            self._on_node.setdefault(after, {})[new.uid] = None

    def on_node(self, name: str) -> tuple[str, ...]:
        """Return the UIDs of the pods of a node."""
        return tuple(self._on_node.get(name, ()))


def _about(benchmark: Resource) -> set[tuple[str, str, str]]:
    """Return the kind, namespace and name of the objects whose changes concern a BenchmarkJob: its Job and, until the
    benchmark starts, its service.
    """
    found = {(JOB, benchmark.ref.namespace, names.benchmark(benchmark.ref.name))}
    if not isinstance(benchmark.parsed, Invalid) and not benchmark.status.get("startedGeneration"):
        service = benchmark.parsed.spec.endpoint.inference_service
        found |= {(SERVICE, service.namespace, service.name)} if service is not None else set()
    return found


def _put(table: dict[Any, Any], key: Any, now: Any) -> None:
    if now is None:
        table.pop(key, None)
    else:
        table[key] = now


def _tidy(table: dict[Any, Any], key: Any) -> None:
    """Remove a key from a table if its value is empty."""
    if not table[key]:
        del table[key]
