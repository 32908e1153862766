"""Store the facts of all watched objects by UID and by owner, and answer the queries of reconciliations.

The cache keeps facts and parsed specs, never the objects' JSON.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ome_operator import keys
from ome_operator.api import Invalid
from ome_operator.cache.facts import (
    FactChange,
    NodeResource,
    child_group,
    fact_namespace,
    node_group,
    pod_group,
    record_group,
    resource_group,
    same_fact,
    same_node,
)
from ome_operator.cache.indices import Index
from ome_operator.cache.mounts import MountIndex
from ome_operator.cache.occupancy import Occupancy
from ome_operator.cache.owned_fields import OwnedFields, with_sent_data
from ome_operator.cache.resources import (
    BENCHMARK,
    CATALOG,
    HELD,
    JOB,
    MODELS,
    SERVICE,
    SERVING,
    SHORT,
    Resource,
    editable_parts,
    is_same,
    parse_or_keep,
)
from ome_operator.core.freeze.hold import Hold, active_hold
from ome_operator.core.observed import from_api
from ome_operator.core.observed import nodes as node_facts
from ome_operator.core.observed.objects import Child, Deps, Manifest, NodeHolding, NodeRecord, Pod, Ref
from ome_operator.core.observed.slices import made_by_workload
from ome_operator.core.waves import terms as wave_terms
from ome_operator.core.waves.terms import WaveTerms
from ome_operator.kube.resources import CHILDREN, ON_DEMAND
from ome_operator.machinery.quota import Entry, Quota
from ome_operator.machinery.store import Store

RECORD = "NodeModels"
BASE_MODEL = MODELS[1]
KINDS = (SERVICE, *CATALOG, BENCHMARK, *CHILDREN, JOB, "Pod", "Node", RECORD)
"""Kinds that are watched from the start. Kinds of group sglang.ai are added if the cluster serves them, and kinds of
ON_DEMAND are added if the operator creates objects of them."""
LABELLED = frozenset((*CHILDREN, *ON_DEMAND, JOB, "Pod"))
"""Kinds whose objects are watched only if they have the operator's label."""


class ClusterCache:
    """Facts of all watched objects. `settled` contains the operator's settings, and whether everything is frozen."""

    def __init__(self, settled: Deps, clock: Callable[[], float] = time.monotonic) -> None:
        self.mounts = MountIndex()
        self.occupancy = Occupancy()
        self._index = Index(settled)
        index = self._index
        self.children: dict[str, Store[Child, tuple[str, str]]] = {
            kind: Store(
                child_group, same_fact, self.mounts.update_revision if kind == "ControllerRevision" else _ignored, clock
            )
            for kind in (*CHILDREN, *ON_DEMAND, JOB)
        }
        self.pods: Store[Pod, tuple[str, str]] = Store(pod_group, same_fact, self._pod_noted, clock)
        kinds = (SERVICE, *CATALOG, BENCHMARK, *SHORT)
        noted = {BENCHMARK: index.benchmark, SERVING: index.serving, **dict.fromkeys(CATALOG, self._catalog_noted)}
        self.resources: dict[str, Store[Resource, Ref]] = {
            kind: Store(resource_group, is_same, noted.get(kind, _ignored), clock) for kind in kinds
        }
        self.nodes: Store[NodeResource, str] = Store(node_group, same_node, self._node_noted, clock)
        self.records: Store[NodeRecord, str] = Store(record_group, same_fact, self._record_noted, clock)
        self.quota = Quota(settled.policy.models_per_namespace)
        """Counts the BaseModels of each namespace, and determines which of them are beyond the limit."""
        self._stores: dict[str, Store[Any, Any]] = {
            **self.children,
            **self.resources,
            "Pod": self.pods,
            "Node": self.nodes,
            RECORD: self.records,
        }
        self._owned = OwnedFields()
        self._edited: set[Ref] = set()
        """Catalog objects that were edited since the last call of `deps`."""
        self._announced: set[Ref] = set()
        """Models that `moved_models` has returned since the last call of `deps`."""

    # --- changes ----------------------------------------------------------------------------------------------------

    def store_observed(self, kind: str, body: Mapping[str, Any]) -> FactChange | None:
        """Store an object that a watch delivered, and return the change. Return None if nothing is stored, because the
        stored version is not older than `body`, or because the object has been deleted already.
        """
        store, uid = self._stores[kind], from_api.uid(body)
        if store.is_stale(uid, from_api.version(body)):
            return None
        old = store.get(uid)
        new = self._fact(kind, body, old)
        matters = store.store_watched(new)
        if kind != BASE_MODEL:
            return FactChange(old, new, matters)
        created = (body.get("metadata") or {}).get("creationTimestamp") or ""
        return FactChange(
            old, new, matters, self._requoted(self.quota.update_member(new.ref.namespace, Entry(created, new.ref.name, uid)))
        )

    def remove_deleted(self, kind: str, uid: str, version: int = 0) -> FactChange | None:
        """Remove an object that does not exist any more, or that has lost the operator's label. `version` is the
        resourceVersion of the event; 0 if it is unknown. Return the change; None if nothing was removed.
        """
        store = self._stores[kind]
        known = store.get(uid)
        labelled = isinstance(known, Child) and known.labels.get(keys.MANAGED_BY) == keys.MANAGER
        if labelled and store.is_ahead(uid, version):
            return None  # somebody had removed the label, and the operator's own write has added it again since
        old = store.remove_deleted(uid, version)
        if old is None:
            return None
        self._owned.forget(uid)
        return FactChange(old, None, True, self._requoted(self.quota.remove_member(uid)) if kind == BASE_MODEL else ())

    def store_written(self, kind: str, body: Manifest, sent: Manifest | None = None) -> FactChange | None:
        """Store the server's answer to a write or a live read of the operator, so that later reconciliations see the new
        state before the watch delivers it. `sent` is the manifest of a child object that was applied. Return the change;
        None for kinds whose answers are not stored.
        """
        if kind in ("Node", RECORD) or kind not in self._stores:
            return None
        store, uid = self._stores[kind], from_api.uid(body)
        old = store.get(uid)
        new = self._fact(kind, body, old) if sent is None else with_sent_data(self._fact(kind, body, old), sent)
        newer = store.store_written(new)
        if not newer and old is None:
            self._owned.forget(uid)  # the object is gone by now
        return FactChange(old, new, newer)

    def freeze(self, frozen: str) -> None:
        """Freeze everything, or end the freeze. `frozen` states since when, by whom and why everything is frozen; "" ends
        the freeze.
        """
        self._index.deps = replace(self._index.deps, frozen=frozen)

    def moved_models(self) -> list[Ref]:
        """Return the models that nodes have gained or lost since the last call.

        Each model is returned only once between two calls of `deps`, because the caller of `deps` sees all later changes,
        too. Models beyond the quota of their namespace are left out.
        """
        moved = {ref for label in self._index.moved() for ref in self._index.models.models_of_label(label)}
        found = []
        for ref in sorted(moved - self._announced):
            resource = self.find_resource(ref)
            if resource is not None and not self.quota.is_beyond_limit(resource.uid):
                found.append(ref)
        self._announced.update(found)
        return found

    # --- queries of reconciliations ---------------------------------------------------------------------------------

    def tidy(self) -> None:
        """Discard data that was kept for events which can no longer arrive."""
        for store in self._stores.values():
            store.tidy()
        self.occupancy.tidy(self._index.deps.nodes)

    def uids(self, kind: str, namespace: str = "") -> set[str]:
        """Return the UIDs of the objects of a kind in a namespace, or in all namespaces (""). Resyncs compare them with a
        list.
        """
        store = self._stores[kind]
        return {fact.uid for fact in store if fact_namespace(fact) == namespace} if namespace else store.uids()

    def refs(self, namespace: str) -> list[Ref]:
        """Return the references to all objects in a namespace that are reconciled."""
        return [each.ref for store in self.resources.values() for each in store if each.ref.namespace == namespace]

    def find_resource(self, ref: Ref) -> Resource | None:
        """Return the object that a reference names; None if the cache has no such object. If an older object of the same
        name is still terminating, return the newest object.
        """
        return max(self.resources[ref.kind].group(ref), key=lambda item: item.version, default=None)

    def services(self) -> list[Resource]:
        """Return all services that exist now. Events that arrive while a caller goes through the list do not change it."""
        return list(self.resources[SERVICE])

    def children_of(self, namespace: str, service: str) -> dict[tuple[str, str], Child]:
        """Return all children with the label of a service, by kind and name."""
        found: dict[tuple[str, str], Child] = {}
        for kind, store in self.children.items():
            for child in store.group((namespace, service)):
                known = found.get((kind, child.name))
                if known is None or known.version < child.version:
                    found[(kind, child.name)] = child
        return found

    def job_of(self, benchmark: Resource) -> Child | None:
        """Return the Job of a BenchmarkJob; None if the Job does not exist."""
        found = self.children[JOB].group((benchmark.ref.namespace, ""))
        return next((job for job in found if job.owner == benchmark.uid), None)

    def pods_of(self, namespace: str, service: str) -> tuple[Pod, ...]:
        """Return the pods that workloads of a service created, sorted by name (`slices.made_by_workload`)."""
        pods = filter(made_by_workload, self.pods.group((namespace, service)))
        return tuple(sorted(pods, key=lambda pod: pod.name))

    def occupies_node(self, body: Mapping[str, Any], namespaces: Collection[str] = ()) -> bool:
        """Return whether `occupancy` counts a pod once the pod is bound to a node.

        The result is True for engine pods that workloads of a service created, if the cache knows the pod, or if the pod has
        the operator's label and is in one of `namespaces` (in any namespace if `namespaces` is empty). It is False for
        routers and copies of pods. The cache may not have received the last event of the pod yet.
        """
        metadata = body.get("metadata") or {}
        pod = self.pods.get(metadata.get("uid") or "")
        if pod is None:
            labels = metadata.get("labels") or {}
            if labels.get(keys.MANAGED_BY) != keys.MANAGER or (namespaces and metadata.get("namespace") not in namespaces):
                return False
            pod = from_api.pod(body)
        return pod.component != keys.ROUTER and made_by_workload(pod)

    def pods_on(self, node: str) -> list[Pod]:
        """Return the pods on a node that workloads of services created."""
        return [pod for uid in self._index.on_node(node) if (pod := self.pods.get(uid)) is not None]

    def benchmarks(self, kind: str, namespace: str, name: str) -> tuple[Ref, ...]:
        """Return the BenchmarkJobs that depend on an object, which is their Job or the service that they wait for; () if no
        BenchmarkJob does.
        """
        return self._index.benchmarks(kind, namespace, name)

    def servings_without_address(self) -> Iterable[Ref]:
        """Return the Servings whose status has no address yet, because the InferenceService is missing or unreachable."""
        return self._index.unmade

    def record(self, node: str) -> NodeRecord | None:
        """Return the newest NodeModels record of a node (an older one may still be terminating); None if there is none."""
        return max(self.records.group(node), key=lambda item: item.version, default=None)

    def node(self, name: str) -> NodeResource | None:
        """Return the node with the name `name`; None if it does not exist."""
        return max(self.nodes.group(name), key=lambda item: item.version, default=None)

    def holdings(self, ref: Ref) -> Mapping[str, NodeHolding]:
        """Return the reports of the nodes' agents about a model, by the node's name. The mapping is updated in place
        with each event.
        """
        return self._index.holdings.get(ref, {})

    def deps(self) -> Deps:
        """Return the catalog and the nodes, after all edits since the last call. Callers must not keep the result."""
        for ref in self._edited:
            found = self.find_resource(ref)
            self._index.refer(ref, None if found is None else self.over_limit(found) or found.parsed)
        self._edited.clear()
        self._announced.clear()
        return self._index.current_deps()

    def terms(self, ref: Ref, default: WaveTerms) -> WaveTerms:
        """Return the rollout terms of a shared object, which determine the waves in which its edits reach services."""
        resource = self.find_resource(ref)
        return default if resource is None else wave_terms.terms(resource.annotations, default)[0]

    def active_hold(self, resource: Resource) -> Hold | None:
        """Return the freeze or observe mode that applies to an object of the operator's kinds; None if neither applies. A
        service can also be held by its own annotations.
        """
        notes = resource.annotations if resource.ref.kind == SERVICE else {}
        return active_hold(self._index.deps, resource.ref.namespace, resource.ref.name, notes)

    def global_hold(self) -> Hold | None:
        """Return the freeze or observe mode that applies to all objects; None if neither applies."""
        return active_hold(self._index.deps, "")

    # --- stores and indices -----------------------------------------------------------------------------------------

    def _fact(self, kind: str, body: Mapping[str, Any], old: Any) -> Any:
        """Return the facts of an object from its JSON. `old` is the stored fact of the object; parts that did not change
        are not parsed again.
        """
        if kind in self.children:
            return self._owned.child(kind, body, old)
        if kind == "Pod":
            return from_api.pod(body)
        if kind == "Node":
            known = None if old is None else old.node
            return NodeResource(from_api.uid(body), from_api.version(body), node_facts.node(body, known))
        return node_facts.node_record(body) if kind == RECORD else parse_or_keep(kind, body, old)

    def _requoted(self, uids: Iterable[str]) -> tuple[Resource, ...]:
        """Return the BaseModels with these UIDs. Their parsed form in `deps` changes with the quota of their namespace."""
        found = tuple(model for uid in uids if (model := self.resources[BASE_MODEL].get(uid)) is not None)
        self._edited.update(model.ref for model in found)
        return found

    def _pod_noted(self, old: Pod | None, new: Pod | None) -> None:
        old, new = (pod if pod is not None and made_by_workload(pod) else None for pod in (old, new))
        self._index.pod(old, new)
        self.occupancy.pod(old, new)

    def _node_noted(self, old: NodeResource | None, new: NodeResource | None) -> None:
        for name in {each.node.name for each in (old, new) if each is not None}:
            found = self.node(name)
            self._index.node(name, None if found is None else found.node)

    def _record_noted(self, old: NodeRecord | None, new: NodeRecord | None) -> None:
        for node in {each.node for each in (old, new) if each is not None}:
            self._index.record(node, self.record(node))

    def _catalog_noted(self, old: Resource | None, new: Resource | None) -> None:
        resource = new or old
        assert resource is not None
        if old is None or new is None or editable_parts(old) != editable_parts(new):
            self._edited.add(resource.ref)
        if resource.ref.kind in HELD:
            if new is not None:
                self._index.models.add(new.ref)
            elif self.find_resource(resource.ref) is None:
                self._index.models.remove(resource.ref)

    def over_limit(self, resource: Resource) -> Invalid | None:
        """Return the reason why a model is not reconciled because its namespace has too many models; None for other models.
        The message is the same for all models of the namespace that are beyond the quota.
        """
        if resource.ref.kind != BASE_MODEL or not self.quota.is_beyond_limit(resource.uid):
            return None
        most = self.quota.most
        return Invalid(
            f"the namespace {resource.ref.namespace} has more than {most} BaseModels, and only the {most} oldest are "
            "used: delete some of them, use a ClusterBaseModel, or ask an administrator to raise modelsPerNamespace of "
            "the chart"
        )


def _ignored(old: Any, new: Any) -> None:
    """Do nothing, because objects of this kind are in no index."""
