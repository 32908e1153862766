"""The objects without which the containers of a pod do not start: claims, Secrets, ConfigMaps."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ome_operator.core.observed.objects import Ref
from ome_operator.describe.outcome import Outcome
from ome_operator.kube.client import Client
from ome_operator.kube.errors import KubeError, NotFound

CLAIM, SECRET, CONFIG_MAP = "PersistentVolumeClaim", "Secret", "ConfigMap"
_IN_ENV = {"configMapKeyRef": CONFIG_MAP, "secretKeyRef": SECRET, "configMapRef": CONFIG_MAP, "secretRef": SECRET}
_IN_VOLUMES = {
    "persistentVolumeClaim": (CLAIM, "claimName"),
    "configMap": (CONFIG_MAP, "name"),
    "secret": (SECRET, "secretName"),
}
_PROJECTED = {"configMap": CONFIG_MAP, "secret": SECRET}


async def missing(client: Client, after: Outcome, namespace: str, made: Collection[Ref]) -> list[str]:
    """Return a sentence for each object that the pods of a service need and that does not exist. `made` names the objects
    that the user's files create. Nothing is said about objects that the user may not read.
    """
    own = {Ref(body["kind"], namespace, body["metadata"]["name"]) for body in after.manifests}
    own |= {Ref(SECRET, namespace, name) for name in after.generated}
    specs = [body["spec"]["template"]["spec"] for body in after.manifests if body["kind"] in ("StatefulSet", "Deployment")]
    needed = {Ref(kind, namespace, name) for spec in specs for kind, name in references(spec)}
    return [
        f"{which.kind} {which.name} does not exist in namespace {namespace}, so the pods that name it do not start: create "
        "it, or name another"
        for which in sorted(needed - own - set(made))
        if not await _exists(client, which)
    ]


async def _exists(client: Client, which: Ref) -> bool:
    try:
        await client.get_metadata(*which)
    except NotFound:
        return False
    except KubeError:
        return True
    return True


def references(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield kind and name of each object that must exist before the containers of a pod start. Optional references are left
    out. `imagePullSecrets` are also left out, because the kubelet pulls anonymously without them.
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
