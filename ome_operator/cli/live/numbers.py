"""Reads services with the metrics that their routers report now."""

from datetime import UTC, datetime
from typing import NamedTuple

from ome_operator.cli.live.simulated import simulated_nodes
from ome_operator.cli.live.summaries import ReadPage, summaries
from ome_operator.cli.live.trees import services
from ome_operator.core.observed.nodes import node
from ome_operator.core.observed.objects import Node
from ome_operator.core.observed.traffic import traffic
from ome_operator.describe.top import ServiceWithNumbers
from ome_operator.describe.tree import tree
from ome_operator.kube.client import Client
from ome_operator.kube.errors import Forbidden


class Nodes(NamedTuple):
    """The nodes of the cluster; empty if the user may not list nodes."""

    nodes: tuple[Node, ...]
    simulated: frozenset[str]
    """Names of the nodes on which no process runs."""


class ServicesWithNumbers(NamedTuple):
    """Services with the metrics that their routers report."""

    services: list[ServiceWithNumbers]
    missing_reports: dict[str, str]
    """Maps the UID of the pod of each ready router without a report to the reason why there is no report."""


async def nodes(client: Client) -> Nodes:
    """Return the nodes; no nodes if the user may not list them. Raises KubeError if the request fails for another reason."""
    try:
        bodies = await client.list_objects("Node")
    except Forbidden:
        return Nodes((), frozenset())
    return Nodes(tuple(map(node, bodies)), simulated_nodes(bodies))


async def read_service_numbers(
    client: Client, page: ReadPage, namespace: str, service: str, simulated: frozenset[str] = frozenset()
) -> ServicesWithNumbers:
    """Return one service, or all services in a namespace ("" for all namespaces), with the metrics that their routers
    report now. Raises KubeError if a request fails, and NotFound if the named service does not exist.
    """
    found = await services(client, namespace, service)
    summarized = await summaries(page, (pod for _, observed in found for pod in observed.pods), simulated)
    now = datetime.now(UTC).timestamp()
    return ServicesWithNumbers(
        [
            ServiceWithNumbers(body, tree(body, observed), observed.pods, traffic(summarized.reports, observed.pods, now))
            for body, observed in found
        ],
        summarized.missing_reports,
    )
