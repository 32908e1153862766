"""Determine which directories of weights an agent should read into the page cache: the directories of pods on its node whose
engines have not served yet (docs/models-agent.md, "Weights in the page cache").
"""

from collections.abc import Iterable

from ome_operator import keys
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.facts import has_served, pod_group
from ome_operator.cache.mounts import mounted_directories
from ome_operator.cache.owned import revision_of_pods
from ome_operator.core.observed.objects import Pod
from ome_operator.core.weights.mount import root_of

LISTED = 16
"""Maximum number of directories that are returned for a node."""


def starting_directories(cluster: ClusterCache, node: str, roots: tuple[str, ...]) -> tuple[str, ...]:
    """Return the directories below `roots` that pods on the node `node` mount and whose groups are starting; sorted, and at
    most `LISTED`.
    """
    found = set[str]()
    for pod in cluster.pods_on(node):
        if group_is_starting(pod, cluster.pods_of(*pod_group(pod))):
            found |= mounted_directories(revision_of_pods(cluster, *pod_group(pod), pod.revision), pod.component)
    return tuple(sorted(place for place in found if root_of(place, roots)))[:LISTED]


def group_is_starting(pod: Pod, pods: Iterable[Pod]) -> bool:
    """Return whether a pod belongs to a group that has not served since its leader's container started. `pods` are all pods
    of the service.

    A group serves when its leader is ready. The readiness of other ranks is not used: they have no probe, so they are ready
    before they have read the weights. A leader that served before and is not ready for a moment does not read the weights
    again.
    """
    if not pod.node or pod.component == keys.ROUTER or pod.deleting or pod.over:
        return False
    group = pod.component, pod.revision, pod.group
    return not any(
        has_served(each) for each in pods if each.rank == 0 and (each.component, each.revision, each.group) == group
    )
