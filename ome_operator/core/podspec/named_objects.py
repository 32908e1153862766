"""Find the objects without which the containers of a pod do not start: claims, Secrets, ConfigMaps."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

CLAIM, SECRET, CONFIG_MAP = "PersistentVolumeClaim", "Secret", "ConfigMap"
_IN_ENV = {"configMapKeyRef": CONFIG_MAP, "secretKeyRef": SECRET, "configMapRef": CONFIG_MAP, "secretRef": SECRET}
_IN_VOLUMES = {
    "persistentVolumeClaim": (CLAIM, "claimName"),
    "configMap": (CONFIG_MAP, "name"),
    "secret": (SECRET, "secretName"),
}
_PROJECTED = {"configMap": CONFIG_MAP, "secret": SECRET}


def references(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield kind and name of each object that must exist before the containers of a pod start. Optional references are left
    out, and so are `imagePullSecrets`, without which the kubelet pulls anonymously.
    """
    for volume in pod.get("volumes") or ():
        yield from _required((kind, volume.get(field), key) for field, (kind, key) in _IN_VOLUMES.items())
        for source in (volume.get("projected") or {}).get("sources") or ():
            yield from _required((kind, source.get(field), "name") for field, kind in _PROJECTED.items())
    for container in (*(pod.get("initContainers") or ()), *(pod.get("containers") or ())):
        sources = [each.get("valueFrom") or {} for each in container.get("env") or ()]
        for source in (*sources, *(container.get("envFrom") or ())):
            yield from _required((kind, source.get(field), "name") for field, kind in _IN_ENV.items())


def _required(found: Iterable[tuple[str, Mapping[str, Any] | None, str]]) -> Iterator[tuple[str, str]]:
    for kind, source, key in found:
        if source and source.get(key) and not source.get("optional"):
            yield kind, source[key]
