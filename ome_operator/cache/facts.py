"""The facts that the cache stores: their types, how they are grouped and compared, and the record of a change."""

from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.cache.resources import Resource
from ome_operator.core.observed.objects import Child, Node, NodeRecord, Pod, Ref
from ome_operator.core.reasons import Reason

_COMING = frozenset({Reason.PENDING, Reason.CONTAINER_CREATING, Reason.STARTING})
"""Reasons of a pod that is not ready because it is starting normally."""


class NodeResource(NamedTuple):
    """A node with its UID and resourceVersion."""

    uid: str
    version: int
    node: Node


class FactChange(NamedTuple):
    """A fact before and after an event, or before and after the answer to a write."""

    former_fact: Any
    """The fact that was stored before: a Child, Pod, NodeResource, NodeRecord or Resource; None if there was none."""
    new: Any
    """The fact from the event or the answer; None if the object is gone."""
    matters: bool
    """For an event of a watch: whether anything that a reconciliation reads has changed. For the response to a write:
    whether the response is newer than the stored fact."""
    requoted: tuple[Resource, ...] = ()
    """BaseModels that this change has brought within, or beyond, the quota of their namespace."""


def fact_namespace(fact: Any) -> str:
    """Return the namespace of the object that a fact of this module is about; "" for a cluster-wide object."""
    return str(fact.ref.namespace if isinstance(fact, Resource) else fact.namespace)


def same_fact(a: Any, b: Any) -> bool:
    """Return whether two facts are equal except for their field `version`."""
    return bool(a == b._replace(version=a.version))


def same_node(a: NodeResource, b: NodeResource) -> bool:
    """Return whether two nodes are equal except for their field `version`."""
    return same_fact(a.node, b.node)


def child_group(child: Child) -> tuple[str, str]:
    """Return the namespace of a child object, and the name of the service in its label."""
    return child.namespace, child.labels.get(keys.SERVICE) or ""


def pod_group(pod: Pod) -> tuple[str, str]:
    """Return the namespace of a pod, and the name of the service in its label."""
    return pod.namespace, pod.service


def has_served(pod: Pod) -> bool:
    """Return whether a pod is ready, or was ready since its main container started."""
    began = pod.times.began  # times in RFC 3339 compare as strings
    return pod.ready or (bool(began) and pod.times.unready > began)


def starts_normally(old: Pod | None, new: Pod) -> bool:
    """Return whether a change of a pod is only a step of its first start: the pod was created, or its containers run. A pod
    that is bound to a node, becomes ready or has a problem is a different change. `old` is the former state of the pod; None
    for a new pod.
    """
    if new.reason not in _COMING or new.restarts or new.deleting or new.contacts or new.preflight is not None:
        return False
    if old is None:
        return not new.node
    steps = old._replace(
        version=new.version, reason=new.reason, message=new.message, running=new.running, times=new.times, ip=new.ip
    )
    return old.reason in _COMING and old.running <= new.running and steps == new


def resource_group(resource: Resource) -> Ref:
    """Return the key of an object of the operator's kinds."""
    return resource.ref


def node_group(resource: NodeResource) -> str:
    """Return the name of a node."""
    return resource.node.name


def record_group(record: NodeRecord) -> str:
    """Return the name of the node that a record is about."""
    return record.node
