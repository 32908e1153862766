"""What passes ask of the facts, kept by difference: an event costs what it concerns, and no walk over all there is."""

from collections.abc import KeysView
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ome_operator import names
from ome_operator.api import Invalid
from ome_operator.cache.node_labels import LabelIndex, moves
from ome_operator.cache.resources import ACCELERATORS, FINE_TUNED, JOB, MODELS, SERVICE, Resource
from ome_operator.core.observed.objects import Deps, Holding, Node, NodeRecord, Pod, Ref


class Index:
    """Told of every change, and asked by name. Where several objects have a name, the newest counts."""

    def __init__(self, settled: Deps) -> None:
        self._models: dict[Ref, Any] = {}
        self._runtimes: dict[Ref, Any] = {}
        self._accelerators: dict[str, Any] = {}
        self._weights: dict[str, Any] = {}
        self._nodes: dict[str, Node] = {}
        self._anew = False
        self._holding: dict[str, dict[str, None]] = {}
        """Label -> nodes. A dict of 5,000 names takes a fifth of the room of a set."""
        self._holders: dict[str, KeysView[str]] = {}
        """The same, as others see it."""
        self._moved: set[str] = set()
        self._on_node: dict[str, dict[str, None]] = {}
        self._records: dict[str, NodeRecord] = {}
        self._benchmarks: dict[tuple[str, str, str], dict[Ref, None]] = {}
        self.unmade: dict[Ref, None] = {}
        """Servings of which no service with an address was made."""
        self.models = LabelIndex()
        self.holdings: dict[Ref, dict[str, Holding]] = {}
        """Model -> node -> what its agent says about it."""
        self.deps = replace(
            settled,
            models=self._models,
            runtimes=self._runtimes,
            accelerators=self._accelerators,
            weights=self._weights,
            nodes=self._nodes,
            holders=self._holders,
        )

    def asked(self) -> Deps:
        """What services may refer to. Its `nodes` are another object after a change of any: answers about them are kept by
        identity (core/placement/fit.py:lacks).
        """
        if self._anew:
            self._anew, self.deps = False, replace(self.deps, nodes=MappingProxyType(self._nodes))
        return self.deps

    def refer(self, ref: Ref, parsed: Any) -> None:
        """What services may refer to was edited, or is gone: None."""
        if ref.kind in ACCELERATORS:
            _put(self._accelerators, ref.name, None if isinstance(parsed, Invalid) else parsed)
        elif ref.kind == FINE_TUNED:
            _put(self._weights, ref.name, parsed)
        else:
            _put(self._models if ref.kind in MODELS else self._runtimes, ref, parsed)

    def node(self, name: str, now: Node | None) -> None:
        """A node changed, or is gone: None."""
        former = self._nodes.get(name)
        if former is None or now is None or former._replace(version=now.version) != now:
            self._anew = True
        _put(self._nodes, name, now)
        for label, holds in moves(former, now):
            self._moved.add(label)
            if not holds:
                del self._holding[label][name]
                if not self._holding[label]:
                    del self._holding[label], self._holders[label]
                continue
            if label not in self._holding:
                self._holding[label] = nodes = dict[str, None]()
                self._holders[label] = nodes.keys()
            self._holding[label][name] = None

    def moved(self) -> set[str]:
        """Labels that have another set of holders since the last call."""
        moved, self._moved = self._moved, set()
        return moved

    def record(self, node: str, now: NodeRecord | None) -> None:
        """The record of a node changed, or is gone: None."""
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
        """A BenchmarkJob changed."""
        if old is not None:
            for key in _about(old):
                del self._benchmarks[key][old.ref]
                _tidy(self._benchmarks, key)
        if new is not None:
            for key in _about(new):
                self._benchmarks.setdefault(key, {})[new.ref] = None

    def benchmarks(self, kind: str, namespace: str, name: str) -> tuple[Ref, ...]:
        """BenchmarkJobs whose Job has this name, or that wait for this service."""
        return tuple(self._benchmarks.get((kind, namespace, name), ()))

    def serving(self, old: Resource | None, new: Resource | None) -> None:
        """A Serving changed."""
        for resource in (each for each in (old, new) if each is not None):
            self.unmade.pop(resource.ref, None)
        if new is not None and not new.status.get("url"):
            self.unmade[new.ref] = None

    def pod(self, old: Pod | None, new: Pod | None) -> None:
        """A pod changed."""
        before, after = (pod.node if pod is not None else "" for pod in (old, new))
        if before == after:
            return
        if before and old is not None:
            del self._on_node[before][old.uid]
            _tidy(self._on_node, before)
        if after and new is not None:
            self._on_node.setdefault(after, {})[new.uid] = None

    def on_node(self, name: str) -> tuple[str, ...]:
        """UIDs of the pods of a node."""
        return tuple(self._on_node.get(name, ()))


def _about(benchmark: Resource) -> set[tuple[str, str, str]]:
    """What concerns a BenchmarkJob: who has the name of its Job and, until it begins, its service."""
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
    """Keep nothing that is empty."""
    if not table[key]:
        del table[key]
