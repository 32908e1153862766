"""Creates and deletes thousands of services on a real API server, and measures how much memory the operator keeps for them
afterwards.
"""

import time

from bench.api import run_in_lanes
from bench.bed import Bed, Operator, bed
from bench.results import Churned
from bench.scenarios import NAMESPACE, Manifest, Scenario

SHAPE = Scenario(key="churn", services=4000, runtime="bench-single", groups=1, router=False, nodes=60)
"""The services of the measurement; each has a single pod."""
ROUND = 200
WITHIN_S = 120.0


async def measure(services: int, lanes: int) -> Churned:
    """Create services, wait until they are Ready, and delete them, several at a time. The operator's memory is read after
    each round. Caches, the flight recorder, and versions of deleted objects keep data of deleted services for a while. Each
    of these has reached its maximum size after half of the services.
    """
    async with bed(SHAPE) as at:
        process = Operator(at)
        await process.start()
        mark, began, sizes = at.cluster.audit_mark(), time.monotonic(), list[float]()
        for first in range(0, services, ROUND):
            numbers = range(first, min(first + ROUND, services))
            await run_in_lanes(map(SHAPE.service, numbers), lanes, lambda each: _live(at, each))
            await at.watching.wait_until("no pod is left", lambda: not at.watching.pods, WITHIN_S)
            sizes.append(process.usage().resident_mib)
        pace, used = services / (time.monotonic() - began), process.usage()
        made = (await at.count(mark)).created
        return Churned(services, made, pace, tuple(sizes), used.peak_mib, used.cpu_s)


async def _live(at: Bed, service: Manifest) -> None:
    """Create a service, wait until it has been Ready, and request its deletion."""
    name = service["metadata"]["name"]
    await at.api.create(service)
    await at.watching.wait_until(f"{name} ready", lambda: name in at.watching.services_ready, WITHIN_S)
    await at.api.delete("InferenceService", NAMESPACE, name)
