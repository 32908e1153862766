"""Read the resource requests of foreign pods from the API server after a failed placement attempt, and cache them for some
minutes. Foreign pods are pods that do not belong to services of the operator.

The operator does not watch all pods of a cluster. Nodes are read one after the other, at most `MOST` nodes after each
attempt.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ome_operator.core.placement.demand import requests
from ome_operator.kube.client import Client
from ome_operator.kube.errors import KubeError

logger = logging.getLogger(__name__)

KEPT = 300.0
"""Seconds for which the result for a node is used. The time is limited because the operator does not watch foreign pods,
so it does not notice when they end."""
FRESH = 10.0
"""Seconds during which a node is not read again. The pause is needed because a reconciliation may repeat before the
status records the end of the placement attempt."""
MOST = 100
"""Maximum number of nodes that are read in one batch."""
ENDED = ("Succeeded", "Failed")


class ForeignPods:
    """Resource requests of foreign pods by node, cached for `KEPT` seconds. `counted` returns whether the cache already
    counts a pod as a pod of the operator, so that it is not foreign.
    """

    def __init__(self, client: Client, clock: Callable[[], float], counted: Callable[[Mapping[str, Any]], bool]) -> None:
        self._client, self._clock, self._counted = client, clock, counted
        self._held: dict[str, tuple[float, Mapping[str, int]]] = {}
        self._moved: set[str] = set()

    def requests_on(self, node: str) -> Mapping[str, int]:
        """Return the amounts that foreign pods request on a node, by resource; {} if the node was not read recently."""
        return self._held[node][1] if node in self._held else {}

    def recently_read_nodes(self, seconds: float = 0.0) -> set[str]:
        """Return the nodes that were read recently and whose result is still valid `seconds` seconds from now."""
        return {node for node, (until, _) in self._held.items() if until >= self._clock() + seconds}

    def pop_changed_nodes(self) -> set[str]:
        """Return the nodes whose result has changed or expired since the last call."""
        for node in [node for node, (until, _) in self._held.items() if until < self._clock()]:
            del self._held[node]
            self._moved.add(node)
        moved, self._moved = self._moved, set()
        return moved

    async def read_nodes(self, nodes: Iterable[str]) -> bool:
        """Read the pods of those nodes that were not read recently, at most `MOST` nodes. Return True if further nodes
        remain to be read. After an error of the API server the remaining nodes are not read.
        """
        read_lately = self._clock() + KEPT - FRESH
        old = [node for node in nodes if self._held.get(node, (0.0, {}))[0] < read_lately]
        for node in old[:MOST]:
            try:
                pods = await self._client.list_objects("Pod", field_selector=f"spec.nodeName={node}")
            except KubeError as error:
                logger.info("cannot read the pods of node %s: %s", node, error)
                return False
            self._held[node] = self._clock() + KEPT, total_requests(pods, self._counted)
            self._moved.add(node)
        return len(old) > MOST


def total_requests(pods: Iterable[Mapping[str, Any]], counted: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, int]:
    """Return the total resource requests of running pods for which `counted` is False, by resource."""
    found: Counter[str] = Counter()
    for pod in pods:
        ended = (pod.get("status") or {}).get("phase") in ENDED
        if not ended and not counted(pod):
            found.update(dict(requests(pod.get("spec") or {})))
    return found
