"""The part of the cluster that an operator works on: its namespaces, and the class of the objects that it reconciles."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.cache.resources import BENCHMARK, CATALOG, SERVICE, SHORT
from ome_operator.kube.resources import RESOURCES

CLASSED = frozenset((SERVICE, *CATALOG, BENCHMARK, *SHORT))
"""Kinds whose objects can have a label with the class of the operator that handles them."""


class Scope(NamedTuple):
    """The namespaces, kinds and operator class that an operator works on."""

    namespaces: tuple[str, ...] = ()
    """The watched namespaces; () for all."""
    cluster_kinds: bool = True
    """Whether cluster-wide kinds are read, including nodes."""
    operator_class: str = ""
    model_agent: bool = False
    """Whether model agents that were installed with this operator (in the same Helm release) download weights."""

    def kinds(self, kinds: Iterable[str]) -> tuple[str, ...]:
        """Return the members of `kinds` that this operator reads."""
        return tuple(kind for kind in kinds if self.cluster_kinds or RESOURCES[kind].namespaced)

    def in_place(self, kinds: Iterable[str], namespace: str) -> tuple[str, ...]:
        """Return the members of `kinds` that are watched in a namespace, or cluster-wide if `namespace` is "". An
        operator without configured namespaces watches all kinds cluster-wide.
        """
        if not self.namespaces:
            return tuple(kinds)
        return tuple(kind for kind in kinds if RESOURCES[kind].namespaced == bool(namespace))

    def covers_object(self, kind: str, body: Mapping[str, Any]) -> bool:
        """Return whether the operator reads an object: the object has this operator's class, or is a catalog object
        without a class.
        """
        if kind not in CLASSED:
            return True
        labels = (body.get("metadata") or {}).get("labels") or {}
        return self.acts_on(labels) or (kind in CATALOG and not labels.get(keys.OPERATOR_CLASS))

    def acts_on(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object has this operator's class, so that the operator reconciles it and writes its status."""
        return (labels.get(keys.OPERATOR_CLASS) or "") == self.operator_class

    @property
    def labels_nodes(self) -> bool:
        """Return whether this operator labels nodes from the records of agents. Two operators of a cluster would
        overwrite each other's labels, so only one operator is permitted to label nodes.
        """
        return self.cluster_kinds and not self.operator_class and (self.model_agent or not self.namespaces)

    @property
    def removes_weights(self) -> bool:
        """Return whether this operator may order agents to remove weights. It has to see the pods and revisions of all
        namespaces.
        """
        return self.labels_nodes and not self.namespaces


EVERYWHERE = Scope()
