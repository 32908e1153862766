"""Render the object that exposes a service outside of the cluster: an Ingress, or an HTTPRoute of the Gateway API.

An Ingress sends requests to the service's main Service; if two revisions exist, their routers share the requests in
proportion to their capacity. An HTTPRoute refers to one Service for each revision, with weights (`core/rollout/traffic.py`).
Nothing is rendered unless the operator's options name the kind of object and a domain for the hosts is known.
"""

import re
from collections.abc import Iterator, Mapping

from ome_operator import keys
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.render import meta
from ome_operator.settings import Exposure
from ome_operator.util.memoize import memoize_by_identity

INGRESS, ROUTE = "Ingress", "HTTPRoute"
GATEWAY_API = "gateway.networking.k8s.io"
TEMPLATE = "{{.Name}}.{{.Namespace}}.{{.IngressDomain}}"
"""Default template of a host, as in OME; the annotation `ome.io/ingress-domain-template` overrides it."""
_FIELD = re.compile(r"\{\{\s*\.(Name|Namespace|IngressDomain)\s*\}\}")
_HOST = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)+")
_NOT_COPIED = re.compile(r"([a-z-]+\.)?ome\.io/|ome\.oracle\.com/|kubectl\.kubernetes\.io/|kueue-enabled$")
"""Pattern of the annotations of a service that are meant for operators, and are never copied to the Ingress or HTTPRoute."""


@memoize_by_identity(1024)
def manifests(
    owner: meta.Owner,
    front: str,
    exposure: Exposure,
    annotations: tuple[tuple[str, str], ...],
    weights: tuple[tuple[str, int], ...] = (),
) -> list[Manifest]:
    """Return the Ingress or the HTTPRoute of the service, as a list of one manifest. The list is empty if neither is
    requested, if no host is known or permitted, or if any host is invalid.

    `front` is the component behind the service's URL. `weights` are the Services that an HTTPRoute refers to, each with its
    weight; () stands for the service's main Service alone.
    """
    notes = dict(annotations)
    service_hosts = hosts(owner, exposure, notes)
    disabled = not exposure.kind or notes.get(keys.INGRESS_OFF) == "true"
    if disabled or any(_wrong(service_hosts, exposure)):
        return []
    if not (service_hosts := [host for host in service_hosts if _permitted(host, owner, exposure)]):
        return []
    labels = meta.labels(owner.name, front)
    if exposure.kind == INGRESS:
        exposed = _ingress(owner, service_hosts, exposure, labels)
    else:
        exposed = _route(owner, service_hosts, exposure, labels, weights or ((owner.name, 1),))
    if copied := {name: value for name, value in notes.items() if _copied(name, exposure)}:
        exposed["metadata"]["annotations"] = copied
    return [exposed]


def hosts(owner: meta.Owner, exposure: Exposure, annotations: Mapping[str, str]) -> list[str]:
    """Return the hosts of a service; the host in the service's own domain is the first."""
    template = annotations.get(keys.INGRESS_TEMPLATE) or TEMPLATE
    more = (annotations.get(keys.INGRESS_MORE) or "").split(",")
    domains = [annotations.get(keys.INGRESS_DOMAIN) or exposure.domain, *(domain.strip() for domain in more)]
    fields = {"Name": owner.name, "Namespace": owner.namespace}

    def host(domain: str) -> str:
        return _FIELD.sub(lambda match: {**fields, "IngressDomain": domain}[match[1]], template)

    return list(dict.fromkeys(host(domain) for domain in domains if domain))


def advice(owner: meta.Owner, exposure: Exposure, annotations: Mapping[str, str]) -> list[str]:
    """Return sentences that explain why a service is not exposed, or not exposed as its annotations say, although the
    operator is configured to expose services.
    """
    if not exposure.kind or annotations.get(keys.INGRESS_OFF) == "true":
        return []
    found = hosts(owner, exposure, annotations)
    if wrong := [*_wrong(found, exposure)]:
        return wrong
    own = f"{owner.namespace}.{exposure.domain or 'DOMAIN'}"
    return [
        *(
            f"host {host} is not used, because it is outside of {own}: ask an administrator to permit its domain in "
            "exposure.domains of the chart"
            for host in found
            if not _permitted(host, owner, exposure)
        ),
        *(
            f"annotation {name} is not copied to the {exposure.kind}: ask an administrator to add it to "
            "exposure.annotations of the chart"
            for name in annotations
            if _for_controllers(name) and not _NOT_COPIED.match(name) and not _copied(name, exposure)
        ),
    ]


def _for_controllers(annotation: str) -> bool:
    """Return whether an annotation is meant for a controller of Ingresses or Gateways, by its prefix."""
    prefix, slash, _ = annotation.partition("/")
    return bool(slash) and ("ingress" in prefix or "gateway" in prefix)


def _permitted(host: str, owner: meta.Owner, exposure: Exposure) -> bool:
    """Return whether a service is permitted to use a host. The host has to be below NAMESPACE.DOMAIN, where DOMAIN is the
    chart's domain, or in a domain that an administrator lists for the namespace.
    """
    if exposure.domain and host.endswith(f".{owner.namespace}.{exposure.domain}"):
        return True
    pairs = (entry.partition("=") for entry in exposure.domains)
    listed = [domain for namespace, _, domain in pairs if namespace in ("*", owner.namespace)]
    return any(host == domain or host.endswith(f".{domain}") for domain in listed)


def _copied(name: str, exposure: Exposure) -> bool:
    """Return whether the annotation `name` of a service is copied to the Ingress or HTTPRoute."""
    prefixes = tuple(entry for entry in exposure.annotations if entry.endswith("/"))
    return (name in exposure.annotations or name.startswith(prefixes)) and not _NOT_COPIED.match(name)


def _wrong(service_hosts: list[str], exposure: Exposure) -> Iterator[str]:
    if not service_hosts:
        yield (
            f"no {exposure.kind} is created, because its domain is not known: set exposure.domain of the chart, or the "
            f"annotation {keys.INGRESS_DOMAIN} of the service"
        )
    for host in service_hosts:
        if not _HOST.fullmatch(host):
            where = f"{keys.INGRESS_TEMPLATE}, {keys.INGRESS_DOMAIN} or {keys.INGRESS_MORE}"
            yield f"no {exposure.kind} is created, because {host!r} is not a valid host name: correct annotation {where}"


def _ingress(owner: meta.Owner, service_hosts: list[str], exposure: Exposure, labels: Mapping[str, str]) -> Manifest:
    backend = {"service": {"name": owner.name, "port": {"number": keys.SERVICE_PORT}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    spec: Manifest = {"rules": [{"host": host, "http": {"paths": paths}} for host in service_hosts]}
    if exposure.ingress_class:
        spec["ingressClassName"] = exposure.ingress_class
    return meta.manifest(owner, "networking.k8s.io/v1", INGRESS, owner.name, labels, {"spec": spec})


def _route(
    owner: meta.Owner,
    service_hosts: list[str],
    exposure: Exposure,
    labels: Mapping[str, str],
    weights: tuple[tuple[str, int], ...],
) -> Manifest:
    """Return an HTTPRoute with every value that the Gateway API would set by default, so that the stored object equals
    the applied manifest.
    """
    namespace, _, name = exposure.gateway.rpartition("/")
    parent = {"group": GATEWAY_API, "kind": "Gateway", "name": name, "namespace": namespace or owner.namespace}
    service = {"group": "", "kind": "Service", "port": keys.SERVICE_PORT}
    backends = [{**service, "name": name, "weight": weight} for name, weight in weights]
    rule = {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": backends}
    spec = {"parentRefs": [parent], "hostnames": service_hosts, "rules": [rule]}
    return meta.manifest(owner, f"{GATEWAY_API}/v1", ROUTE, owner.name, labels, {"spec": spec})
