"""Render the NetworkPolicies of a service, which determine which pods may connect to its pods. The operator's options
have to enable them.

Engines accept connections only from pods of their service. Routers accept connections from everywhere on the serving port,
and from the operator's namespace on the port of the worker registry. NetworkPolicies are additive: to admit another client,
such as a Prometheus, users create their own policy. The kubelet is always admitted.
"""

from ome_operator import keys, names
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.render import meta
from ome_operator.util.memoize import memoize_by_identity

NAMESPACE = "kubernetes.io/metadata.name"
"""Label whose value is the namespace's name. The API server sets it on every namespace."""


@memoize_by_identity(1024)
def policies(
    owner: meta.Owner, ports: tuple[tuple[str, int], ...], front: str, operator: str, answered: bool = False
) -> list[Manifest]:
    """Return one policy for each component.

    `ports` lists the components and their serving ports, `front` is the component behind the service's URL, and `operator`
    is the operator's namespace; "" disables policies. `answered` states whether the registries of routers answer requests,
    because no engine runs.
    """
    return [_policy(owner, name, port, name == front, operator, answered) for name, port in ports] if operator else []


def _policy(owner: meta.Owner, component: str, port: int, front: bool, operator: str, answered: bool) -> Manifest:
    """Return the policy of one component. It restricts ingress only; egress of the pods stays unrestricted. `front` states
    whether the URL of the service leads to the component, and `answered` whether the registries of routers answer requests.
    `port` is the port at which the component serves HTTP.
    """
    allowed: list[Manifest] = [{"from": [{"podSelector": {"matchLabels": meta.labels(owner.name)}}]}]
    if front or component == keys.ROUTER:
        answers = [_tcp(keys.ANSWER_PORT)] if answered and component == keys.ROUTER else []
        allowed.append({"ports": [_tcp(port), *answers]})
    if component == keys.ROUTER:
        here = {"namespaceSelector": {"matchLabels": {NAMESPACE: operator}}}
        allowed.append({"from": [here], "ports": [_tcp(keys.REGISTRY_PORT)]})
    labels = meta.labels(owner.name, component)
    spec = {"podSelector": {"matchLabels": labels}, "policyTypes": ["Ingress"], "ingress": allowed}
    name = names.component(owner.name, component)
    return meta.manifest(owner, "networking.k8s.io/v1", "NetworkPolicy", name, labels, {"spec": spec})


def _tcp(port: int) -> Manifest:
    return {"protocol": "TCP", "port": port}
