"""Render the Services of an InferenceService: the Service of its URL, one Service for each component, and a headless
Service that gives the pods DNS names. If an HTTPRoute exposes the service, each revision also has a Service for its
routers.
"""

from collections.abc import Mapping

from ome_operator import keys, names
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.render import meta
from ome_operator.util.memoize import memoize_by_identity

DOMAIN = "svc.cluster.local"
LOAD_BALANCER = "LoadBalancer"


@memoize_by_identity(1024)
def services(
    owner: meta.Owner,
    ports: tuple[tuple[str, int], ...],
    front: str,
    service_type: str,
    address: str = "",
    answered: bool = False,
) -> list[Manifest]:
    """Return all Services that do not belong to a particular revision.

    `ports` lists the existing components with the port where their leaders or routers serve HTTP. `front` is the component
    behind the URL: the router, or the engine if there is no router. `address` is the IP address to request for a
    LoadBalancer. The external Service comes first: it has priority over another service's component Service of the same
    name. If `answered` is true, the Services of routers lead to the registries beside the routers, as in `slice_service`.
    """
    external = _external(owner, front, dict(ports)[front], service_type, address)
    out = [_answered(external) if answered else external, _headless(owner, ports[0][1])]
    for component, port in ports:
        out.append(_service(owner, names.component(owner.name, component), component, [_port("http", port, port)]))
    return out


@memoize_by_identity(1024)
def slice_service(owner: meta.Owner, revision: str, port: int, answered: bool = False) -> Manifest:
    """Return the Service of a revision's routers, for a route with weights. The Service has the name of the routers'
    Deployment. If `answered` is true, the Service leads to the registries beside the routers, which answer requests
    while no engine runs.
    """
    labels = meta.labels(owner.name, keys.ROUTER, revision)
    spec = {"type": "ClusterIP", "selector": labels, "ports": [_port("http", keys.SERVICE_PORT, port)]}
    found = meta.manifest(owner, "v1", "Service", names.router(owner.name, revision), labels, {"spec": spec})
    return _answered(found) if answered else found


def _answered(service: Manifest) -> Manifest:
    """Return a Service of routers that leads to their registries. Routers without engines are not ready, so pods that are
    not ready are endpoints, too.
    """
    spec, metadata = service["spec"], service["metadata"]
    ports = [{**port, "targetPort": keys.ANSWER_PORT} for port in spec["ports"]]
    labels = {**metadata["labels"], keys.ANSWERED_BY: keys.REGISTRY_ANSWERS}
    return {
        **service,
        "metadata": {**metadata, "labels": labels},
        "spec": {**spec, "ports": ports, "publishNotReadyAddresses": True},
    }


def url(owner: meta.Owner, port: int) -> str:
    """Return the URL of the service within the cluster."""
    return f"http://{owner.name}.{owner.namespace}.{DOMAIN}:{port}"


def advice(annotations: Mapping[str, str]) -> list[str]:
    """Return sentences about mistakes in the annotations that configure the external Service."""
    if annotations.get(keys.LOAD_BALANCER_IP) and annotations.get(keys.SERVICE_TYPE) != LOAD_BALANCER:
        remedy = f"write {keys.SERVICE_TYPE}: {LOAD_BALANCER}, too"
        return [f"annotation {keys.LOAD_BALANCER_IP} has no effect on a Service that is not a load balancer: {remedy}"]
    return []


def _external(owner: meta.Owner, component: str, port: int, service_type: str, address: str) -> Manifest:
    entries = [_port("http", keys.SERVICE_PORT, port)]
    if port != keys.SERVICE_PORT:
        entries.append(_port("engine" if component == keys.ENGINE else "router", port, port))
    service = _service(owner, owner.name, component, entries, service_type or "ClusterIP")
    if address and service_type == LOAD_BALANCER:
        service["spec"]["loadBalancerIP"] = address
    return service


def _service(owner: meta.Owner, name: str, component: str, ports: list[Manifest], type_: str = "ClusterIP") -> Manifest:
    spec = {"type": type_, "selector": meta.leaders(owner.name, component), "ports": ports}
    return meta.manifest(owner, "v1", "Service", name, meta.labels(owner.name, component), {"spec": spec})


def _headless(owner: meta.Owner, port: int) -> Manifest:
    # Ranks must find their leader before any rank is ready. No client uses the port, but without ports Kubernetes 1.34
    # rewrites the Service's EndpointSlice on each sync: the stored `ports: null` differs from the `[]` that it computes.
    ports = [_port("http", port, port)]
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": meta.labels(owner.name), "ports": ports}
    return meta.manifest(owner, "v1", "Service", names.headless(owner.name), meta.labels(owner.name), {"spec": spec})


def _port(name: str, port: int, target: int) -> Manifest:
    return {"name": name, "port": port, "targetPort": target, "protocol": "TCP"}
