"""Leave for agents to remove directories of weights: only those that no stored revision and no pod refers to (decisions 7).

An agent knows which directories no model names; it cannot know which of them a rollback needs or a pod has open, for it sees
neither. So it offers, and removes what we name in its record's spec, which it cannot write.
"""

import logging

from ome_operator import keys
from ome_operator.cache.cluster_cache import RECORD, ClusterCache
from ome_operator.core.observed.objects import Manifest, NodeRecord, Unused
from ome_operator.core.weights.mount import hosts, reaches
from ome_operator.kube.client import Client

logger = logging.getLogger(__name__)

ENDED = ("Succeeded", "Failed")


class WeightsGC:
    """Answers to what agents offer to remove."""

    def __init__(self, cluster: ClusterCache, client: Client) -> None:
        self._cluster, self._client = cluster, client

    async def answer(self, record: NodeRecord, *, frozen: bool = False) -> None:
        """Write into the record what may go now; raises KubeError. Pods are read live, for what they have open cannot be had
        again; stored revisions as they are known, for a wrong guess there costs a download. `frozen`: leave that was given
        is taken back.
        """
        free = [] if frozen else [one for one in record.unused if one.offer and not self._kept(one)]
        if free:
            mounted = await self._mounted(record.node)
            free = [one for one in free if not reaches(mounted, (one.directory, *one.paths))]
        allowed = frozenset((one.directory, one.offer) for one in free)
        if allowed == record.remove:
            return
        spec: Manifest = {"remove": [{"directory": place, "offer": offer} for place, offer in sorted(allowed)]}
        manifest = {"apiVersion": keys.API_VERSION, "kind": RECORD, "metadata": {"name": record.node}, "spec": spec}
        await self._client.apply(manifest, record.uid)
        for place, _ in sorted(allowed - record.remove):
            logger.info("node %s may remove %s: no model, no revision and no pod refers to it", record.node, place)

    def _kept(self, offered: Unused) -> bool:
        """Whether a stored revision of any service would mount it."""
        return self._cluster.mounts.reached((offered.directory, *offered.paths))

    async def _mounted(self, node: str) -> set[str]:
        """Directories of a node that its pods mount now."""
        pods = await self._client.list_objects("Pod", field_selector=f"spec.nodeName={node}")
        alive = (one for one in pods if (one.get("status") or {}).get("phase") not in ENDED)
        return {place for pod in alive for place in hosts(pod.get("spec") or {})}
