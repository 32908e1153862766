"""Facts of all kinds by UID and by whom they belong to, and what passes read of them.

They are facts and parsed specs, never bodies.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.api import Invalid
from ome_operator.cache.indices import Index
from ome_operator.cache.mounts import MountIndex
from ome_operator.cache.occupancy import Occupancy
from ome_operator.cache.resources import BENCHMARK, CATALOG, HELD, JOB, MODELS, SERVICE, SERVING, SHORT, Resource, same
from ome_operator.core.freeze.hold import Brake, brake
from ome_operator.core.observed import from_api
from ome_operator.core.observed.objects import Child, Deps, Holding, Node, NodeRecord, Pod, Ref
from ome_operator.core.render.statefulsets import Stored, stored
from ome_operator.core.waves import terms as wave_terms
from ome_operator.core.waves.terms import Terms
from ome_operator.kube.resources import CHILDREN, ON_DEMAND
from ome_operator.machinery.quota import Quota
from ome_operator.machinery.store import Store

RECORD = "NodeModels"
BASE_MODEL = MODELS[1]
KINDS = (SERVICE, *CATALOG, BENCHMARK, *CHILDREN, JOB, "Pod", "Node", RECORD)
"""Every kind that is watched; those of sglang.ai come where they are served, and those of ON_DEMAND where they are made."""
LABELLED = frozenset((*CHILDREN, *ON_DEMAND, JOB, "Pod"))
"""Kinds of which only objects with our label are watched."""


class NodeResource(NamedTuple):
    """A node with its UID."""

    uid: str
    version: int
    node: Node


class ClusterCache:
    """Facts of all kinds; `settled` has what settings say, and whether all is frozen."""

    def __init__(self, settled: Deps, clock: Callable[[], float] = time.monotonic) -> None:
        self.mounts = MountIndex()
        self.occupancy = Occupancy()
        self.children: dict[str, Store[Child, tuple[str, str]]] = {
            kind: Store(child_group, _same_fact, self.mounts.noted if kind == "ControllerRevision" else _ignored, clock)
            for kind in (*CHILDREN, *ON_DEMAND, JOB)
        }
        self._index = Index(settled)
        index = self._index
        self.pods: Store[Pod, tuple[str, str]] = Store(pod_group, _same_fact, self._pod_noted, clock)
        kinds = (SERVICE, *CATALOG, BENCHMARK, *SHORT)
        noted = {BENCHMARK: index.benchmark, SERVING: index.serving, **dict.fromkeys(HELD, self._model_noted)}
        self.resources: dict[str, Store[Resource, Ref]] = {
            kind: Store(_kept_group, same, noted.get(kind, _ignored), clock) for kind in kinds
        }
        self.nodes: Store[NodeResource, str] = Store(_node_group, _same_node, self._node_noted, clock)
        self.records: Store[NodeRecord, str] = Store(_record_group, _same_fact, self._record_noted, clock)
        self.quota = Quota(settled.policy.models_per_namespace)
        """BaseModels by their namespaces."""
        self._stamps: dict[str, Any] = {}
        self._edited: set[Ref] = set()
        """What services refer to and was edited since `deps` was asked for."""

    def tidy(self) -> None:
        """Forget what events of the past were kept for."""
        every: tuple[Store[Any, Any], ...] = (
            *self.children.values(),
            *self.resources.values(),
            self.pods,
            self.nodes,
            self.records,
        )
        for store in every:
            store.tidy()
        self.occupancy.tidy(self._index.deps.nodes)

    def uids(self, kind: str, namespace: str = "") -> set[str]:
        """UIDs of a kind in a namespace, or in all, for audits."""
        store = self._store(kind)
        return {fact.uid for fact in store if _place(fact) == namespace} if namespace else store.uids()

    def refs(self, namespace: str) -> list[Ref]:
        """Everything in a namespace that passes look at."""
        return [each.ref for store in self.resources.values() for each in store if each.ref.namespace == namespace]

    def find(self, ref: Ref) -> Resource | None:
        """The object of a key; the newest where an old one of the same name is still going."""
        return max(self.resources[ref.kind].group(ref), key=lambda one: one.version, default=None)

    def services(self) -> Iterator[Resource]:
        """All services."""
        return iter(self.resources[SERVICE])

    def children_of(self, namespace: str, service: str) -> dict[tuple[str, str], Child]:
        """Everything with the label of a service."""
        found: dict[tuple[str, str], Child] = {}
        for kind, store in self.children.items():
            for child in store.group((namespace, service)):
                known = found.get((kind, child.name))
                if known is None or known.version < child.version:
                    found[(kind, child.name)] = child
        return found

    def roles(self, namespace: str, service: str, revision: str) -> Mapping[str, Stored]:
        """Of a revision as it is stored; {} where none is. Anybody may write one with our labels, so reading it may raise
        AttributeError, KeyError, TypeError or ValueError.
        """
        kept = self.children["ControllerRevision"].group((namespace, service))
        content = next((child.content for child in kept if child.labels.get(keys.REVISION) == revision), None)
        return stored((content or {}).get("data") or {})

    def job_of(self, benchmark: Resource) -> Child | None:
        """The Job of a BenchmarkJob."""
        found = self.children[JOB].group((benchmark.ref.namespace, ""))
        return next((one for one in found if one.owner == benchmark.uid), None)

    def pods_of(self, namespace: str, service: str) -> tuple[Pod, ...]:
        """All pods with the label of a service, in a stable order."""
        return tuple(sorted(self.pods.group((namespace, service)), key=lambda pod: pod.name))

    def holds_room(self, body: Mapping[str, Any], namespaces: Collection[str] = ()) -> bool:
        """Whether `occupancy` counts a pod once it is on a node: what is known, and what has our labels in the namespaces
        that are watched (none named: all). An event of it may be on its way, also that it has gone.
        """
        metadata = body.get("metadata") or {}
        labels = metadata.get("labels") or {}
        if (pod := self.pods.get(metadata.get("uid") or "")) is not None:
            return pod.component != keys.ROUTER
        told = labels.get(keys.MANAGED_BY) == keys.MANAGER and (not namespaces or metadata.get("namespace") in namespaces)
        return told and labels.get(keys.COMPONENT) != keys.ROUTER

    def record(self, node: str) -> NodeRecord | None:
        """The record of a node; the newest where an old one of the same name is still going."""
        return max(self.records.group(node), key=lambda one: one.version, default=None)

    def node(self, name: str) -> NodeResource | None:
        """A node by its name."""
        return max(self.nodes.group(name), key=lambda one: one.version, default=None)

    def holdings(self, ref: Ref) -> Mapping[str, Holding]:
        """Node -> what its agent says about a model, as it is until the next event."""
        return self._index.holdings.get(ref, {})

    def deps(self) -> Deps:
        """What services may refer to, as it is until the next event: the same object, which knows what has changed."""
        for ref in self._edited:
            found = self.find(ref)
            self._index.refer(ref, None if found is None else self.beyond(found) or found.parsed)
        self._edited.clear()
        return self._index.asked()

    def terms(self, ref: Ref, default: Terms) -> Terms:
        """How edits of an object go on from service to service."""
        resource = self.find(ref)
        return default if resource is None else wave_terms.terms(resource.annotations, default)[0]

    def brake(self, resource: Resource) -> Brake | None:
        """Who holds an object of our kinds: a service by its annotations, too."""
        notes = resource.annotations if resource.ref.kind == SERVICE else {}
        return brake(self._index.deps, resource.ref.namespace, resource.ref.name, notes)

    def held(self) -> Brake | None:
        """Who holds everything."""
        return brake(self._index.deps, "")

    def _store(self, kind: str) -> Store[Any, Any]:
        if kind == "Pod":
            return self.pods
        if kind == "Node":
            return self.nodes
        if kind == RECORD:
            return self.records
        return self.children[kind] if kind in self.children else self.resources[kind]

    def _child(self, kind: str, body: Mapping[str, Any]) -> Child:
        """Facts of a child. What we own is the dearest part and stays as it is while only the status moves."""
        metadata = body.get("metadata") or {}
        uid = from_api.uid(body)
        stamp = [metadata.get(part) for part in ("generation", "labels", "annotations", "ownerReferences")]
        known = self.children[kind].get(uid)
        if known is not None and from_api.version(body) < known.version:
            return from_api.child(kind, body)  # a late answer: what is stored is newer than its stamp
        # Kinds without generation (Services, Roles, …) may change without any trace but in managedFields.
        if known is not None and stamp[0] and self._stamps.get(uid) == stamp:
            return from_api.child(kind, body, known.owned)
        self._stamps[uid] = stamp
        return from_api.child(kind, body)

    def _pod_noted(self, old: Pod | None, new: Pod | None) -> None:
        self._index.pod(old, new)
        self.occupancy.pod(old, new)

    def _node_noted(self, old: NodeResource | None, new: NodeResource | None) -> None:
        for name in {each.node.name for each in (old, new) if each is not None}:
            found = self.node(name)
            self._index.node(name, None if found is None else found.node)

    def _record_noted(self, old: NodeRecord | None, new: NodeRecord | None) -> None:
        for node in {each.node for each in (old, new) if each is not None}:
            self._index.record(node, self.record(node))

    def _model_noted(self, old: Resource | None, new: Resource | None) -> None:
        if new is not None:
            self._index.models.add(new.ref)
        elif old is not None and self.find(old.ref) is None:
            self._index.models.remove(old.ref)

    def beyond(self, resource: Resource) -> Invalid | None:
        """Why nothing is done for a model, where its namespace has too many; the sentence is the same for each of them."""
        if resource.ref.kind != BASE_MODEL or not self.quota.beyond(resource.uid):
            return None
        most = self.quota.most
        return Invalid(
            f"the namespace {resource.ref.namespace} has more than {most} BaseModels, and the {most} oldest count: "
            "delete some of them, use a ClusterBaseModel, or have modelsPerNamespace of the chart raised"
        )


def _ignored(old: Any, new: Any) -> None:
    """Nobody keeps an index of these."""


def _place(fact: Any) -> str:
    """The namespace of a fact."""
    return str(fact.ref.namespace if isinstance(fact, Resource) else fact.namespace)


def _same_fact(a: Any, b: Any) -> bool:
    return bool(a == b._replace(version=a.version))


def _same_node(a: NodeResource, b: NodeResource) -> bool:
    return _same_fact(a.node, b.node)


def child_group(child: Child) -> tuple[str, str]:
    """Namespace and service that it is labelled for."""
    return child.namespace, child.labels.get(keys.SERVICE) or ""


def pod_group(pod: Pod) -> tuple[str, str]:
    """Namespace and service that it is labelled for."""
    return pod.namespace, pod.service


def _kept_group(resource: Resource) -> Ref:
    return resource.ref


def _node_group(resource: NodeResource) -> str:
    return resource.node.name


def _record_group(record: NodeRecord) -> str:
    return record.node
