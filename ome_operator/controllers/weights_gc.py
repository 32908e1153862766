"""Permit agents to delete directories of weights to which no stored revision and no pod refers (decisions 7), and tell the
agents which directories starting pods read.

An agent can determine which directories no model names. It cannot determine which directories a rollback needs, or which
directories a pod has open. Therefore an agent offers directories for deletion, and deletes only those that the operator
names in the spec of the agent's record. The agent cannot write this spec.
"""

import logging

from ome_operator import keys
from ome_operator.cache.cluster_cache import RECORD, ClusterCache
from ome_operator.core.observed.objects import Manifest, NodeRecord, UnusedWeights
from ome_operator.core.weights.mount import any_inside, host_directories
from ome_operator.kube.client import Client

logger = logging.getLogger(__name__)

ENDED = ("Succeeded", "Failed")


class WeightsGC:
    """Answers agents that offer directories of weights for deletion."""

    def __init__(self, cluster: ClusterCache, client: Client) -> None:
        self._cluster, self._client = cluster, client

    async def answer(self, record: NodeRecord, starting: tuple[str, ...] = (), *, frozen: bool = False) -> None:
        """Write into the spec of an agent's record which of the offered directories may be deleted now, and the directories
        `starting`, whose weights the agent should read into the page cache. If `frozen` is true, no directory may be
        deleted, and earlier permissions are withdrawn. Raises KubeError if a request fails.

        Pods are read live, because a file that a pod has open cannot be restored. Stored revisions are read from the cache,
        because a wrong answer about a revision costs only a download.
        """
        free = [] if frozen else [unused for unused in record.unused if unused.offer and not self._kept(unused)]
        if free:
            mounted = await self._mounted(record.node)
            free = [unused for unused in free if not any_inside(mounted, (unused.directory, *unused.paths))]
        allowed = frozenset((unused.directory, unused.offer) for unused in free)
        if (allowed, starting) == (record.remove, record.prefetch or ()):
            return
        spec: Manifest = {"remove": [{"directory": place, "offer": offer} for place, offer in sorted(allowed)]}
        if starting:  # in the same request, because an apply removes the fields that it does not contain
            spec["prefetch"] = list(starting)
        manifest = {"apiVersion": keys.API_VERSION, "kind": RECORD, "metadata": {"name": record.node}, "spec": spec}
        await self._client.apply(manifest, record.uid)
        for place, _ in sorted(allowed - record.remove):
            logger.info(
                "node %s may remove %s, because no model, revision or pod refers to this directory", record.node, place
            )

    def _kept(self, offered: UnusedWeights) -> bool:
        """Return whether the offered directory must be kept, because a stored revision of some service has pods that mount
        it.
        """
        return self._cluster.mounts.is_mounted((offered.directory, *offered.paths))

    async def _mounted(self, node: str) -> set[str]:
        """Return the directories of a node that its pods mount now."""
        pods = await self._client.list_objects("Pod", field_selector=f"spec.nodeName={node}")
        alive = (pod for pod in pods if (pod.get("status") or {}).get("phase") not in ENDED)
        return {place for pod in alive for place in host_directories(pod.get("spec") or {})}
