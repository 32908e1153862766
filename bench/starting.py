"""Measures how long the operator needs to list a large fleet at its start, next to a bare client that lists the same
objects.
"""

import asyncio
import time

from bench import labelled, scenarios
from bench.api import RequestRefused, run_in_lanes
from bench.bed import Bed, Operator, bed
from bench.results import Started
from bench.scenarios import Manifest, Scenario
from bench.watching import Late
from ome_operator.controllers.watched_kinds import watches_of
from ome_operator.watch.informer import PAGE

SHAPE = Scenario(key="start", services=1000, runtime="bench-single", groups=2, nodes=270)
"""The services of the measurement: each has three pods, and there are as many simulated nodes as the pods need. All further
nodes exist only as objects."""
WITHIN_S = 900.0


async def measure(nodes: int, models: int, services: int, lanes: int, repeat: int) -> Started:
    """Prepare a fleet with all models on all nodes and all services Ready. Then start the operator and a bare client
    alternately, each `repeat` times and without any cached state. `lanes` is the number of concurrent writes.
    """
    shape = SHAPE.times(services)
    async with bed(shape) as at:
        process = Operator(at)
        await process.start()
        await run_in_lanes(map(shape.service, range(services)), lanes, at.api.create)
        await at.watching.wait_until("services ready", lambda: len(at.watching.services_ready) == services, WITHIN_S)
        # Only now, because with 5,000 nodes Kubernetes needs five times as long for the pods.
        await run_in_lanes(scenarios.models(labelled.KIND, "", map(labelled.model, range(models))), lanes, at.api.create)
        await _nodes(at, nodes, models, lanes)
        await _caught_up(at)
        await at.wait_until_settled()
        floors, starts = list[float](), list[float]()
        for _ in range(repeat):
            await process.stop()
            floors.append(await _bare(at))
            starts.append(await process.start())
        await at.wait_until_settled()
        return Started(nodes, models, services, tuple(floors), tuple(starts), process.usage().peak_mib)


async def _nodes(at: Bed, nodes: int, models: int, lanes: int) -> None:
    """Label the existing nodes, and create more nodes like them."""
    labels = labelled.labels(range(models), "Ready")
    there = await at.api.names("Node", "")
    await run_in_lanes(there, lanes, lambda name: at.api.merge("Node", "", name, {"metadata": {"labels": labels}}))
    example = await at.api.get("Node", "", there[0])
    await run_in_lanes(range(len(there), nodes), lanes, lambda number: at.api.create(_like(example, number)))


def _like(node: Manifest, number: int) -> Manifest:
    """Return a node that is not simulated and accepts no pods. It contains what controllers would add to each node."""
    name = f"bare-{number:04d}"
    labels = node["metadata"]["labels"] | {"kubernetes.io/hostname": name}
    metadata = {"name": name, "namespace": "", "labels": labels}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": {"unschedulable": True},
        "status": node["status"],
    }


async def _caught_up(at: Bed) -> None:
    """Wait until the API server answers lists again. It refuses lists while its caches are behind its storage."""
    until = time.monotonic() + WITHIN_S
    while True:
        try:
            await _bare(at)
            return
        except RequestRefused as error:
            if time.monotonic() > until:
                raise Late(f"the API server answers no lists: {error}") from error
            await asyncio.sleep(5)


async def _bare(at: Bed) -> float:
    """Return how many seconds it takes to list and decode all kinds that the operator watches, in parallel and with the
    operator's page size.
    """
    began = time.monotonic()
    await asyncio.gather(*(at.api.pages(each.kind, each.selector, PAGE) for each in watches_of()))
    return time.monotonic() - began
