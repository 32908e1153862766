"""Which part of the cluster an operator works on: its namespaces, and the class of the objects that it acts on."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.cache.resources import BENCHMARK, CATALOG, SERVICE, SHORT
from ome_operator.kube.resources import RESOURCES

CLASSED = frozenset((SERVICE, *CATALOG, BENCHMARK, *SHORT))
"""Kinds whose objects may say by a label which class of operators they are for."""


class Scope(NamedTuple):
    """What is an operator's own."""

    namespaces: tuple[str, ...] = ()
    """() for all."""
    cluster_kinds: bool = True
    """Whether cluster-wide kinds are read, nodes among them."""
    operator_class: str = ""
    model_agent: bool = False
    """Whether agents of the same release fetch weights."""

    def kinds(self, kinds: Iterable[str]) -> tuple[str, ...]:
        """Those of the kinds that are read at all."""
        return tuple(kind for kind in kinds if self.cluster_kinds or RESOURCES[kind].namespaced)

    def in_place(self, kinds: Iterable[str], namespace: str) -> tuple[str, ...]:
        """Those of the kinds that are watched in a namespace, or in none (""): everything is where all are watched."""
        if not self.namespaces:
            return tuple(kinds)
        return tuple(kind for kind in kinds if RESOURCES[kind].namespaced == bool(namespace))

    def knows(self, kind: str, body: Mapping[str, Any]) -> bool:
        """Whether an object may count: of what services refer to also what is for everybody, else what is for us."""
        if kind not in CLASSED:
            return True
        labels = (body.get("metadata") or {}).get("labels") or {}
        return self.acts_on(labels) or (kind in CATALOG and not labels.get(keys.OPERATOR_CLASS))

    def acts_on(self, labels: Mapping[str, str]) -> bool:
        """Whether an object is ours, so that we write its status and what it asks for."""
        return (labels.get(keys.OPERATOR_CLASS) or "") == self.operator_class

    @property
    def labels_nodes(self) -> bool:
        """Whether the records of agents lead to labels by us: on a cluster a single operator has to, or they would fight."""
        return self.cluster_kinds and not self.operator_class and (self.model_agent or not self.namespaces)

    @property
    def removes_weights(self) -> bool:
        """Whether agents may be told to remove weights: only who sees the pods and revisions of all namespaces knows."""
        return self.labels_nodes and not self.namespaces


EVERYWHERE = Scope()
