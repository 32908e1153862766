"""The trees of services, read from a live cluster."""

from ome_operator import keys
from ome_operator.cache.resources import SERVICE
from ome_operator.cli.live.cluster_from_manifests import gather
from ome_operator.core.observed.objects import Observed
from ome_operator.describe.tree import Tree, tree
from ome_operator.kube.client import Client
from ome_operator.kube.listing import listed

KINDS = ("ControllerRevision", "StatefulSet", "Deployment", "Pod")
"""What slices are made of."""
OURS = f"{keys.MANAGED_BY}={keys.MANAGER}"


def selector(service: str) -> str:
    """Objects of one service, or of all for ""."""
    return f"{OURS},{keys.SERVICE}={service}" if service else OURS


async def trees(client: Client, namespace: str, service: str = "") -> list[Tree]:
    """Of one service, or of all in a namespace ("" for everywhere). Raises KubeError; NotFound for a service's name."""
    bodies = [await client.get(SERVICE, namespace, service)] if service else await client.list_objects(SERVICE, namespace)
    there = gather(await listed(client, KINDS, namespace, selector(service)))
    found = []
    for body in sorted(bodies, key=lambda one: (one["metadata"]["namespace"], one["metadata"]["name"])):
        which = body["metadata"]["namespace"], body["metadata"]["name"]
        found.append(tree(body, Observed(there.children_of(*which), there.pods_of(*which))))
    return found
