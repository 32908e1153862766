"""Check some seconds after the creation of a service whether its workloads lack pods.

If all pods exist, there is nothing to decide until the pods are bound to nodes. So a service is reconciled again only if
pods are missing.
"""

import random
import time
from collections.abc import Callable

from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.controllers.inferenceservice.memory import Memories, ServiceMemory
from ome_operator.core.observed.objects import Ref
from ome_operator.machinery.workqueue import WorkQueue


class FirstPods:
    """The services that were created in the last `after` seconds. After these seconds, `enqueue` is called for each service
    that lacks pods.
    """

    def __init__(
        self,
        cluster: ClusterCache,
        memories: Memories,
        enqueue: Callable[[Ref], None],
        after: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._memories, self._enqueue, self._after, self._clock = cluster, memories, enqueue, after, clock
        self._due: WorkQueue[Ref] = WorkQueue(workers=1, first=after, last=after, jitter=random.random, clock=clock)

    def expect(self, ref: Ref, memory: ServiceMemory) -> None:
        """Schedule a check of a service whose workloads have just been created."""
        self._count(ref, memory)
        self._due.add(ref, self._after)

    async def run(self) -> None:
        """Check services without end."""
        await self._due.run(self._check)

    async def _check(self, ref: Ref) -> None:
        self._due.forget(ref)  # otherwise its last run would be kept forever
        resource = self._cluster.find_resource(ref)
        if resource is None or resource.deleting:
            return
        memory = self._memories.memory_of(resource)
        self._count(ref, memory)
        if memory.missing:
            self._enqueue(ref)

    def _count(self, ref: Ref, memory: ServiceMemory) -> None:
        children = self._cluster.children_of(ref.namespace, ref.name)
        memory.count(children, self._cluster.pods_of(ref.namespace, ref.name), self._clock())
