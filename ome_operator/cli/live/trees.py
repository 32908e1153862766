"""Reads the trees of services from a live cluster."""

from datetime import UTC, datetime

from ome_operator import keys
from ome_operator.cache.resources import SERVICE, SERVING
from ome_operator.cli.live.cluster_from_manifests import build_cluster
from ome_operator.cli.live.operator_lease import find_late_operators
from ome_operator.core.observed.objects import Observed
from ome_operator.describe.readiness import operator_class, with_late_operator
from ome_operator.describe.tree import Tree, tree
from ome_operator.kube.client import Client, Manifest
from ome_operator.kube.errors import Forbidden, NotFound, NotServed
from ome_operator.kube.listing import list_all

KINDS = ("ControllerRevision", "StatefulSet", "Deployment", "Pod")
"""Kinds of the objects that slices consist of."""
OURS = f"{keys.MANAGED_BY}={keys.MANAGER}"


def selector(service: str) -> str:
    """Return the label selector of the objects of the service with the name `service`. If `service` is "", return the label
    selector of the objects of all services.
    """
    return f"{OURS},{keys.SERVICE}={service}" if service else OURS


async def trees(client: Client, namespace: str, service: str = "") -> list[Tree]:
    """Return the tree of one service or, if `service` is "", the trees of all services in a namespace ("" for all
    namespaces). Pods and the operator's Lease are included. Raises KubeError if a request fails, and NotFound if the
    named service does not exist.
    """
    there = await services(client, namespace, service)
    now = datetime.now(UTC)
    silent = await find_late_operators(client, (body for body, _ in there), now)
    return [with_late_operator(tree(body, observed, now), silent[operator_class(body)]) for body, observed in there]


async def services(client: Client, namespace: str, service: str = "") -> list[tuple[Manifest, Observed]]:
    """Return the bodies of these services with their objects, sorted by namespace and name. Raises KubeError as `trees`
    does. If `service` is "", all services of the namespace are returned.
    """
    bodies = [await read_service_object(client, namespace, service)] if service else await _all(client, namespace)
    there = build_cluster(await list_all(client, KINDS, namespace, selector(service)))
    which = {(body["metadata"]["namespace"], body["metadata"]["name"]): body for body in bodies}
    return [(which[key], Observed(there.children_of(*key), there.pods_of(*key))) for key in sorted(which)]


async def read_service_object(client: Client, namespace: str, name: str) -> Manifest:
    """Return the InferenceService with the name `name`. Return the Serving of this name if no InferenceService has been
    derived from it. Raises KubeError as `Client.get` does.
    """
    try:
        return await client.get(SERVICE, namespace, name)
    except NotFound as error:
        try:
            return await client.get(SERVING, namespace, name)
        except (Forbidden, NotFound, NotServed):
            raise error from None


async def _all(client: Client, namespace: str) -> list[Manifest]:
    """Return all InferenceServices, and the Servings from which none has been derived yet."""
    services = await client.list_objects(SERVICE, namespace)
    made = {(body["metadata"]["namespace"], body["metadata"]["name"]) for body in services}
    short = await list_all(client, (SERVING,), namespace, optional=(SERVING,))
    return services + [body for body in short if (body["metadata"]["namespace"], body["metadata"]["name"]) not in made]
