"""The key for the control plane of a service's routers: without it whoever may send a prompt may redirect others'.

The key is a variable from a Secret that is made for the service and never read, as for SSH (decisions 20). The router's pod
spec names the variable only. The registry gets the same variable.
"""

from ome_operator import keys, names
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.render import meta
from ome_operator.core.render.pod_template import add_env
from ome_operator.engines.routers import CONTROL_KEYS

REFERENCE = f"$({keys.ROUTER_KEY_VARIABLE})"
ARGUMENT = f"{CONTROL_KEYS}=ome:registry:admin:{REFERENCE}"
"""`id:name:role:key`, as the router reads it."""


def given(container: Manifest, service: str) -> Manifest:
    """A router that takes the key; a variable of that name which the user has set is the key."""
    source = {"secretKeyRef": {"name": names.router_key(service), "key": keys.ROUTER_KEY_FIELD}}
    with_key = add_env(container, [{"name": keys.ROUTER_KEY_VARIABLE, "valueFrom": source}])
    return {**with_key, "args": [*(container.get("args") or ()), ARGUMENT]}


def variable(container: Manifest) -> Manifest | None:
    """The variable with the key of a router that has our key."""
    if ARGUMENT not in (container.get("args") or ()):
        return None
    found: Manifest = next(item for item in container["env"] if item["name"] == keys.ROUTER_KEY_VARIABLE)
    return found


def secret(owner: meta.Owner, deployment: Manifest) -> Manifest | None:
    """The Secret that a router's Deployment refers to, without its data."""
    name = names.router_key(owner.name)
    found = variable(deployment["spec"]["template"]["spec"]["containers"][0]) or {}
    if ((found.get("valueFrom") or {}).get("secretKeyRef") or {}).get("name") != name:
        return None
    body = {"type": keys.ROUTER_KEY_SECRET}
    return meta.manifest(owner, "v1", "Secret", name, meta.labels(owner.name, keys.ROUTER), body)
