"""SSH keys for pods that ask for them by annotation: a volume from a Secret that is made for the service (decisions 20).

The stored template names the Secret. The operator makes it while pods of that template are not ready, and never reads it.
"""

from collections.abc import Mapping

from ome_operator import keys, names
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.render import meta

MODE = 0o400
"""SSH refuses private keys that others may read."""


def inject(pod: Manifest, annotations: Mapping[str, str], service: str) -> Manifest:
    """The pod spec with the volume that the annotation names, unless it has one of that name."""
    name, volumes = annotations.get(keys.SSH_KEYS), pod.get("volumes") or []
    if not name or any(one["name"] == name for one in volumes):
        return pod
    source = {"secretName": names.ssh_secret(service), "defaultMode": MODE}
    return {**pod, "volumes": [*volumes, {"name": name, "secret": source}]}


def secret(owner: meta.Owner, template: Manifest) -> Manifest | None:
    """The Secret behind the volume of a pod template that asks for one, without its data."""
    wanted = (template["metadata"].get("annotations") or {}).get(keys.SSH_KEYS)
    for one in template["spec"].get("volumes") or ():
        if one["name"] == wanted and "secret" in one:
            name, body = one["secret"]["secretName"], {"type": keys.SSH_SECRET}
            return meta.manifest(owner, "v1", "Secret", name, meta.labels(owner.name), body)
    return None


def advice(template: Manifest) -> tuple[str, ...]:
    """What is wrong with the annotation of a pod template."""
    wanted = (template["metadata"].get("annotations") or {}).get(keys.SSH_KEYS)
    mounts = [one for box in template["spec"]["containers"] for one in box.get("volumeMounts") or ()]
    if not wanted or any(one["name"] == wanted for one in mounts):
        return ()
    return (f"annotation {keys.SSH_KEYS}: no container mounts the volume {wanted!r}: add it to volumeMounts",)
