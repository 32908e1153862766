"""Lists of several kinds at once, for commands that look once."""

import asyncio
from collections.abc import Collection, Iterable

from ome_operator.kube.client import Client, Manifest
from ome_operator.kube.errors import Forbidden, NotServed
from ome_operator.kube.resources import RESOURCES, spelled


async def listed(
    client: Client, kinds: Iterable[str], namespace: str = "", selector: str = "", *, optional: Collection[str] = ()
) -> list[Manifest]:
    """All objects of these kinds, each with its kind, but not of kinds that this cluster does not serve.

    What this person may not list is an error, except of `optional` kinds.
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
        return [{"apiVersion": RESOURCES[kind].api_version, "kind": spelled(kind), **body} for body in found]

    return [body for bodies in await asyncio.gather(*map(of, kinds)) for body in bodies]


async def listed_around(
    client: Client, kinds: Collection[str], namespaces: Iterable[str], *, optional: Collection[str] = ()
) -> list[Manifest]:
    """Of these kinds all that is cluster-wide, and the rest in these namespaces ("" for everywhere)."""
    there = await listed(client, [kind for kind in kinds if not RESOURCES[kind].namespaced], optional=optional)
    for namespace in namespaces:
        there += await listed(client, [kind for kind in kinds if RESOURCES[kind].namespaced], namespace, optional=optional)
    return there
