"""Determine whether a cluster has free capacity for a second copy of a service, so that an edit need not interrupt the
service.
"""

import time
from collections.abc import Iterator

from ome_operator.api import InferenceService
from ome_operator.cache.foreign_pods import ForeignPods
from ome_operator.core.placement.admission import has_capacity
from ome_operator.core.placement.capacity_check import revision_needs
from ome_operator.core.placement.claims import nodes_with_room, subtract_held
from ome_operator.core.placement.fit import Nodes
from ome_operator.core.placement.kueue import is_queued
from ome_operator.core.placement.quotas import QuotaChange, Usage, of_pod, of_workload, shortage
from ome_operator.describe.outcome import TargetOutcome
from ome_operator.kube.client import Client
from ome_operator.kube.errors import Forbidden
from ome_operator.kube.resources import RESOURCES
from ome_operator.util.wording import count


async def advice(client: Client, after: TargetOutcome, service: InferenceService, nodes: Nodes) -> str:
    """Return a sentence that recommends the strategy blueGreen; "" unless all pods of the new revision fit on nodes beside
    the pods that run now, and the ResourceQuotas of the namespace allow both.

    The pods on at most 100 nodes are read, with the rights of the user. Other nodes are treated as full. If the user may
    not read the quotas, or if a queue or another scheduler places the pods, nothing is recommended.

    `after` is the outcome of the service after the edit. `nodes` are the nodes of the cluster as if they were empty.
    """
    if is_queued(after.workloads):
        return ""
    asked = revision_needs(
        after.workloads, {role.component: role.groups for role in after.roles}, service.namespace, weights=True
    )
    pods = ForeignPods(client, time.monotonic, lambda _: False)
    await pods.read_nodes(nodes_with_room(asked, nodes))
    free = {name: subtract_held(nodes[name], pods.requests_on(name)) for name in pods.recently_read_nodes()}
    if not has_capacity(asked, (), free):
        return ""
    try:
        quotas = await client.list_objects("ResourceQuota", service.namespace)
    except Forbidden:
        return ""
    if shortage(quotas, QuotaChange(tuple(usage(after)))):
        return ""
    number = sum(1 for _ in nodes_with_room(asked, free))
    return (
        f"{count(number, 'node')} {'has' if number == 1 else 'have'} free capacity: with spec.rollout.blueGreen the old "
        "pods serve until the new pods are ready, and nothing is interrupted"
    )


def usage(after: TargetOutcome) -> Iterator[tuple[Usage, int]]:
    """Yield (usage, count) pairs for the ResourceQuotas of a namespace. Each workload of a revision results in two pairs:
    the usage of the workload object with the count 1, and the usage of one of its pods with the number of replicas.
    """
    for body in after.manifests:
        if body["kind"] in ("StatefulSet", "Deployment"):
            yield of_workload(RESOURCES[body["kind"]].plural), 1
            yield of_pod(body["spec"]["template"]["spec"]), body["spec"].get("replicas", 1)
