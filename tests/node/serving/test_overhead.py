"""Tests of the latency that the router and the registry's readings add to a request.

In one run, each request is sent through the router, and also directly to prefill and decode, as the router would send it.
"""

import asyncio
import math
import random
import secrets
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import NamedTuple

import aiohttp
import pytest

from ome_operator.registry.engine_client import EngineClient
from ome_operator.registry.records import LeaderState
from ome_operator.registry.telemetry_reader import LOAD, LOAD_INTERVAL, METRICS, METRICS_INTERVAL
from tests.conftest import Tables
from tests.node.conftest import Steps
from tests.node.serving.test_faults import ANNOTATION, TINY, routers
from tests.support.rig import Rig
from tests.support.traffic import Report, burst


def figures(report: Report) -> str:
    """Return the percentiles of the response times as text."""
    return f"p50 {report.percentile(0.5) * 1000:>6.0f} ms   p99 {report.percentile(0.99) * 1000:>6.0f} ms"


@pytest.mark.parametrize(("concurrency", "count"), [(1, 100), (16, 320)])
async def test_request_overhead_of_router_is_measured(
    serving: Rig, tiny: str, steps: Steps, concurrency: int, count: int
) -> None:
    """Measure how much longer a request takes through the router than directly. A direct request consists of the same two
    requests with the same fields, which the client sends to both leaders.
    """
    pods = {pod["metadata"]["labels"]["component"]: pod for pod in serving.all("Pod", "kimi-k2-tiny")}
    prefill, decode = (pods[role]["status"]["podIP"] for role in ("engine", "decoder"))
    meet = {"bootstrap_host": prefill, "bootstrap_port": 8998}
    urls = [f"http://{ip}:30000" for ip in (prefill, decode)]
    await burst(tiny, 2 * concurrency, concurrency)  # connections, caches
    for name, report in (
        ("router", await burst(tiny, count, concurrency)),
        ("direct", await burst(urls[1], count, concurrency, urls[:1], **meet)),
        ("router, again", await burst(tiny, count, concurrency)),
    ):
        assert not report.failed_answers, report.failed_answers[0].error
        steps.note(f"{count} requests, {concurrency} at a time, {name}", figures(report))


# --- the cost of the registry's readings ----------------------------------------------------------------------------------
WARMUP, REQUESTS = 60, 900
"""Numbers of requests. A third of the measured requests overlap with no reading of the registry, a third with a reading of
the load, and a third with a reading of the metrics.
"""
GAP_S = 0.1


@pytest.fixture
def unread(serving: Rig, tiny: str) -> Iterator[list[LeaderState]]:
    """Yield the leaders of the service while its router has no registry, so that nothing reads metrics of the leaders."""
    serving.patch("InferenceService", TINY, TINY, {"metadata": {"annotations": {ANNOTATION: "false"}}})
    serving.wait("a router alone", lambda: routers(serving) == [1], 120)
    roles = {"engine": ("prefill", 8998), "decoder": ("decode", None)}
    pods = [pod for pod in serving.all("Pod", TINY) if pod["metadata"]["labels"]["component"] in roles]
    found = []
    for pod in pods:
        role, port = roles[pod["metadata"]["labels"]["component"]]
        name, uid, url = pod["metadata"]["name"], pod["metadata"]["uid"], f"http://{pod['status']['podIP']}:30000"
        found.append(LeaderState(name, uid, url, role, "serving", "", True, 0, bootstrap_port=port))
    yield sorted(found, key=lambda leader: leader.role, reverse=True)
    serving.patch("InferenceService", TINY, TINY, {"metadata": {"annotations": {ANNOTATION: None}}})
    serving.wait("its registry", lambda: routers(serving) == [2], 120)


async def first_token(session: aiohttp.ClientSession, leaders: list[LeaderState]) -> float:
    """Return the seconds until the first and only token of a request."""
    meet = {"bootstrap_host": leaders[0].url[7:].partition(":")[0], "bootstrap_port": leaders[0].bootstrap_port}
    body = {
        "text": f"once {secrets.token_hex(4)}",
        "sampling_params": {"temperature": 0, "max_new_tokens": 1},
        **meet,
        "bootstrap_room": secrets.randbelow(2**63),
    }
    began = time.monotonic()

    async def post(leader: LeaderState) -> None:
        async with session.post(f"{leader.url}/generate", json=body) as answer:
            assert answer.status == 200, await answer.text()

    await asyncio.gather(*map(post, leaders))
    return time.monotonic() - began


class Meeting(NamedTuple):
    """A request, and a reading of both leaders that overlaps with the request in time."""

    request_s: float
    reading_s: float
    """Seconds that the slower of the two readings took; 0 without a reading."""


async def met(session: aiohttp.ClientSession, leaders: list[LeaderState], what: str, offset: float = 0.0) -> Meeting:
    """Send a request, and read the load or the metrics of the leaders as a registry does. The reading begins `offset`
    seconds after the request, or before the request if `offset` is negative.
    """
    client = EngineClient(session, "")
    read: Callable[[str], Awaitable[object]] | None = {LOAD: client.load, METRICS: client.page}.get(what)

    async def reading() -> float:
        await asyncio.sleep(max(0.0, offset))
        if read is None:
            return 0.0
        began = time.monotonic()
        found = await asyncio.gather(*(read(leader.url) for leader in leaders))
        assert None not in found, "an engine did not answer"
        return time.monotonic() - began

    async def request() -> float:
        await asyncio.sleep(max(0.0, -offset))
        return await first_token(session, leaders)

    reading_s, request_s = await asyncio.gather(reading(), request())
    return Meeting(request_s, reading_s)


@pytest.mark.timeout(700, func_only=True)
async def test_latency_caused_by_registry_readings_is_measured(unread: list[LeaderState], tables: Tables) -> None:
    """Measure the expected delay of a request by the registry's readings: the mean delay of requests that overlap with a
    reading, times the probability of an overlap, which is low. So that there are enough overlaps, the test causes them, with
    all moments of an overlap equally probable.
    """
    kinds, draw = ("", LOAD, METRICS), random.Random(7)
    found: dict[str, list[Meeting]] = {kind: [] for kind in kinds}
    async with aiohttp.ClientSession() as session:

        async def series(count: int, earliest: Mapping[str, float], latest: float) -> None:
            for kind in draw.sample(kinds * (count // 3), count):
                offset = draw.uniform(-earliest.get(kind, 0.0), latest)
                found[kind].append(await met(session, unread, kind, offset))
                await asyncio.sleep(GAP_S)

        await series(WARMUP, {}, 0.0)
        length = {kind: statistics.mean(one.reading_s for one in found[kind]) for kind in kinds}
        request_s = statistics.mean(one.request_s for one in found[""])
        found = {kind: [] for kind in kinds}
        await series(REQUESTS, length, request_s)
    alone = [one.request_s for one in found[""]]
    mean, cost, variance, lines = statistics.mean(alone), 0.0, 0.0, list[str]()
    for kind, interval in ((LOAD, LOAD_INTERVAL), (METRICS, METRICS_INTERVAL)):
        requests = [one.request_s for one in found[kind]]
        delay = statistics.mean(requests) - mean
        error = math.hypot(*(statistics.stdev(part) / math.sqrt(len(part)) for part in (requests, alone)))
        probability = (request_s + length[kind]) / interval
        cost, variance = cost + delay * probability / mean, variance + (error * probability / mean) ** 2
        lines.append(
            f"{kind:<8} reading {length[kind] * 1000:6.1f} ms   delays a request that meets it by {delay * 1000:+6.1f} "
            f"± {error * 1000:.1f} ms   a request meets it with a probability of {probability:.2%}"
        )
    error = math.sqrt(variance)
    tables["time to the first token of requests that meet a reading of a registry"] = [
        f"without a reading: mean {mean * 1000:.1f} ms, median {statistics.median(alone) * 1000:.1f} ms, "
        f"{len(alone)} requests",
        *lines,
        f"expected cost: {cost:+.3%} ± {error:.3%} (standard error) of the time to the first token",
    ]
    assert cost + 2 * error < 0.01, "the readings cost more than 1 %, or too few requests were measured"
