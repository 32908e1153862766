"""Sample the metrics of each service once a minute for `status.traffic`, concurrently with the reconciliations.

A reconciliation reads the last sample and not the newest metrics. So changing values change the status at most once a
minute, even if there are many reconciliations.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.resources import Resource
from ome_operator.core.observed.objects import Pod, Ref
from ome_operator.core.observed.telemetry import RouterReport
from ome_operator.core.observed.traffic import traffic
from ome_operator.core.status.traffic import PAUSE, next_traffic, traffic_status
from ome_operator.machinery.background import PACER, repeat
from ome_operator.util.wall_clock import WallClock

FIRST = 20.0
"""Seconds from the start of the process until the first sample. By then, the operator has requested the summary of every
router once."""
TICK = 5.0
"""Seconds between two checks for services whose sample is due."""


class TrafficSampler:
    """The last sample of each service. `changed` is called with a service whose sample has changed, and `reports` returns
    the fresh reports of the routers among the given pods.
    """

    def __init__(
        self,
        cluster: ClusterCache,
        reports: Callable[[Iterable[Pod]], Mapping[str, RouterReport]],
        changed: Callable[[Ref], None],
        wall: WallClock,
        interval: float,
    ) -> None:
        self._cluster, self._reports, self._changed, self._wall = cluster, reports, changed, wall
        self._heard = interval > 0
        """Whether the operator requests the routers' summaries at all."""
        self._samples: dict[str, dict[str, Any] | None] = {}
        """Maps the UID of a service to its sample."""
        self._due: dict[str, float] = {}
        """Maps the UID of a service to the time of its next sample, in seconds since the epoch."""

    async def run(self) -> None:
        """Sample all services repeatedly. Do nothing if the operator does not request the summaries of routers."""
        if self._heard:
            await repeat("the sampling of traffic", self.sample_due, lambda: TICK)

    def of(self, service: Resource) -> dict[str, Any] | None:
        """Return the value of `status.traffic`; None if it is unknown. For a service without a sample, this is the stored
        value, so that a restart of the operator does not change the status.
        """
        if not self._heard:
            return None
        stored = service.status.get("traffic")
        return self._samples.get(service.uid, stored if isinstance(stored, dict) else None)

    async def sample_due(self) -> None:
        """Take a new sample of each service whose sample is due. A frozen or observed service keeps its last sample."""
        now, due = self._wall().timestamp(), dict[str, float]()
        for service in self._cluster.services():
            due[service.uid] = self._due.get(service.uid, now + FIRST + zlib.crc32(service.uid.encode()) % int(PAUSE))
            if due[service.uid] - PAUSE - FIRST > now:  # the clock was set back
                due[service.uid] = now
            if due[service.uid] <= now and self._cluster.active_hold(service) is None:
                due[service.uid] = now + PAUSE
                self._sample(service)
                await PACER.yield_if_due()
        self._due = due
        self._samples = {uid: sample for uid, sample in self._samples.items() if uid in due}

    def _sample(self, service: Resource) -> None:
        now, ref, before = self._wall(), service.ref, self.of(service)
        pods = self._cluster.pods_of(ref.namespace, ref.name)
        found = traffic(self._reports(pods), pods, now.timestamp())
        after = next_traffic(before, traffic_status(found, now), now)
        self._samples[service.uid] = after
        if after != before:
            self._changed(ref)
