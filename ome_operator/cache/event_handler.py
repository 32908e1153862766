"""Enqueue the keys of the objects that a change in the cluster concerns.

Changes come from watches, from the answers to the operator's own writes, and from resyncs. Each change is first stored in
the cache.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any

from ome_operator.api import Invalid
from ome_operator.cache.cluster_cache import RECORD, ClusterCache
from ome_operator.cache.facts import FactChange, NodeResource, child_group, has_served, pod_group, starts_normally
from ome_operator.cache.reference_index import ReferenceIndex, Refs
from ome_operator.cache.resources import (
    ACCELERATORS,
    BENCHMARK,
    CATALOG,
    HELD,
    JOB,
    MODELS,
    SERVICE,
    SERVING,
    SHORT,
    SHORT_MODEL,
    Resource,
    editable_parts,
)
from ome_operator.core.observed.objects import Child, Manifest, Node, NodeRecord, Pod, Ref
from ome_operator.core.selection.capability import has_class_labels


class Urgency(Enum):
    """The urgency of a reconciliation after a change."""

    AWAITED = auto()
    """A person waits for the result: somebody has edited the object, or the last pod of a service has become ready."""
    SOON = auto()
    """The reconciliation may be delayed, because no person waits for its result."""
    REPORTED = auto()
    """The reconciliation only reports that pods of a service are starting. It may be delayed until the status of the service
    may be written again."""
    SHARED = auto()
    """A person has edited a shared object: all services that refer to it have to be reconciled, instead of the object
    itself."""


Enqueue = Callable[[Ref, Urgency], None]
"""Called with the key of an object to reconcile, and the urgency of the reconciliation."""


class EventHandler:
    """Stores changes in the cache, and calls `enqueue` for every object that a change concerns.

    `child_gone` is called with a child object that has vanished, because its name can be used again now. `capacity_freed` is
    called when a pod of a service has vanished from its node.
    """

    def __init__(
        self,
        cache: ClusterCache,
        enqueue: Enqueue,
        models_of: Refs,
        runtimes_of: Refs,
        *,
        child_gone: Callable[[Child], None] = lambda _: None,
        capacity_freed: Callable[[], None] = lambda: None,
    ) -> None:
        self.cache = cache
        self._enqueue, self._referrers = enqueue, ReferenceIndex(models_of, runtimes_of)
        self._child_gone, self._capacity_freed = child_gone, capacity_freed
        self._for_nodes: set[Ref] = set()
        """Services whose last reconciliation depends on which nodes exist."""
        self._prefetching: set[str] = set()
        """Nodes whose agents read the weights of starting pods into the page cache."""

    # --- called by the watch ------------------------------------------------------------------------------------------

    def handle_observed(self, kind: str, body: Mapping[str, Any]) -> None:
        """Process the current state of an object, as a watch delivered it."""
        change = self.cache.store_observed(kind, body)
        if change is None:
            return
        if change.matters:
            old, new = change.former_fact, change.new
            if isinstance(new, Child):
                self._child_changed(old, new)
            elif isinstance(new, Pod):
                self._pod_changed(old, new)
            elif isinstance(new, NodeResource):
                self._node_changed(old.node if old else None, new.node)
            elif isinstance(new, NodeRecord):
                self._record_changed(old, new)
            else:
                self._resource_changed(old, new)
        self._requoted(change)

    def handle_deleted(self, kind: str, uid: str, version: int = 0) -> None:
        """Process the deletion of an object, or the loss of the operator's label. `version` is the resourceVersion of the
        event; 0 if it is unknown.
        """
        change = self.cache.remove_deleted(kind, uid, version)
        if change is None:
            return
        lost = change.former_fact
        if isinstance(lost, Child):
            self._child_gone(lost)
            self._dirty_owner(lost)
        elif isinstance(lost, Pod):
            self._dirty_service(pod_group(lost))
            self._starting_changed(lost, None)
            if lost.node:
                self._capacity_freed()
        elif isinstance(lost, NodeResource):
            self._node_changed(lost.node, None)
        elif isinstance(lost, NodeRecord):
            self._record_changed(lost, None)
        else:
            # A new object of the same name may have been delivered before the old object's deletion.
            self._resource_changed(lost, self.cache.find_resource(lost.ref))
        self._requoted(change)

    def freeze(self, frozen: str) -> None:
        """Freeze everything, or end the freeze. `frozen` states since when, by whom and why everything is frozen; "" ends
        the freeze.
        """
        self.cache.freeze(frozen)
        for kind in (SERVICE, BENCHMARK, *SHORT):
            for resource in self.cache.resources[kind]:
                self._enqueue(resource.ref, Urgency.AWAITED)
        for node in self.cache.records.groups():
            self._enqueue(Ref(RECORD, "", node), Urgency.SOON)

    def waits_for_nodes(self, service: Ref, waits: bool) -> None:
        """Store whether the result of a service's last reconciliation depends on which nodes exist. If `waits` is True,
        every change of a node enqueues the service.
        """
        if waits:
            self._for_nodes.add(service)
        else:
            self._for_nodes.discard(service)

    # --- queries of reconciliations -----------------------------------------------------------------------------------

    def users(self, ref: Ref) -> tuple[Ref, ...]:
        """Return the services that refer to an object."""
        return self._referrers.services_referring_to(ref)

    def services_concerned_by(self, ref: Ref) -> tuple[Ref, ...]:
        """Return the services that have to be reconciled after an edit of this object."""
        if ref.kind in ACCELERATORS:
            return tuple(each.ref for each in self.cache.services())
        return self._referrers.services_concerned_by(ref)

    def is_referenced(self, ref: Ref) -> bool:
        """Return whether a service refers to an object."""
        return bool(self._referrers.services_referring_to(ref))

    # --- answers to the operator's own writes -------------------------------------------------------------------------

    def handle_written(self, kind: str, body: Manifest, sent: Manifest | None = None) -> Child | Pod | Resource | None:
        """Store the server's answer to a write or a live read, so that later reconciliations see the new state before the
        watch delivers it. `sent` is the manifest of a child object that was applied. Return the stored fact; None for kinds
        whose answers are not stored.
        """
        change = self.cache.store_written(kind, body, sent)
        if change is None:
            return None
        old, new = change.former_fact, change.new
        if isinstance(new, Resource) and change.matters:  # otherwise the watch was faster, and every key is in the queue
            # The watch's event of this write, and of an edit just before it, will be stale: the change has to be processed
            # here.
            if old is None or editable_parts(old) != editable_parts(new):
                self._resource_changed(old, new)
            else:
                self._enqueue_dependents(new.ref, False)
                self._requeue_referred(old, new)
        written: Child | Pod | Resource = new
        return written

    # --- changes, and the keys that they concern ----------------------------------------------------------------------

    def _child_changed(self, old: Child | None, new: Child) -> None:
        if old is not None and not old.template and old == new._replace(version=old.version, template=""):
            self._dirty_service(child_group(new), self._urgency_of_template(new))
            return
        self._dirty_owner(new)
        if old is not None and child_group(old) != child_group(new):
            self._dirty_owner(old)  # somebody labeled the child for another service, so the former service has lost it

    def _pod_changed(self, old: Pod | None, new: Pod) -> None:
        group = pod_group(new)
        self._dirty_service(group, self._urgency_of_pod(old, new))
        if old is not None and old.service != new.service:
            self._dirty_service(pod_group(old))
        self._starting_changed(old, new)

    def _urgency_of_pod(self, old: Pod | None, new: Pod) -> Urgency:
        """Return the urgency of a change of a pod. The last pod of a service that becomes ready makes the service Ready.
        `old` is the former state of the pod; None for a new pod.
        """
        pods = self.cache.pods.group(pod_group(new))
        if new.ready and not (old is not None and old.ready) and all(pod.ready for pod in pods):
            return Urgency.AWAITED
        own = new.component, new.revision, new.group
        # A pod that is created beside ready pods may belong to a group that is moved, replaced, added or removed.
        served = any(pod.ready for pod in pods if old is None or (pod.component, pod.revision, pod.group) == own)
        return Urgency.REPORTED if starts_normally(old, new) and not served else Urgency.SOON

    def _urgency_of_template(self, new: Child) -> Urgency:
        """Return the urgency of the first report about the template of a StatefulSet. The result is SOON if one of its pods
        is ready, was restarted, or was created from another template (because the template has been replaced), and otherwise
        REPORTED.
        """
        pods = [pod for pod in self.cache.pods.group(child_group(new)) if pod.workload == new.name]
        differs = any(pod.ready or pod.restarts or pod.template not in ("", new.template) for pod in pods)
        return Urgency.SOON if differs else Urgency.REPORTED

    def _starting_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Enqueue the NodeModels records of nodes if a pod of a service has come to a node or left it, has become ready,
        starts again or ends. `old` is None for a new pod, and `new` is None for a pod that is gone.

        The nodes of all pods of the service are concerned, because when a leader becomes ready, the other pods of its group
        have started, too. Only nodes are included whose agents read the weights of starting pods into the page cache.
        """
        before, after = ((pod.node, has_served(pod), pod.deleting, pod.over) if pod else None for pod in (old, new))
        if not self._prefetching or before == after:
            return
        changed = [pod for pod in (old, new) if pod is not None]
        concerned = {pod.node for pod in (*changed, *self.cache.pods.group(pod_group(changed[-1])))}
        for node in concerned & self._prefetching:
            self._enqueue(Ref(RECORD, "", node), Urgency.SOON)

    def _dirty_owner(self, child: Child) -> None:
        """Enqueue the service that the label of a child object names. The Job of a BenchmarkJob has no such label; for this
        Job, enqueue the BenchmarkJobs to which it belongs by its name.
        """
        if child.kind != JOB or child_group(child)[1]:
            self._dirty_service(child_group(child))
            return
        for ref in self.cache.benchmarks(JOB, child.namespace, child.name):
            self._enqueue(ref, Urgency.SOON)

    def _dirty_service(self, group: tuple[str, str], urgency: Urgency = Urgency.SOON) -> None:
        """Enqueue a service whose pods or children have changed. `group` is the namespace and the name of the service."""
        namespace, name = group
        if name:
            self._enqueue(Ref(SERVICE, namespace, name), urgency)

    def _requoted(self, change: FactChange) -> None:
        """Process the models that a change has brought within, or beyond, the quota of their namespace: enqueue them like
        edited models.
        """
        for resource in change.requoted:
            self._resource_changed(None, resource)

    def _resource_changed(self, old: Resource | None, new: Resource | None) -> None:
        resource = new or old
        assert resource is not None
        edit = old is None or new is None or old.uid != new.uid or editable_parts(old) != editable_parts(new)
        self._enqueue(resource.ref, Urgency.AWAITED if edit else Urgency.SOON)
        self._enqueue_dependents(resource.ref, edit)
        if resource.ref.kind in (*SHORT, BENCHMARK):
            return
        self._requeue_referred(old, new)
        if edit and resource.ref.kind != SERVICE:
            self._enqueue(resource.ref, Urgency.SHARED)

    def _requeue_referred(self, old: Resource | None, new: Resource | None) -> None:
        """Enqueue the objects whose set of users changed when a service changed from `old` to `new`: objects to which the
        service refers, or that were selected for it.
        """
        resource = new or old
        if resource is not None and resource.ref.kind == SERVICE:
            for ref in self._referrers.update_references(resource.ref, old, new):
                self._enqueue(ref, Urgency.SOON)

    def _enqueue_dependents(self, ref: Ref, edit: bool) -> None:
        """Enqueue the sglang.ai object from which a changed model or service was created, and the BenchmarkJobs that wait
        for the service. `edit`: True if the object was edited; an edit of the catalog also enqueues every Serving
        without an address.
        """
        keys = [Ref(SERVING, ref.namespace, ref.name), *self.cache.benchmarks(*ref)] if ref.kind == SERVICE else []
        if ref.kind == MODELS[0]:
            keys.append(Ref(SHORT_MODEL, "", ref.name))
        if edit and ref.kind in CATALOG:
            keys += self.cache.servings_without_address()
        for key in keys:
            if self.cache.find_resource(key) is not None:
                self._enqueue(key, Urgency.SOON)

    def _record_changed(self, old: NodeRecord | None, new: NodeRecord | None) -> None:
        """Enqueue the node of a NodeModels record, and the models whose state in the record has changed. `old` is None for a
        new record, and `new` is None for a record that is gone.
        """
        before, after = ({each.ref: each for each in (record.holdings if record else ())} for record in (old, new))
        node = (new or old).node  # type: ignore[union-attr]
        self._enqueue(Ref(RECORD, "", node), Urgency.SOON)
        (self._prefetching.add if new is not None and new.prefetch is not None else self._prefetching.discard)(node)
        for ref in before | after:
            if ref.kind in HELD and before.get(ref) != after.get(ref):
                self._enqueue(ref, Urgency.SOON)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        """Enqueue the objects that a change of a node concerns. `old` is None for a new node, and `new` is None for a node
        that is gone.

        A change of the node's models concerns these models and their users. A change of the node's labels concerns its
        NodeModels record. If the node is gone, or its kubelet stops or resumes reporting, the services of its pods are
        concerned. Accelerator classes that count the node, and services that wait for any change of a node, are enqueued,
        too.
        """
        for service in self._for_nodes:
            self._enqueue(service, Urgency.SOON)
        for resource in (each for kind in ACCELERATORS for each in self.cache.resources[kind]):
            if _counted(resource, old) != _counted(resource, new):
                self._enqueue(resource.ref, Urgency.SOON)
        relabelled = new is not None and (old is None or (old.labels, old.ours) != (new.labels, new.ours))
        if new is not None and relabelled and self.cache.record(new.name) is not None:
            self._enqueue(Ref(RECORD, "", new.name), Urgency.SOON)
        if old is not None and (new is None or new.alive != old.alive):
            for group in {pod_group(pod) for pod in self.cache.pods_on(old.name)}:
                self._dirty_service(group)
        for ref in self.cache.moved_models():
            self._enqueue(ref, Urgency.SOON)
            for user in self._referrers.services_referring_to(ref):
                self._enqueue(user, Urgency.SOON)


def _counted(accelerator: Resource, node: Node | None) -> tuple[bool, int] | None:
    """Return whether a node is ready and its number of GPUs, as the status of an accelerator class counts them. Return
    None if the class does not match the node.
    """
    if node is None or isinstance(accelerator.parsed, Invalid) or not has_class_labels(node, accelerator.parsed):
        return None
    return node.ready, node.gpus
