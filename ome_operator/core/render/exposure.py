"""What leads to a service from outside of the cluster: an Ingress, or an HTTPRoute of the Gateway API.

An Ingress leads to the service's own Service, behind which routers of two slices share requests as their capacity is. An
HTTPRoute leads to a Service for each slice, with weights (`core/rollout/traffic.py`). Nothing is made unless the operator
was told so, and of what domain hosts are.
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
"""Of a host, as OME has it: the annotation `ome.io/ingress-domain-template` may be another."""
_FIELD = re.compile(r"\{\{\s*\.(Name|Namespace|IngressDomain)\s*\}\}")
_HOST = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)+")
_NOT_HANDED_ON = re.compile(r"([a-z-]+\.)?ome\.io/|ome\.oracle\.com/|kubectl\.kubernetes\.io/|kueue-enabled$")
"""Annotations of a service that are for operators; its others are for whoever serves the Ingress."""


@memoize_by_identity(1024)
def manifests(
    owner: meta.Owner,
    front: str,
    exposure: Exposure,
    annotations: tuple[tuple[str, str], ...],
    weights: tuple[tuple[str, int], ...] = (),
) -> list[Manifest]:
    """What leads to the service, [] where nothing is asked for or no host is known; `front`: what is behind its URL.

    `weights`: the Services that an HTTPRoute leads to, each with its weight; () for the service's own.
    """
    notes = dict(annotations)
    found = hosts(owner, exposure, notes)
    if not exposure.kind or notes.get(keys.INGRESS_OFF) == "true" or not found or advice(owner, exposure, notes):
        return []
    labels = meta.labels(owner.name, front)
    if exposure.kind == INGRESS:
        made = _ingress(owner, found, exposure, labels)
    else:
        made = _route(owner, found, exposure, labels, weights or ((owner.name, 1),))
    if handed := {name: value for name, value in notes.items() if not _NOT_HANDED_ON.match(name)}:
        made["metadata"]["annotations"] = handed
    return [made]


def hosts(owner: meta.Owner, exposure: Exposure, annotations: Mapping[str, str]) -> list[str]:
    """Hosts of a service, the first of them of its own domain."""
    template = annotations.get(keys.INGRESS_TEMPLATE) or TEMPLATE
    more = (annotations.get(keys.INGRESS_MORE) or "").split(",")
    domains = [annotations.get(keys.INGRESS_DOMAIN) or exposure.domain, *(domain.strip() for domain in more)]
    fields = {"Name": owner.name, "Namespace": owner.namespace}

    def host(domain: str) -> str:
        return _FIELD.sub(lambda found: {**fields, "IngressDomain": domain}[found[1]], template)

    return list(dict.fromkeys(host(domain) for domain in domains if domain))


def advice(owner: meta.Owner, exposure: Exposure, annotations: Mapping[str, str]) -> list[str]:
    """Why nothing leads to a service although the operator is to make it."""
    if not exposure.kind or annotations.get(keys.INGRESS_OFF) == "true":
        return []
    return [*_wrong(hosts(owner, exposure, annotations), exposure)]


def _wrong(found: list[str], exposure: Exposure) -> Iterator[str]:
    if not found:
        yield f"no {exposure.kind} is made: no domain is known, set exposure.domain of the chart, or {keys.INGRESS_DOMAIN}"
    for host in found:
        if not _HOST.fullmatch(host):
            where = f"{keys.INGRESS_TEMPLATE}, {keys.INGRESS_DOMAIN} or {keys.INGRESS_MORE}"
            yield f"no {exposure.kind} is made: {host!r} is no host: fix annotation {where}"


def _ingress(owner: meta.Owner, found: list[str], exposure: Exposure, labels: Mapping[str, str]) -> Manifest:
    backend = {"service": {"name": owner.name, "port": {"number": keys.SERVICE_PORT}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    spec: Manifest = {"rules": [{"host": host, "http": {"paths": paths}} for host in found]}
    if exposure.ingress_class:
        spec["ingressClassName"] = exposure.ingress_class
    return meta.manifest(owner, "networking.k8s.io/v1", INGRESS, owner.name, labels, {"spec": spec})


def _route(
    owner: meta.Owner,
    found: list[str],
    exposure: Exposure,
    labels: Mapping[str, str],
    weights: tuple[tuple[str, int], ...],
) -> Manifest:
    """With every value that the Gateway API would fill in, so that what is stored is what was applied."""
    namespace, _, name = exposure.gateway.rpartition("/")
    parent = {"group": GATEWAY_API, "kind": "Gateway", "name": name, "namespace": namespace or owner.namespace}
    service = {"group": "", "kind": "Service", "port": keys.SERVICE_PORT}
    backends = [{**service, "name": name, "weight": weight} for name, weight in weights]
    rule = {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": backends}
    spec = {"parentRefs": [parent], "hostnames": found, "rules": [rule]}
    return meta.manifest(owner, f"{GATEWAY_API}/v1", ROUTE, owner.name, labels, {"spec": spec})
