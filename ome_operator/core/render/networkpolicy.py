"""NetworkPolicies of a service, where the operator was told to make them: who may reach which of its pods.

Engines hear only pods of their service. Routers hear everybody on the port that people use, and the operator on that of the
registry. Policies add up: whoever else has to reach a pod, such as a Prometheus, gets a policy of its own.
Kubelets always may.
"""

from ome_operator import keys, names
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.render import meta
from ome_operator.util.memoize import memoize_by_identity

NAMESPACE = "kubernetes.io/metadata.name"
"""Label of every namespace, written by the API server."""


@memoize_by_identity(1024)
def policies(owner: meta.Owner, ports: tuple[tuple[str, int], ...], front: str, operator: str) -> list[Manifest]:
    """A policy for each component. `front`: the component behind the URL. `operator`: its namespace, "" for no policies."""
    return [_policy(owner, name, port, name == front, operator) for name, port in ports] if operator else []


def _policy(owner: meta.Owner, component: str, port: int, front: bool, operator: str) -> Manifest:
    """Ingress only: what pods may ask for is nobody's business here."""
    allowed: list[Manifest] = [{"from": [{"podSelector": {"matchLabels": meta.labels(owner.name)}}]}]
    if front or component == keys.ROUTER:
        allowed.append({"ports": [_tcp(port)]})
    if component == keys.ROUTER:
        here = {"namespaceSelector": {"matchLabels": {NAMESPACE: operator}}}
        allowed.append({"from": [here], "ports": [_tcp(keys.REGISTRY_PORT)]})
    labels = meta.labels(owner.name, component)
    spec = {"podSelector": {"matchLabels": labels}, "policyTypes": ["Ingress"], "ingress": allowed}
    name = names.component(owner.name, component)
    return meta.manifest(owner, "networking.k8s.io/v1", "NetworkPolicy", name, labels, {"spec": spec})


def _tcp(port: int) -> Manifest:
    return {"protocol": "TCP", "port": port}
