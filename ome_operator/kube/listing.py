"""List several kinds at once, for commands that read the cluster once, and check whether a namespace can be watched."""

import asyncio
from collections.abc import Collection, Iterable

from ome_operator.kube.client import Client, Manifest
from ome_operator.kube.errors import Forbidden, NotFound, NotServed
from ome_operator.kube.resources import RESOURCES, kind_of_resource


async def list_all(
    client: Client, kinds: Iterable[str], namespace: str = "", selector: str = "", *, optional: Collection[str] = ()
) -> list[Manifest]:
    """Return all objects of these kinds; the field `kind` is set in each of them. Kinds that the cluster does not serve are
    left out. The namespace "" stands for all namespaces, and an empty selector selects all objects.

    Raises Forbidden for a kind that the user may not list, unless the kind is in `optional`.
    """

    async def of(kind: str) -> list[Manifest]:
        try:
            found = await client.list_objects(kind, namespace, label_selector=selector)
        except NotServed:
            return []
        except Forbidden:
            if kind not in optional:
                raise
            return []
        return [{"apiVersion": RESOURCES[kind].api_version, "kind": kind_of_resource(kind), **body} for body in found]

    return [body for bodies in await asyncio.gather(*map(of, kinds)) for body in bodies]


async def listed_around(
    client: Client, kinds: Collection[str], namespaces: Iterable[str], *, optional: Collection[str] = ()
) -> list[Manifest]:
    """Return the cluster-wide objects of these kinds, and the namespaced objects in these namespaces ("" for all)."""
    there = await list_all(client, [kind for kind in kinds if not RESOURCES[kind].namespaced], optional=optional)
    for namespace in namespaces:
        there += await list_all(client, [kind for kind in kinds if RESOURCES[kind].namespaced], namespace, optional=optional)
    return there


async def why_unwatchable(client: Client, namespace: str) -> str:
    """Return the reason why a namespace cannot be watched; "" if it exists and the operator has rights there. Raises
    KubeError if the answer is not known.

    An operator with rights in some namespaces only cannot distinguish an absent namespace from a namespace in which it has
    no rights.
    """
    try:
        await client.get("Namespace", "", namespace)
    except NotFound:
        return "the namespace does not exist; it is watched as soon as it is created"
    except Forbidden:
        return (
            "the namespace does not exist, or has no RoleBinding for this operator: create the namespace, and install "
            "the chart again"
        )
    return ""
