"""Services of an InferenceService: the URL, a Service for each component, and the headless Service that names the pods.

Where an HTTPRoute leads to it each slice has a Service of its routers, too.
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
    owner: meta.Owner, ports: tuple[tuple[str, int], ...], front: str, service_type: str, address: str = ""
) -> list[Manifest]:
    """All Services; `ports` has each component that exists with the port where its leaders or routers serve HTTP.

    `front` is the component behind the URL: the router, or the engine where there is none. `address`: what the cloud is
    asked for, of a LoadBalancer.
    The external Service comes first: it has priority over another service's component Service of the same name.
    """
    out = [_external(owner, front, dict(ports)[front], service_type, address), _headless(owner, ports[0][1])]
    for component, port in ports:
        out.append(_service(owner, names.component(owner.name, component), component, [_port("http", port, port)]))
    return out


@memoize_by_identity(1024)
def of_slice(owner: meta.Owner, revision: str, port: int) -> Manifest:
    """The routers of a slice, for a route that gives each slice its share; it has the name of their Deployment."""
    labels = meta.labels(owner.name, keys.ROUTER, revision)
    spec = {"type": "ClusterIP", "selector": labels, "ports": [_port("http", keys.SERVICE_PORT, port)]}
    return meta.manifest(owner, "v1", "Service", names.router(owner.name, revision), labels, {"spec": spec})


def url(owner: meta.Owner, port: int) -> str:
    """Where the service answers inside the cluster."""
    return f"http://{owner.name}.{owner.namespace}.{DOMAIN}:{port}"


def advice(annotations: Mapping[str, str]) -> list[str]:
    """What is wrong with the annotations of a service about its Service."""
    if annotations.get(keys.LOAD_BALANCER_IP) and annotations.get(keys.SERVICE_TYPE) != LOAD_BALANCER:
        said = f"write {keys.SERVICE_TYPE}: {LOAD_BALANCER} beside it"
        return [f"annotation {keys.LOAD_BALANCER_IP} has no effect on a Service that is no load balancer: {said}"]
    return []


def _external(owner: meta.Owner, component: str, port: int, service_type: str, address: str) -> Manifest:
    entries = [_port("http", keys.SERVICE_PORT, port)]
    if port != keys.SERVICE_PORT:
        entries.append(_port("engine" if component == keys.ENGINE else "router", port, port))
    made = _service(owner, owner.name, component, entries, service_type or "ClusterIP")
    if address and service_type == LOAD_BALANCER:
        made["spec"]["loadBalancerIP"] = address
    return made


def _service(owner: meta.Owner, name: str, component: str, ports: list[Manifest], type_: str = "ClusterIP") -> Manifest:
    spec = {"type": type_, "selector": meta.leaders(owner.name, component), "ports": ports}
    return meta.manifest(owner, "v1", "Service", name, meta.labels(owner.name, component), {"spec": spec})


def _headless(owner: meta.Owner, port: int) -> Manifest:
    # Ranks must find their leader before any of them is ready. Nobody asks for the port, but Kubernetes 1.34 writes the
    # slice of a Service without ports anew each time it looks: the stored `ports: null` is not the `[]` that it wants.
    ports = [_port("http", port, port)]
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": meta.labels(owner.name), "ports": ports}
    return meta.manifest(owner, "v1", "Service", names.headless(owner.name), meta.labels(owner.name), {"spec": spec})


def _port(name: str, port: int, target: int) -> Manifest:
    return {"name": name, "port": port, "targetPort": target, "protocol": "TCP"}
