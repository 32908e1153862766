"""Measures the cost of a scrape of the operator's metrics, and the cost that the metrics add to each reconciliation, in this
process and without a cluster.
"""

import asyncio
import gc
import statistics
import time
from datetime import UTC, datetime

from bench import offline
from bench.alone import steady_state
from bench.crowd import NODE, RECORD, SERVICE, Crowd, Size
from bench.results import Eyed
from bench.scenarios import HOLDS, SINGLE, catalog
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.resources import parse_or_keep
from ome_operator.controllers.metrics_collector import MetricsCollector
from ome_operator.core.observed.objects import Deps, Ref
from ome_operator.machinery.metrics import Metrics
from ome_operator.settings import Settings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODES = Size(nodes=200, records=200, models=20)
SCRAPES = 15


async def measure(services: int) -> Eyed:
    """Measure with `services` ready services of ten groups and a router each, and 200 nodes with NodeModels objects."""
    cluster = ClusterCache(Deps())
    refs = [*_nodes(cluster), *_services(cluster, services)]
    metrics = Metrics()
    eyes = MetricsCollector(cluster, metrics, lambda: NOW, Settings().metrics_per_service)
    eyes.watch()
    gc.collect()
    gc.freeze()
    for ref in refs:
        eyes.update_metrics(ref)
    began = time.perf_counter()
    for ref in refs:
        eyes.update_metrics(ref)
    each = (time.perf_counter() - began) / len(refs)
    beat, gaps = asyncio.create_task(_beat(longest := [0.0])), []
    seconds, text = [], ""
    for _ in range(SCRAPES):
        await asyncio.sleep(0.01)
        longest[0], began = 0.0, time.perf_counter()
        text = await metrics.page()
        seconds.append(time.perf_counter() - began)
        gaps.append(longest[0])
    beat.cancel()
    gc.unfreeze()
    series = sum(not line.startswith("#") for line in text.splitlines())
    return Eyed(services, series, len(text) / 1024, _ms(seconds), _ms(gaps), each * 1e6)


def _ms(seconds: list[float]) -> float:
    return statistics.median(seconds) * 1000


async def _beat(longest: list[float]) -> None:
    """Record in `longest` the longest time for which the event loop was blocked, until cancelled."""
    while True:
        began = time.perf_counter()
        await asyncio.sleep(0)
        longest[0] = max(longest[0], time.perf_counter() - began)


def _nodes(cluster: ClusterCache) -> list[Ref]:
    crowd = Crowd(NODES)
    for number in range(NODES.nodes):
        cluster.store_observed(NODE, crowd.node(number))
        cluster.store_observed(RECORD, crowd.record(number, 10**9))
    return [Ref(RECORD, "", name) for name in cluster.records.groups()]


def _services(cluster: ClusterCache, number: int) -> list[Ref]:
    deps, refs = offline.dependencies(catalog(), HOLDS, 200), []
    for body in (SINGLE[10].service(each) for each in range(number)):
        service, observed = steady_state(offline.service(body), deps)
        metadata = {**body["metadata"], "uid": service.uid, "resourceVersion": "1", "generation": 1}
        resource = parse_or_keep(SERVICE, {**body, "metadata": metadata, "status": service.status}, None)
        cluster.resources[SERVICE].store_watched(resource)
        for pod in observed.pods:
            cluster.pods.store_watched(pod)
        for (kind, name), child in observed.children.items():
            cluster.children[kind].store_watched(child._replace(uid=f"{kind}-{name}"))
        refs.append(resource.ref)
    return refs
