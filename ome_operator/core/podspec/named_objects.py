"""Find the claims, Secrets and ConfigMaps without which the containers of a pod do not start."""

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
    for volume in _maps(pod, "volumes"):
        yield from _required((kind, volume.get(field), key) for field, (kind, key) in _IN_VOLUMES.items())
        for part in _maps(volume.get("projected"), "sources"):
            yield from _required((kind, part.get(field), "name") for field, kind in _PROJECTED.items())
    for container in (*_maps(pod, "initContainers"), *_maps(pod, "containers")):
        values = (variable.get("valueFrom") for variable in _maps(container, "env"))
        for source in (*values, *_maps(container, "envFrom")):
            if isinstance(source, Mapping):
                yield from _required((kind, source.get(field), "name") for field, kind in _IN_ENV.items())


def _maps(value: Any, field: str) -> Iterator[Mapping[str, Any]]:
    """Yield the maps in the list at a field. Other values are left out. A user may have written anything there; in this
    case, the API server refuses the pod, and `ome lint` names the field.
    """
    found = value.get(field) if isinstance(value, Mapping) else None
    yield from (entry for entry in found if isinstance(entry, Mapping)) if isinstance(found, list | tuple) else ()


def _required(found: Iterable[tuple[str, Any, str]]) -> Iterator[tuple[str, str]]:
    for kind, source, key in found:
        if isinstance(source, Mapping) and isinstance(name := source.get(key), str) and name and not source.get("optional"):
            yield kind, name
