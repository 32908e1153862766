"""Checks on a cluster whether the claims, Secrets and ConfigMaps exist without which pods do not start."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ome_operator.core.observed.objects import Ref
from ome_operator.core.podspec.named_objects import SECRET, references
from ome_operator.describe.outcome import TargetOutcome
from ome_operator.kube.client import Client
from ome_operator.kube.errors import KubeError, NotFound


async def find_missing_references(client: Client, after: TargetOutcome, namespace: str, made: Collection[Ref]) -> list[str]:
    """Return a sentence for each object that the pods of a service need and that does not exist. `made` names the objects
    that the user's files create. Nothing is said about objects that the user may not read.
    """
    own = {Ref(body["kind"], namespace, body["metadata"]["name"]) for body in after.manifests}
    own |= {Ref(SECRET, namespace, name) for name in after.generated}
    specs = [body["spec"]["template"]["spec"] for body in after.manifests if body["kind"] in ("StatefulSet", "Deployment")]
    return await absent(client, namespace, specs, own | set(made))


async def absent(
    client: Client, namespace: str, specs: Iterable[Mapping[str, Any]], made: Collection[Ref] = ()
) -> list[str]:
    """Return a sentence for each object that these pod specs need and that does not exist. Objects in `made` count as
    existing. Nothing is said about objects that the user may not read.
    """
    needed = {Ref(kind, namespace, name) for spec in specs for kind, name in references(spec)}
    return [
        f"{which.kind} {which.name} does not exist in namespace {namespace}, so the pods that name it do not start: create "
        f"it, or name another {which.kind}"
        for which in sorted(needed - set(made))
        if not await object_exists(client, which)
    ]


async def object_exists(client: Client, which: Ref) -> bool:
    """Return whether an object exists. Return True if the user may not read the object."""
    try:
        await client.get_metadata(*which)
    except NotFound:
        return False
    except KubeError:
        return True
    return True
