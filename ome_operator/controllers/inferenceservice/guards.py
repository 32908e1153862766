"""Check by live reads, immediately before an effect, that the objects are as they were when the effect was decided.

Pods that the service's workloads did not create, such as copies of pods, may have the labels of the service's pods. Such
pods prevent no effect.
"""

from ome_operator.cache.event_handler import EventHandler
from ome_operator.core.observed import from_api
from ome_operator.core.observed import nodes as node_facts
from ome_operator.core.observed.slices import made_by_workload
from ome_operator.core.reconcile.plan import GroupRecycle, Guard, NodeLost, fingerprint
from ome_operator.kube.client import Client
from ome_operator.kube.errors import NotFound


async def guard_applies(client: Client, namespace: str, guard: Guard | NodeLost) -> bool:
    """Return whether a guard forbids its effect: a pod exists that must not exist, or a node is alive although it was
    considered lost. Raises KubeError if a request fails.
    """
    if isinstance(guard, NodeLost):
        nodes = await client.list_objects("Node", field_selector=f"metadata.name={guard.node}", limit=1)
        return any(node_facts.node(body).alive for body in nodes)
    field = f"metadata.name={guard.name}" if guard.name else ""
    for limit in (1, 0):  # one pod is enough unless it is a copy, and a slice may have hundreds of large pods
        found = await client.list_objects("Pod", namespace, label_selector=guard.selector, field_selector=field, limit=limit)
        if not found or any(made_by_workload(from_api.pod(body)) for body in found):
            return bool(found)
    return False


async def as_seen(client: Client, handler: EventHandler, namespace: str, recycle: GroupRecycle) -> bool:
    """Return whether the live pods and the live scale match those on which the decision to recycle was based. Store the
    live objects in the cache. Raises KubeError if a request fails.
    """
    bodies = await client.list_objects("Pod", namespace, label_selector=recycle.selector)
    pods = [pod for pod in map(from_api.pod, bodies) if made_by_workload(pod)]
    live = {fingerprint(pod) for pod in pods}
    for body in bodies:
        handler.handle_written("Pod", body)
    for uid in {pod.uid for pod in recycle.pods} - {pod.uid for pod in live}:
        handler.handle_deleted("Pod", uid)
    if recycle.scale is None or live != recycle.pods:
        return live == recycle.pods
    name, replicas = recycle.scale
    try:
        scale = await client.get("RoleScale", namespace, name)
    except NotFound:
        return False
    handler.handle_written("RoleScale", scale)
    return bool(scale["spec"].get("replicas") == replicas)
