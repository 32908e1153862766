"""Read which nodes the operator avoids, from its NodeFaults."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ome_operator.core.badnodes.record import BY_ALL, KIND, by
from ome_operator.kube.client import Client
from ome_operator.kube.errors import Forbidden, NotServed


class AvoidedNodes(NamedTuple):
    """The nodes on which no new groups are placed, each with the text of `status.avoided`."""

    nodes: Mapping[str, str]

    def of(self, namespace: str) -> set[str]:
        """Return the nodes that services of a namespace do not use."""
        mine = by(namespace)
        return {name for name, said in self.nodes.items() if said.startswith(BY_ALL) or mine in said}


def read(bodies: Iterable[Mapping[str, Any]]) -> AvoidedNodes:
    """Return the avoided nodes of these NodeFaults."""
    said = {body["metadata"]["name"]: str((body.get("status") or {}).get("avoided") or "") for body in bodies}
    return AvoidedNodes({name: text for name, text in said.items() if text})


async def avoided(client: Client) -> AvoidedNodes:
    """Return the avoided nodes; none if the user may not read NodeFaults, or if the cluster has no such kind."""
    try:
        return read(await client.list_objects(KIND))
    except (Forbidden, NotServed):
        return AvoidedNodes({})
