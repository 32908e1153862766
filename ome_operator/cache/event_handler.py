"""What changes in the cluster, and which keys a change makes dirty.

Fed by the watch, by the answers to our own writes, and by audits.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import Enum, auto
from typing import Any

from ome_operator import keys
from ome_operator.api import Invalid
from ome_operator.cache.cluster_cache import BASE_MODEL, RECORD, ClusterCache, NodeResource, child_group, pod_group
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
    edited,
    keep,
)
from ome_operator.core.observed import from_api
from ome_operator.core.observed import nodes as node_facts
from ome_operator.core.observed.objects import Child, Deps, Manifest, Node, NodeRecord, Pod, Ref
from ome_operator.core.selection.capability import carries
from ome_operator.machinery.quota import Entry


class Haste(Enum):
    """Who waits for what is dirty."""

    AWAITED = auto()
    """Who edited the object, or who needs a service whose last pod has become ready."""
    SOON = auto()
    """Nobody in particular."""
    SHARED = auto()
    """All whom the object concerns are dirty, and not the object: somebody edited it."""


Enqueue = Callable[[Ref, Haste], None]
"""Called with what is dirty."""


class EventHandler(ClusterCache):
    """What we know of it; `enqueue` is told about every change that matters to a key."""

    def __init__(
        self,
        enqueue: Enqueue,
        models_of: Refs,
        runtimes_of: Refs,
        settled: Deps | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(settled or Deps(), clock)
        self._enqueue, self._referrers = enqueue, ReferenceIndex(models_of, runtimes_of)
        self._woken: set[Ref] = set()
        """Models that are dirty with all of their users, because nodes have or lost them since anybody asked for `deps`."""
        self._for_nodes: set[Ref] = set()
        self.room_freed: Callable[[], None] = lambda: None
        """Told when a pod of ours is gone from its node."""
        self.child_gone: Callable[[Child], None] = lambda _: None
        """Told when a child has vanished: its name is free."""

    # --- the sink of the watch ------------------------------------------------------------------------------------

    def seen(self, kind: str, body: Mapping[str, Any]) -> None:
        """An object is there in this state."""
        if self._store(kind).stale(from_api.uid(body), from_api.version(body)):
            return
        if kind in self.children:
            known, child = self.children[kind].get(from_api.uid(body)), self._child(kind, body)
            if self.children[kind].see(child):
                self._dirty_owner(child)
                if known is not None and child_group(known) != child_group(child):
                    self._dirty_owner(known)  # somebody labelled it for another service: this one has lost it
        elif kind == "Pod":
            before, pod = self.pods.get(from_api.uid(body)), from_api.pod(body)
            group = pod_group(pod)
            if self.pods.see(pod):
                turned = pod.ready and not (before is not None and before.ready)
                self._dirty_service(group, turned and all(one.ready for one in self.pods.group(group)))
                if before is not None and before.service != pod.service:
                    self._dirty_service(pod_group(before))
        elif kind == "Node":
            self._seen_node(body)
        elif kind == RECORD:
            record = from_api.record(body)
            old = self.records.get(record.uid)
            if self.records.see(record):
                self._record_changed(old, record)
        else:
            self._seen_resource(kind, body)

    def gone(self, kind: str, uid: str, version: int = 0) -> None:
        """An object does not exist any more, or has lost our label."""
        known = self._store(kind).get(uid)
        labelled = isinstance(known, Child) and known.labels.get(keys.MANAGED_BY) == keys.MANAGER
        if labelled and self._store(kind).ahead(uid, version):
            return  # somebody had taken our label off, and our own write has put it on again since
        lost = self._store(kind).gone(uid, version)
        if isinstance(lost, Child):
            self._stamps.pop(uid, None)
            self.child_gone(lost)
            self._dirty_owner(lost)
        elif isinstance(lost, Pod):
            self._dirty_service(pod_group(lost))
            if lost.node:
                self.room_freed()
        elif isinstance(lost, NodeResource):
            self._node_changed(lost.node, None)
        elif isinstance(lost, NodeRecord):
            self._record_changed(lost, None)
        elif isinstance(lost, Resource):
            # A new object of the same name may have been seen before the old one's deletion.
            self._resource_changed(lost, self.find(lost.ref))
            self._moved(self.quota.gone(uid))

    def freeze(self, frozen: str) -> None:
        """Everything is frozen from now on, since when, by whom and why; "": it is not any more."""
        self._index.deps = replace(self._index.deps, frozen=frozen)
        for kind in (SERVICE, BENCHMARK, *SHORT):
            for resource in self.resources[kind]:
                self._enqueue(resource.ref, Haste.AWAITED)
        for node in self.records.groups():
            self._enqueue(Ref(RECORD, "", node), Haste.SOON)

    def waits_for_nodes(self, service: Ref, waits: bool) -> None:
        """Whether the last pass over a service rested on which nodes there are: then a change of any makes it dirty."""
        if waits:
            self._for_nodes.add(service)
        else:
            self._for_nodes.discard(service)

    # --- what passes read -----------------------------------------------------------------------------------------

    def deps(self) -> Deps:
        """As before; whoever has asked may be dirty again."""
        self._woken.clear()
        return super().deps()

    def users(self, ref: Ref) -> tuple[Ref, ...]:
        """Services that refer to an object."""
        return self._referrers.of(ref)

    def concerned(self, ref: Ref) -> tuple[Ref, ...]:
        """Services that must look at an edited object."""
        if ref.kind in ACCELERATORS:
            return tuple(each.ref for each in self.services())
        return self._referrers.concerned(ref)

    def used(self, ref: Ref) -> bool:
        """Whether a service refers to an object."""
        return bool(self._referrers.of(ref))

    # --- answers to our own writes --------------------------------------------------------------------------------

    def wrote(self, kind: str, body: Manifest) -> Child | Pod | Resource | None:
        """The server's answer to a write or a live read of ours; later passes see it even before the watch does."""
        if kind in self.children:
            child = self._child(kind, body)
            if not self.children[kind].wrote(child) and self.children[kind].get(child.uid) is None:
                self._stamps.pop(child.uid, None)  # it is gone by now
            return child
        if kind == "Pod":
            pod = from_api.pod(body)
            self.pods.wrote(pod)
            return pod
        if kind in self.resources:
            old = self.resources[kind].get(from_api.uid(body))
            resource = keep(kind, body, old)
            if not self.resources[kind].wrote(resource):
                return resource  # the watch was faster, and told everybody
            # No event will tell of our own write, nor of an edit just before it: that one's event is stale by now.
            if old is None or edited(old) != edited(resource):
                self._resource_changed(old, resource)
            else:
                self._behind(resource.ref, False)
                self._requeue_referred(old, resource)
            return resource
        return None

    # --- changes and whom they concern ----------------------------------------------------------------------------

    def _dirty_owner(self, child: Child) -> None:
        """The service that a child is labelled for; of a Job, which carries no service's label, who wants its name."""
        if child.kind != JOB:
            self._dirty_service(child_group(child))
            return
        for ref in self._index.benchmarks(JOB, child.namespace, child.name):
            self._enqueue(ref, Haste.SOON)

    def _dirty_service(self, group: tuple[str, str], whole: bool = False) -> None:
        """Its pods or children changed; `whole`: the last of its pods has become ready."""
        namespace, name = group
        if name:
            self._enqueue(Ref(SERVICE, namespace, name), Haste.AWAITED if whole else Haste.SOON)

    def _seen_resource(self, kind: str, body: Mapping[str, Any]) -> None:
        old = self.resources[kind].get(from_api.uid(body))
        resource = keep(kind, body, old)
        if self.resources[kind].see(resource):
            self._resource_changed(old, resource)
        if kind == BASE_MODEL:
            created = (body.get("metadata") or {}).get("creationTimestamp") or ""
            self._moved(self.quota.see(resource.ref.namespace, Entry(created, resource.ref.name, resource.uid)))

    def _moved(self, uids: Iterable[str]) -> None:
        """These models are within or beyond the number of their namespace now: that is news as an edit is."""
        for uid in uids:
            if (one := self.resources[BASE_MODEL].get(uid)) is not None:
                self._resource_changed(None, one)

    def _resource_changed(self, old: Resource | None, new: Resource | None) -> None:
        one = new or old
        assert one is not None
        edit = old is None or new is None or old.uid != new.uid or edited(old) != edited(new)
        self._enqueue(one.ref, Haste.AWAITED if edit else Haste.SOON)
        self._behind(one.ref, edit)
        if one.ref.kind in (*SHORT, BENCHMARK):
            return
        self._requeue_referred(old, new)
        if edit and one.ref.kind != SERVICE:
            self._edited.add(one.ref)
            self._enqueue(one.ref, Haste.SHARED)

    def _requeue_referred(self, old: Resource | None, new: Resource | None) -> None:
        """Re-enqueue objects whose set of users changed: what a service refers to, or what was chosen for it."""
        one = new or old
        if one is not None and one.ref.kind == SERVICE:
            for ref in self._referrers.changed(one.ref, old, new):
                self._enqueue(ref, Haste.SOON)

    def _behind(self, ref: Ref, edit: bool) -> None:
        """What a model or service that changed was made of, and the benchmarks that wait for it; everything that is not made
        yet looks at an edited catalog.
        """
        mine = [Ref(SERVING, ref.namespace, ref.name), *self._index.benchmarks(*ref)] if ref.kind == SERVICE else []
        if ref.kind == MODELS[0]:
            mine.append(Ref(SHORT_MODEL, "", ref.name))
        if edit and ref.kind in CATALOG:
            mine += self._index.unmade
        for one in mine:
            if self.find(one) is not None:
                self._enqueue(one, Haste.SOON)

    def _record_changed(self, old: NodeRecord | None, new: NodeRecord | None) -> None:
        """The node, and those models of which its agent says something else than before."""
        before, after = ({each.ref: each for each in (record.holdings if record else ())} for record in (old, new))
        self._enqueue(Ref(RECORD, "", (new or old).node), Haste.SOON)  # type: ignore[union-attr]
        for ref in before | after:
            if ref.kind in HELD and before.get(ref) != after.get(ref):
                self._enqueue(ref, Haste.SOON)

    def _seen_node(self, body: Mapping[str, Any]) -> None:
        resource = NodeResource(from_api.uid(body), from_api.version(body), node_facts.node(body))
        old = self.nodes.get(resource.uid)
        if self.nodes.see(resource):
            self._node_changed(old.node if old else None, resource.node)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        """Models that it holds from now on, or not any more, concern their users; its labels its record; that it comes or
        goes the services of its pods; accelerator classes count it, and some services wait for any change of a node.
        """
        for service in self._for_nodes:
            self._enqueue(service, Haste.SOON)
        for resource in (each for kind in ACCELERATORS for each in self.resources[kind]):
            if _counted(resource, old) != _counted(resource, new):
                self._enqueue(resource.ref, Haste.SOON)
        relabelled = new is not None and (old is None or (old.labels, old.ours) != (new.labels, new.ours))
        if new is not None and relabelled and self.record(new.name) is not None:
            self._enqueue(Ref(RECORD, "", new.name), Haste.SOON)
        if old is not None and (new is None or new.alive != old.alive):
            for group in {
                pod_group(pod) for uid in self._index.on_node(old.name) if (pod := self.pods.get(uid)) is not None
            }:
                self._dirty_service(group)
        concerned = {ref for label in self._index.moved() for ref in self._index.models.of(label)}
        for ref in sorted(concerned - self._woken):
            found = self.find(ref)
            if found is not None and not self.quota.beyond(found.uid):
                self._woken.add(ref)
                self._enqueue(ref, Haste.SOON)
                for user in self._referrers.of(ref):
                    self._enqueue(user, Haste.SOON)


def _counted(accelerator: Resource, node: Node | None) -> tuple[bool, int] | None:
    """What the status of an accelerator class says of a node, None where it does not count it."""
    if node is None or isinstance(accelerator.parsed, Invalid) or not carries(node, accelerator.parsed):
        return None
    return node.ready, node.gpus
