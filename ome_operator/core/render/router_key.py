"""Add an API key to the control plane of a service's routers. Without a key, every client that may send prompts could
also register a worker, and thereby receive the prompts of other clients.

The key is a variable from a Secret that the operator creates for the service and never reads, as it does for SSH keys
(decisions 20). The router's pod spec contains only a reference to the variable. The worker registry gets the same variable.
"""

from ome_operator import keys, names
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.render import meta
from ome_operator.core.render.pod_template import add_env
from ome_operator.engines.routers import CONTROL_KEYS

REFERENCE = f"$({keys.ROUTER_KEY_VARIABLE})"
ARGUMENT = f"{CONTROL_KEYS}=ome:registry:admin:{REFERENCE}"
"""The router's argument with the key, in its format `id:name:role:key`."""


def with_key(container: Manifest, service: str) -> Manifest:
    """Return the router's container with the key. If the user sets the variable `OME_ROUTER_KEY`, its value is the key."""
    source = {"secretKeyRef": {"name": names.router_key(service), "key": keys.ROUTER_KEY_FIELD}}
    configured = add_env(container, [{"name": keys.ROUTER_KEY_VARIABLE, "valueFrom": source}])
    return {**configured, "args": [*(container.get("args") or ()), ARGUMENT]}


def variable(container: Manifest) -> Manifest | None:
    """Return the variable that holds the key, or None if the router does not use the operator's key."""
    if ARGUMENT not in (container.get("args") or ()):
        return None
    key: Manifest = next(item for item in container["env"] if item["name"] == keys.ROUTER_KEY_VARIABLE)
    return key


def secret(owner: meta.Owner, deployment: Manifest) -> Manifest | None:
    """Return the Secret to which a router's Deployment refers for the key, without its data; None if the Deployment
    refers to none.
    """
    name = names.router_key(owner.name)
    key = variable(deployment["spec"]["template"]["spec"]["containers"][0]) or {}
    if ((key.get("valueFrom") or {}).get("secretKeyRef") or {}).get("name") != name:
        return None
    body = {"type": keys.ROUTER_KEY_SECRET}
    return meta.manifest(owner, "v1", "Secret", name, meta.labels(owner.name, keys.ROUTER), body)
