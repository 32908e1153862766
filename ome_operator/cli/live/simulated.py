"""Determine which nodes kwok simulates. Pods on these nodes run no process, so nothing can be checked or read there."""

from collections.abc import Iterable, Mapping
from typing import Any

from ome_operator.kube.client import Client
from ome_operator.kube.listing import list_all

LABEL, VALUE = "type", "kwok"


def simulated_nodes(nodes: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the names of those nodes among `nodes` that kwok simulates."""
    return frozenset(
        node["metadata"]["name"] for node in nodes if (node["metadata"].get("labels") or {}).get(LABEL) == VALUE
    )


async def read_simulated_nodes(client: Client) -> frozenset[str]:
    """Return the names of all simulated nodes. The result is empty if the user may not read nodes. Raises KubeError for
    other errors.
    """
    return simulated_nodes(await list_all(client, ("Node",), selector=f"{LABEL}={VALUE}", optional=("Node",)))
