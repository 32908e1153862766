"""Mount SSH keys in pods that request them by annotation, from a Secret that the operator creates for the service
(decisions 20).

The stored template names the Secret. The operator creates it while pods of that template are not ready, and never reads it.
"""

from collections.abc import Mapping

from ome_operator import keys, names
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.render import meta

MODE = 0o400
"""File mode of the keys. SSH rejects private keys that other users can read."""


def inject_ssh(pod: Manifest, annotations: Mapping[str, str], service: str) -> Manifest:
    """Return the pod spec with a volume of the SSH keys of the service `service`. An annotation contains the name of the
    volume. The pod spec is unchanged without the annotation, or if it already has a volume of this name.
    """
    name, volumes = annotations.get(keys.SSH_KEYS), pod.get("volumes") or []
    if not name or any(volume["name"] == name for volume in volumes):
        return pod
    source = {"secretName": names.ssh_secret(service), "defaultMode": MODE}
    return {**pod, "volumes": [*volumes, {"name": name, "secret": source}]}


def secret(owner: meta.Owner, template: Manifest) -> Manifest | None:
    """Return the Secret for the SSH volume of a pod template, without its data; None if the template requests no keys."""
    requested = (template["metadata"].get("annotations") or {}).get(keys.SSH_KEYS)
    for volume in template["spec"].get("volumes") or ():
        if volume["name"] == requested and "secret" in volume:
            name, body = volume["secret"]["secretName"], {"type": keys.SSH_SECRET}
            return meta.manifest(owner, "v1", "Secret", name, meta.labels(owner.name), body)
    return None


def advice(template: Manifest) -> tuple[str, ...]:
    """Return a sentence if a pod template requests SSH keys but no container mounts them."""
    requested = (template["metadata"].get("annotations") or {}).get(keys.SSH_KEYS)
    mounts = [mount for box in template["spec"]["containers"] for mount in box.get("volumeMounts") or ()]
    if not requested or any(mount["name"] == requested for mount in mounts):
        return ()
    return (f"annotation {keys.SSH_KEYS}: no container mounts the volume {requested!r}: add it to volumeMounts",)
