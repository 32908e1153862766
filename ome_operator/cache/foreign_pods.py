"""What pods that are not ours hold on nodes: read live where a try failed, and remembered for some minutes.

No watch of every pod in the cluster. Nodes are read one after the other, at most `MOST` after a try.
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
"""Seconds for which an answer counts: nobody tells when such a pod goes."""
FRESH = 10.0
"""Seconds in which nothing is read again: a pass may come again before its status tells that the try is over."""
MOST = 100
"""Nodes that are read after a try, and at once."""
ENDED = ("Succeeded", "Failed")


class ForeignPods:
    """`counted` says whether a pod counts as ours."""

    def __init__(self, client: Client, clock: Callable[[], float], counted: Callable[[Mapping[str, Any]], bool]) -> None:
        self._client, self._clock, self._counted = client, clock, counted
        self._held: dict[str, tuple[float, Mapping[str, int]]] = {}
        self._moved: set[str] = set()

    def on(self, node: str) -> Mapping[str, int]:
        """Amounts by resource; {} where nobody looked lately."""
        return self._held[node][1] if node in self._held else {}

    def known(self, seconds: float = 0.0) -> set[str]:
        """Nodes where somebody looked lately, and whose answer counts for so long from now on."""
        return {node for node, (until, _) in self._held.items() if until >= self._clock() + seconds}

    def moved(self) -> set[str]:
        """Nodes of which something else is known than at the last call."""
        for node in [node for node, (until, _) in self._held.items() if until < self._clock()]:
            del self._held[node]
            self._moved.add(node)
        moved, self._moved = self._moved, set()
        return moved

    async def read(self, nodes: Iterable[str]) -> bool:
        """Look at nodes; an API server that refuses costs the answer. Whether there are more that nobody looked at."""
        read_lately = self._clock() + KEPT - FRESH
        old = [node for node in nodes if self._held.get(node, (0.0, {}))[0] < read_lately]
        for node in old[:MOST]:
            try:
                pods = await self._client.list_objects("Pod", field_selector=f"spec.nodeName={node}")
            except KubeError as error:
                logger.info("cannot read the pods of node %s: %s", node, error)
                return False
            self._held[node] = self._clock() + KEPT, held(pods, self._counted)
            self._moved.add(node)
        return len(old) > MOST


def held(pods: Iterable[Mapping[str, Any]], counted: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, int]:
    """What pods hold that are not counted otherwise."""
    found: Counter[str] = Counter()
    for pod in pods:
        ended = (pod.get("status") or {}).get("phase") in ENDED
        if not ended and not counted(pod):
            found.update(dict(requests(pod.get("spec") or {})))
    return found
