"""Which keys a change in the cluster makes dirty.

Changes come from the watch, from the answers to our own writes, and from audits. Each is stored in the cache first.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any

from ome_operator.api import Invalid
from ome_operator.cache.cluster_cache import RECORD, ClusterCache
from ome_operator.cache.facts import FactChange, NodeResource, child_group, pod_group
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
)
from ome_operator.core.observed.objects import Child, Manifest, Node, NodeRecord, Pod, Ref
from ome_operator.core.selection.capability import carries


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


class EventHandler:
    """Stores changes in a cache, and calls `enqueue` for every key that a change matters to.

    `child_gone` is called with a child that has vanished, whose name is free now; `capacity_freed` is called when a pod of
    ours is gone from its node.
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
        """Services whose last pass rested on which nodes there are."""

    # --- the sink of the watch ------------------------------------------------------------------------------------

    def seen(self, kind: str, body: Mapping[str, Any]) -> None:
        """An object is there in this state."""
        change = self.cache.seen(kind, body)
        if change is None:
            return
        if change.matters:
            old, new = change.old, change.new
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

    def gone(self, kind: str, uid: str, version: int = 0) -> None:
        """An object does not exist any more, or has lost our label."""
        change = self.cache.gone(kind, uid, version)
        if change is None:
            return
        lost = change.old
        if isinstance(lost, Child):
            self._child_gone(lost)
            self._dirty_owner(lost)
        elif isinstance(lost, Pod):
            self._dirty_service(pod_group(lost))
            if lost.node:
                self._capacity_freed()
        elif isinstance(lost, NodeResource):
            self._node_changed(lost.node, None)
        elif isinstance(lost, NodeRecord):
            self._record_changed(lost, None)
        else:
            # A new object of the same name may have been seen before the old one's deletion.
            self._resource_changed(lost, self.cache.find(lost.ref))
        self._requoted(change)

    def freeze(self, frozen: str) -> None:
        """Freeze everything, or end the freeze: `frozen` states since when, by whom and why, or is ""."""
        self.cache.freeze(frozen)
        for kind in (SERVICE, BENCHMARK, *SHORT):
            for resource in self.cache.resources[kind]:
                self._enqueue(resource.ref, Haste.AWAITED)
        for node in self.cache.records.groups():
            self._enqueue(Ref(RECORD, "", node), Haste.SOON)

    def waits_for_nodes(self, service: Ref, waits: bool) -> None:
        """Whether the last pass over a service rested on which nodes there are: then a change of any makes it dirty."""
        if waits:
            self._for_nodes.add(service)
        else:
            self._for_nodes.discard(service)

    # --- what passes read -----------------------------------------------------------------------------------------

    def users(self, ref: Ref) -> tuple[Ref, ...]:
        """Services that refer to an object."""
        return self._referrers.of(ref)

    def concerned(self, ref: Ref) -> tuple[Ref, ...]:
        """Services that must look at an edited object."""
        if ref.kind in ACCELERATORS:
            return tuple(each.ref for each in self.cache.services())
        return self._referrers.concerned(ref)

    def used(self, ref: Ref) -> bool:
        """Whether a service refers to an object."""
        return bool(self._referrers.of(ref))

    # --- answers to our own writes --------------------------------------------------------------------------------

    def wrote(self, kind: str, body: Manifest) -> Child | Pod | Resource | None:
        """The server's answer to a write or a live read of ours; later passes see it even before the watch does."""
        change = self.cache.wrote(kind, body)
        if change is None:
            return None
        old, new = change.old, change.new
        if isinstance(new, Resource) and change.matters:  # else the watch was faster, and every key is dirty already
            # No event will tell of our own write, nor of an edit just before it: that one's event is stale by now.
            if old is None or edited(old) != edited(new):
                self._resource_changed(old, new)
            else:
                self._behind(new.ref, False)
                self._requeue_referred(old, new)
        written: Child | Pod | Resource = new
        return written

    # --- changes and whom they concern ----------------------------------------------------------------------------

    def _child_changed(self, old: Child | None, new: Child) -> None:
        self._dirty_owner(new)
        if old is not None and child_group(old) != child_group(new):
            self._dirty_owner(old)  # somebody labelled it for another service: this one has lost it

    def _pod_changed(self, old: Pod | None, new: Pod) -> None:
        group = pod_group(new)
        turned = new.ready and not (old is not None and old.ready)
        self._dirty_service(group, turned and all(one.ready for one in self.cache.pods.group(group)))
        if old is not None and old.service != new.service:
            self._dirty_service(pod_group(old))

    def _dirty_owner(self, child: Child) -> None:
        """The service that a child is labelled for; of a Job, which carries no service's label, who wants its name."""
        if child.kind != JOB:
            self._dirty_service(child_group(child))
            return
        for ref in self.cache.benchmarks(JOB, child.namespace, child.name):
            self._enqueue(ref, Haste.SOON)

    def _dirty_service(self, group: tuple[str, str], whole: bool = False) -> None:
        """Its pods or children changed; `whole`: the last of its pods has become ready."""
        namespace, name = group
        if name:
            self._enqueue(Ref(SERVICE, namespace, name), Haste.AWAITED if whole else Haste.SOON)

    def _requoted(self, change: FactChange) -> None:
        """Models that are within or beyond the number of their namespace now: that is news as an edit is."""
        for resource in change.requoted:
            self._resource_changed(None, resource)

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
        mine = [Ref(SERVING, ref.namespace, ref.name), *self.cache.benchmarks(*ref)] if ref.kind == SERVICE else []
        if ref.kind == MODELS[0]:
            mine.append(Ref(SHORT_MODEL, "", ref.name))
        if edit and ref.kind in CATALOG:
            mine += self.cache.unmade()
        for one in mine:
            if self.cache.find(one) is not None:
                self._enqueue(one, Haste.SOON)

    def _record_changed(self, old: NodeRecord | None, new: NodeRecord | None) -> None:
        """The node, and those models of which its agent says something else than before."""
        before, after = ({each.ref: each for each in (record.holdings if record else ())} for record in (old, new))
        self._enqueue(Ref(RECORD, "", (new or old).node), Haste.SOON)  # type: ignore[union-attr]
        for ref in before | after:
            if ref.kind in HELD and before.get(ref) != after.get(ref):
                self._enqueue(ref, Haste.SOON)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        """Models that it holds from now on, or not any more, concern their users; its labels its record; that it comes or
        goes the services of its pods; accelerator classes count it, and some services wait for any change of a node.
        """
        for service in self._for_nodes:
            self._enqueue(service, Haste.SOON)
        for resource in (each for kind in ACCELERATORS for each in self.cache.resources[kind]):
            if _counted(resource, old) != _counted(resource, new):
                self._enqueue(resource.ref, Haste.SOON)
        relabelled = new is not None and (old is None or (old.labels, old.ours) != (new.labels, new.ours))
        if new is not None and relabelled and self.cache.record(new.name) is not None:
            self._enqueue(Ref(RECORD, "", new.name), Haste.SOON)
        if old is not None and (new is None or new.alive != old.alive):
            for group in {pod_group(pod) for pod in self.cache.pods_on(old.name)}:
                self._dirty_service(group)
        for ref in self.cache.moved_models():
            self._enqueue(ref, Haste.SOON)
            for user in self._referrers.of(ref):
                self._enqueue(user, Haste.SOON)


def _counted(accelerator: Resource, node: Node | None) -> tuple[bool, int] | None:
    """What the status of an accelerator class says of a node, None where it does not count it."""
    if node is None or isinstance(accelerator.parsed, Invalid) or not carries(node, accelerator.parsed):
        return None
    return node.ready, node.gpus
