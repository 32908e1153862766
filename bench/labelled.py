"""Changes labels of many models on many nodes as agents do, on a real API server. Measures the operator's CPU, and how long
an edit of a service waits during these changes.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from bench import scenarios
from bench.api import Api, run_in_lanes
from bench.bed import Bed, Operator, bed
from bench.results import Labelled, Labels
from bench.scenarios import NAMESPACE, Manifest, Scenario, name
from bench.watching import Late
from ome_operator import names

KIND = "ClusterBaseModel"
CHANGES = 20
"""Number of labels of each node that change one after another in the second wave of changes."""
EDIT_EVERY_S, POLL_S, WITHIN_S = 0.5, 0.02, 60.0
WRITES = 3
"""Number of consecutive writes that an edit causes: the user's write of the spec, and the operator's writes of the RoleScale
and of the status."""

BARE = "written-by-a-bare-client"

Change = tuple[str, Manifest]
"""A node and its changed labels."""


async def measure(nodes: int, models: int, services: int, lanes: int) -> Labelled:
    """Measure two waves of label changes while services are ready. First each node gets the labels of all models in a single
    request; then labels change one after another on all nodes.
    """
    shape = Scenario(key="labelled", services=services, runtime="bench-single", groups=1, router=False, nodes=nodes)
    async with bed(shape) as at:
        process = Operator(at)
        await process.start()
        await run_in_lanes(scenarios.models(KIND, "", map(model, range(models))), lanes, at.api.create)
        await run_in_lanes(map(shape.service, range(services)), lanes, at.api.create)
        await at.watching.wait_until("services ready", lambda: len(at.watching.services_ready) == services, WITHIN_S)
        there = await at.api.names("Node", "")
        once = [(node, labels(range(models), "Ready")) for node in there]
        turns = [(node, labels([number], "Updating")) for number in range(min(models, CHANGES)) for node in there]
        waves = [await _wave(at, process, what, changes, lanes) for what, changes in (("at once", once), ("in turn", turns))]
        return Labelled(nodes, models, services, waves, process.usage().peak_mib)


async def _wave(at: Bed, process: Operator, description: str, changes: list[Change], lanes: int) -> Labels:
    """Apply a wave of changes, and wait until the operator has processed it. `description` names the wave in results."""
    if not await at.wait_until_settled():
        raise Late(f"labels {description}: the operator did not settle before")
    before, began = process.usage().cpu_s, time.monotonic()
    async with _edits(at.api) as (waited, floors):
        await run_in_lanes(
            changes, lanes, lambda change: at.api.merge("Node", "", change[0], {"metadata": {"labels": change[1]}})
        )
        took = time.monotonic() - began
        await asyncio.sleep(EDIT_EVERY_S)
    if not await at.wait_until_settled():
        raise Late(f"labels {description}: the operator does not settle")
    return Labels(description, len(changes), took, process.usage().cpu_s - before, tuple(waited), tuple(floors))


@asynccontextmanager
async def _edits(api: Api) -> AsyncIterator[tuple[list[float], list[float]]]:
    """Edit a service repeatedly. Yield two lists: the seconds until the operator had acted on each edit, and the seconds
    that a bare client needed for the same writes and the confirming read, which is the API server's own share of the time.
    """
    waited, floors = list[float](), list[float]()

    async def edit() -> None:
        for number in itertools.count():
            sent = time.monotonic()
            change = {"spec": {"engine": {"maxReplicas": 2 - number % 2}}}
            made = await api.merge("InferenceService", NAMESPACE, name(0), change)
            await _acted(api, made["metadata"]["generation"])
            acted = time.monotonic()
            for write in range(WRITES):
                note = {"metadata": {"annotations": {"bench.example.com/write": f"{number}-{write}"}}}
                await api.merge("ConfigMap", NAMESPACE, BARE, note)
            await api.get("ConfigMap", NAMESPACE, BARE)
            waited.append(acted - sent)
            floors.append(time.monotonic() - acted)
            await asyncio.sleep(EDIT_EVERY_S)

    await api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": BARE, "namespace": NAMESPACE}})
    task = asyncio.create_task(edit())
    try:
        yield waited, floors
    finally:
        if task.done():
            task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await api.delete("ConfigMap", NAMESPACE, BARE)


async def _acted(api: Api, generation: int) -> None:
    until = time.monotonic() + WITHIN_S
    while ((await api.get("InferenceService", NAMESPACE, name(0))).get("status") or {}).get(
        "observedGeneration"
    ) != generation:
        if time.monotonic() > until:
            raise Late(f"the operator did not act on an edit within {WITHIN_S:.0f} s")
        await asyncio.sleep(POLL_S)


def labels(numbers: Iterable[int], text: str) -> Manifest:
    """Return the labels that an agent writes on its node for these models."""
    return {names.model_label(KIND, "", model(number)): text for number in numbers}


def model(number: int) -> str:
    """Return the name of a model."""
    return f"model-{number:04d}"
