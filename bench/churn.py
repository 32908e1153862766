"""Services that come and go by the thousand on a real API server: what the operator still holds of them afterwards."""

import asyncio
import time

from bench.api import together
from bench.bed import Bed, Operator, bed
from bench.results import Churned
from bench.scenarios import NAMESPACE, Manifest, Scenario
from ome_operator.machinery.store import BURIED

SHAPE = Scenario(key="churn", services=10_000, runtime="bench-single", groups=1, router=False, nodes=60)
"""Each has a pod."""
ROUND = 200
REST_S = BURIED + 120.0
"""What is known of deleted objects is forgotten then, and the operator has swept since."""
WITHIN_S = 120.0


async def measure(services: int, lanes: int, rest_s: float = REST_S) -> Churned:
    """Services are created, become Ready and are deleted, so many at a time. Memory is read at rest after the first round
    and after the last, and on the way after each.
    """
    async with bed(SHAPE) as at:
        process = Operator(at)
        await process.start()
        began, sizes = time.monotonic(), list[float]()
        for first in range(0, services, ROUND):
            numbers = range(first, min(first + ROUND, services))
            await together(map(SHAPE.service, numbers), lanes, lambda each: _live(at, each))
            await at.watching.until("no pod is left", lambda: not at.watching.pods, WITHIN_S)
            if not first:
                await asyncio.sleep(rest_s)
                first_mib, began = process.usage().resident_mib, time.monotonic()
            sizes.append(process.usage().resident_mib)
        pace = (services - ROUND) / (time.monotonic() - began)
        await asyncio.sleep(rest_s)
        used = process.usage()
        return Churned(services, pace, first_mib, used.resident_mib, tuple(sizes), used.peak_mib, used.cpu_s)


async def _live(at: Bed, service: Manifest) -> None:
    """Until it was Ready, and its deletion was taken."""
    name = service["metadata"]["name"]
    await at.api.create(service)
    await at.watching.until(f"{name} ready", lambda: name in at.watching.services_ready, WITHIN_S)
    await at.api.delete("InferenceService", NAMESPACE, name)
