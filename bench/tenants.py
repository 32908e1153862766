"""Measures how long a quiet tenant waits for its services, alone and next to busy tenants."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench import scenarios
from bench.api import Api, run_in_lanes
from bench.bed import Bed, Operator, bed
from bench.results import TenantWaits
from bench.scenarios import Manifest, Scenario
from ome_operator import keys

QUIET = Scenario(key="tenants", services=100, runtime="bench-single", groups=1, router=False, nodes=30)
"""The services of the quiet tenant. Half of them run alone, and half next to the other tenants. Each has a single pod."""
MODELS_OF, SERVICES_OF = "many-models", "many-services"
"""Namespaces of the other tenants."""
RUNTIME = "edited"
EDITS_A_SECOND = 8.0
WITHIN_S = 120.0


async def measure(models: int, services: int, lanes: int) -> TenantWaits:
    """Measure how long a quiet tenant waits for services before and while other tenants are active: one with many
    BaseModels, and another with many services that wait for a model and whose runtime is edited continuously.
    """
    half = QUIET.services // 2
    async with bed(QUIET) as at:
        process = Operator(at)
        await process.start()
        alone = [await _wait(at, number) for number in range(half)]
        await _others(at, models, services, lanes)
        before = process.usage().cpu_s
        async with _edits(at.api) as sent:
            began = time.monotonic()
            beside = [await _wait(at, number) for number in range(half, 2 * half)]
            took = time.monotonic() - began
        cpu = process.usage().cpu_s - before
        return TenantWaits(models, services, sent[0] / took, tuple(alone), tuple(beside), cpu / took)


async def _wait(at: Bed, number: int) -> float:
    """Return the seconds from a service's creation to its condition Ready."""
    service = QUIET.service(number)
    name, began = service["metadata"]["name"], time.monotonic()
    await at.api.create(service)
    await at.watching.wait_until(f"{name} ready", lambda: name in at.watching.services_ready, WITHIN_S)
    return at.watching.services_ready[name] - began


async def _others(at: Bed, models: int, services: int, lanes: int) -> None:
    """Create the objects of the other tenants, and wait until the operator has processed them."""
    for namespace in (MODELS_OF, SERVICES_OF):
        await asyncio.to_thread(at.cluster.kubectl, "create", "namespace", namespace)
    await at.api.create(_runtime())
    await run_in_lanes(scenarios.models("BaseModel", MODELS_OF, map("m-{:04d}".format, range(models))), lanes, at.api.create)
    await run_in_lanes(map(_waiting, range(services)), lanes, at.api.create)
    await at.wait_until_settled()


@asynccontextmanager
async def _edits(api: Api) -> AsyncIterator[list[int]]:
    """Edit the runtime at regular intervals inside the `with` block. Yield a list whose only item is the number of edits
    so far.
    """
    sent, loop = [0], asyncio.get_running_loop()

    async def edit() -> None:
        began = loop.time()
        while True:
            spec = {"engineConfig": {"annotations": {"example.com/edit": str(sent[0])}}}
            await api.merge("ServingRuntime", SERVICES_OF, RUNTIME, {"spec": spec})
            sent[0] += 1
            await asyncio.sleep(max(0.0, began + sent[0] / EDITS_A_SECOND - loop.time()))

    task = asyncio.create_task(edit())
    try:
        yield sent
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _runtime() -> Manifest:
    return {
        **scenarios.catalog_object(QUIET.runtime),
        "kind": "ServingRuntime",
        "metadata": {"name": RUNTIME, "namespace": SERVICES_OF},
    }


def _waiting(number: int) -> Manifest:
    spec = {
        "model": {"kind": "BaseModel", "name": "not-there"},
        "runtime": {"kind": "ServingRuntime", "name": RUNTIME},
        "engine": {"minReplicas": 1},
    }
    metadata = {"name": f"w-{number:04d}", "namespace": SERVICES_OF}
    return {"apiVersion": keys.API_VERSION, "kind": "InferenceService", "metadata": metadata, "spec": spec}
