"""Returns the summaries that the registries beside simulated routers would serve over HTTP. They are computed by the
registry's own code.
"""

import json
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ome_operator import keys
from ome_operator.core.observed import from_api
from ome_operator.core.observed.objects import Pod
from ome_operator.core.render import meta
from ome_operator.registry import telemetry as registry
from ome_operator.registry.exposition import EnginePage
from ome_operator.registry.records import LeaderState
from tests.support.bodies import Cluster

WINDOW = 50.0
Rates = Mapping[str, float]
"""Name -> value that the summary reports about a leader. `requests`, `promptTokens` and `outputTokens` are rates per
second; `running` and `waiting` are numbers of requests.
"""
BUSY: Rates = {"requests": 2.0, "promptTokens": 800.0, "outputTokens": 300.0, "running": 7.0, "waiting": 1.0}


def summary(
    cluster: Cluster,
    router: Pod,
    rates: Rates = BUSY,
    *,
    arrivals: float = 4.0,
    in_flight: int = 3,
    leaders_rates: Mapping[str, Rates] = MappingProxyType({}),
) -> str:
    """Return the summary of a router whose leaders all report `rates`. `arrivals` is the rate of requests per second that
    arrive at the router, and `in_flight` the number of its unfinished requests. `leaders_rates` maps the UID of a leader to
    rates of its own.
    """
    pods = [from_api.pod(body) for body in cluster.objects["Pod"]]
    mine = (router.namespace, router.service, router.revision)
    leaders = [pod for pod in pods if (pod.namespace, pod.service, pod.revision) == mine and pod.rank == 0]
    apart = any(pod.component == keys.DECODER for pod in leaders)
    roles = {keys.ENGINE: "prefill", keys.DECODER: "decode"} if apart else {}
    states = [
        LeaderState(pod.name, pod.uid, "http://10.0.0.1:1", roles.get(pod.component, "regular"), "serving", "", True, 1)
        for pod in leaders
        if pod.component != keys.ROUTER
    ]
    memories = {state.uid: _memory(leaders_rates.get(state.uid, rates)) for state in states}
    readings = registry.RouterReading(_readings({"requests": arrivals}), in_flight, WINDOW)
    mark = meta.slice_mark(router)
    return json.dumps(registry.summary(mark, states, memories, readings, registry.Foreign(0, None), WINDOW + 2))


def _memory(rates: Rates) -> registry.LeaderMemory:
    load = registry.EngineLoad(rates["running"], rates["waiting"], 0.0, 0.4, 5.0, (1.0,))
    counters = {name: rate for name, rate in rates.items() if name not in ("running", "waiting")}
    return registry.LeaderMemory(load, WINDOW, _readings(counters))


def _readings(rates: Rates) -> tuple[registry.WorkReading, ...]:
    readings: tuple[registry.WorkReading, ...] = ()
    for at in (0.0, WINDOW):
        counters = {name: rate * at for name, rate in rates.items()}
        buckets = {0.4: counters.get("requests", 0.0), 0.6: 2 * counters.get("requests", 0.0), math.inf: 0.0}
        buckets[math.inf] = buckets[0.6]
        histograms = {"firstToken": buckets, "betweenTokens": buckets} if "outputTokens" in rates else {}
        readings = registry.with_work(readings, EnginePage("sglang", counters, {}, histograms), at)
    return readings


def hear(cluster: Cluster, rates: Rates = BUSY, **more: Any) -> Cluster:
    """Let all routers of a cluster serve summaries, and return the cluster."""
    for body in cluster.objects["Pod"]:
        pod = from_api.pod(body)
        if pod.component == keys.ROUTER:
            cluster.summaries[pod.name] = summary(cluster, pod, rates, **more)
    return cluster
