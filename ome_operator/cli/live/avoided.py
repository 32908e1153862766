"""Read which nodes the operator avoids, from its NodeFaults."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ome_operator.core.badnodes.record import KIND, avoided_by
from ome_operator.kube.client import Client
from ome_operator.kube.errors import Forbidden, NotServed


class AvoidedNodes(NamedTuple):
    """The nodes on which no new groups are placed, each with the status of its NodeFaults."""

    statuses: Mapping[str, Mapping[str, Any]]

    @property
    def nodes(self) -> dict[str, str]:
        """Return a mapping from the name of each avoided node to a text that states by whom and why the node is avoided."""
        return {name: str(status["avoided"]) for name, status in self.statuses.items()}

    def nodes_avoided_in(self, namespace: str) -> set[str]:
        """Return the names of the nodes on which no new groups of a namespace's services are placed."""
        return {name for name, status in self.statuses.items() if avoided_by(status, namespace)}


def parse_avoided_nodes(bodies: Iterable[Mapping[str, Any]]) -> AvoidedNodes:
    """Return the avoided nodes of these NodeFaults."""
    statuses = {body["metadata"]["name"]: body.get("status") or {} for body in bodies}
    return AvoidedNodes({name: status for name, status in statuses.items() if status.get("avoided")})


async def read_avoided_nodes(client: Client) -> AvoidedNodes:
    """Return the avoided nodes. The result has no nodes if the user may not read NodeFaults, or if the cluster does not
    serve this kind.
    """
    try:
        return parse_avoided_nodes(await client.list_objects(KIND))
    except (Forbidden, NotServed):
        return AvoidedNodes({})
