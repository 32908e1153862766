"""Measures what the memory of bad nodes costs the operator, in this process and without a cluster: a check of all pods and
nodes, and reconciliation passes of a service while nodes are avoided. `python -m bench.badnodes` prints the figures.
"""

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from bench.alone import kimi, steady_state
from bench.crowd import NODE, SERVICE, Crowd, Size
from bench.scenarios import Manifest
from ome_operator import keys, names, quantity
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.event_handler import EventHandler
from ome_operator.controllers.bad_nodes import BadNodes
from ome_operator.core.observed.objects import Deps, Observed
from ome_operator.core.reconcile.sync import sync
from ome_operator.kube.client import Client

START = datetime(2026, 1, 1, tzinfo=UTC)
NODES, SERVICES, PODS, FAILURES = 5000, 1000, 4, 500
"""The size of the cluster. FAILURES is the number of pods whose container has ended since the last check, each on another
node.
"""
LOOKS, PASSES = 5, 60
PERIOD = timedelta(seconds=100)
CROWD = Crowd(Size(nodes=NODES, models=1, services=SERVICES))


class MeasuredFigures(NamedTuple):
    """The measured figures. Times are medians of CPU seconds of this thread."""

    quiet_look: float
    """CPU seconds of a check in which no container has ended."""
    look: float
    """CPU seconds of a check in which FAILURES containers have ended."""
    remembered: int
    """Number of failures that are remembered in the end."""
    stays: float
    """CPU seconds of a pass of a service that is ready, in a cluster of NODES nodes."""
    stays_avoiding: float
    """CPU seconds of the same pass while a tenth of the nodes are avoided."""
    new: float
    """CPU seconds of the first pass of a service."""
    new_avoiding: float


def measure() -> MeasuredFigures:
    """Measure all figures, and return them."""
    quiet, look, remembered = asyncio.run(_looks())
    return MeasuredFigures(quiet, look, remembered, *_passes())


def _with_nodes() -> tuple[ClusterCache, EventHandler]:
    """Return a cache that contains the nodes, and the handler of its events."""
    cache = ClusterCache(Deps())
    handler = EventHandler(cache, lambda *_: None, lambda _: (), lambda _: ())
    for number in range(NODES):
        handler.handle_observed(NODE, CROWD.node(number))
    return cache, handler


async def _looks() -> tuple[float, float, int]:
    now, (cache, handler) = START, _with_nodes()
    nodes = sorted(cache.deps().nodes)
    for number in range(SERVICES):
        handler.handle_observed(SERVICE, CROWD.service(number))
    services = [resource.ref for resource in cache.services()]
    assert len(nodes) == NODES and len(services) == SERVICES
    for number in range(SERVICES * PODS):
        ref = services[number // PODS]
        handler.handle_observed("Pod", _pod(ref.namespace, ref.name, number, nodes[number % NODES], 0, now))
    memory = BadNodes(cache, Client.__new__(Client), lambda _: None, lambda: now, acts=True, stores=False)
    await memory.evaluate()
    quiet, loud = list[float](), list[float]()
    for restarts in range(1, LOOKS + 1):
        now += PERIOD
        quiet.append(await _cpu(memory))
        for number in range(FAILURES):
            ref = services[number // PODS]
            handler.handle_observed("Pod", _pod(ref.namespace, ref.name, number, nodes[number], restarts, now))
        loud.append(await _cpu(memory))
    return statistics.median(quiet), statistics.median(loud), memory.failure_count


async def _cpu(memory: BadNodes) -> float:
    began = time.thread_time()
    await memory.evaluate()
    return time.thread_time() - began


def _pod(namespace: str, service: str, number: int, node: str, restarts: int, now: datetime) -> Manifest:
    """Return the pod of a leader. The pod is ready or, if `restarts` is not 0, its container has just ended."""
    labels = {
        keys.MANAGED_BY: keys.MANAGER, keys.SERVICE: service, keys.COMPONENT: keys.ENGINE, keys.REVISION: "r1",
        keys.GROUP_INDEX: str(number % PODS), keys.WORKER_INDEX: "0", keys.POD_INDEX: "0",
    }  # fmt: skip
    workload = f"{names.object_prefix(service, keys.ENGINE, 'r1')}-{number % PODS}"
    owner = {"kind": "StatefulSet", "name": workload, "uid": f"set-{number}", "controller": True}
    when = quantity.rfc3339(now)
    metadata = {
        "name": f"{workload}-0", "namespace": namespace, "uid": f"pod-{number}", "labels": labels,
        "resourceVersion": str(number + 100_000 * restarts), "creationTimestamp": quantity.rfc3339(START - 50 * PERIOD),
        "ownerReferences": [owner],
    }  # fmt: skip
    ended = {"exitCode": 1, "reason": "Error", "message": "CUDA error", "startedAt": when, "finishedAt": when}
    state = {"lastState": {"terminated": ended}, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    box = {"name": keys.RUNNER, "restartCount": restarts, **(state if restarts else {"state": {"running": {}}})}
    ready = {"type": "Ready", "status": "False" if restarts else "True", "lastTransitionTime": when}
    status = {"phase": "Running", "conditions": [ready], "containerStatuses": [box]}
    return {"metadata": metadata, "spec": {"nodeName": node, "containers": [{"name": keys.RUNNER}]}, "status": status}


def _passes() -> tuple[float, float, float, float]:
    (service, deps), cache = kimi(), _with_nodes()[0]
    labels = dict.fromkeys(deps.holders, "Ready")
    known = {name: node._replace(labels={**node.labels, **labels}) for name, node in cache.deps().nodes.items()}
    deps = replace(deps, nodes=known, holders={label: frozenset(known) for label in labels})
    avoided = dict.fromkeys(sorted(known)[: NODES // 10], "engine of team/svc failed there 3 times")
    ready, observed = steady_state(service, deps)
    avoiding = replace(observed, avoided=avoided)
    return (
        _median(lambda: sync(ready, deps, observed, START)),
        _median(lambda: sync(ready, deps, avoiding, START)),
        _median(lambda: sync(service, deps, Observed(), START)),
        _median(lambda: sync(service, deps, Observed(avoided=avoided), START)),
    )


def _median(call: Callable[[], object]) -> float:
    found = []
    for _ in range(PASSES):
        began = time.thread_time()
        call()
        found.append(time.thread_time() - began)
    return statistics.median(found)


def lines(measured_figures: MeasuredFigures) -> list[str]:
    """Return the figures as lines of text."""
    return [
        f"{NODES:,} nodes, {SERVICES:,} services of {PODS} pods; CPU of the thread",
        f"a check without failures            {1000 * measured_figures.quiet_look:>8.1f} ms",
        f"a check with {FAILURES} failures           {1000 * measured_figures.look:>8.1f} ms, "
        f"{measured_figures.remembered} failures remembered",
        _both("a pass of a ready service", measured_figures.stays, measured_figures.stays_avoiding),
        _both("the first pass of a service", measured_figures.new, measured_figures.new_avoiding),
    ]


def _both(description: str, usual: float, avoiding: float) -> str:
    return f"{description:<36}{1000 * usual:>8.2f} ms, {1000 * avoiding:.2f} ms while a tenth of the nodes is avoided"


if __name__ == "__main__":
    print("\n".join(lines(measure())))
