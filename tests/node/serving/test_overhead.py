"""Tests of the latency that the router and the registry's readings add to a request.

In one run, each request is sent through the router, and also directly to prefill and decode, as the router would send it.
"""

import asyncio
import math
import secrets
import statistics
import time
from collections.abc import Iterator

import aiohttp
import pytest

from ome_operator.registry.records import LeaderState
from ome_operator.registry.telemetry_reader import TelemetryReader
from tests.conftest import Tables
from tests.node.conftest import Steps
from tests.node.serving.conftest import MINUTES
from tests.node.serving.test_faults import ANNOTATION, TINY, routers
from tests.support.rig import Rig
from tests.support.traffic import Report, burst


def figures(report: Report) -> str:
    """Return the percentiles of the response times as text."""
    return f"p50 {report.percentile(0.5) * 1000:>6.0f} ms   p99 {report.percentile(0.99) * 1000:>6.0f} ms"


@MINUTES
@pytest.mark.parametrize(("concurrency", "count"), [(1, 100), (16, 320)])
async def test_router_overhead(serving: Rig, tiny: str, steps: Steps, concurrency: int, count: int) -> None:
    """A direct request consists of the same two requests with the same fields, sent to both leaders by the client."""
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
        assert not report.failed, report.failed[0].error
        steps.note(f"{count} requests, {concurrency} at a time, {name}", figures(report))


# --- the cost of the registry's readings ----------------------------------------------------------------------------------
WINDOW_S, WINDOWS = 10.0, 24
"""Windows with and without readings are ordered on, off, off, on and so forth, so that a slow change of the machine affects
both alike.
"""
GAP_S = 0.1


@pytest.fixture
def unread(serving: Rig, tiny: str) -> Iterator[list[LeaderState]]:
    """Yield the leaders of the service, whose router meanwhile has no registry, so that nothing reads them."""
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


async def window(session: aiohttp.ClientSession, leaders: list[LeaderState], *, read: bool) -> list[float]:
    """Return the times to the first token in one window. If `read` is true, a registry reads the leaders meanwhile."""
    reader = TelemetryReader(session, "", lambda: leaders)
    reader.passed(leaders, ())
    task = asyncio.create_task(reader.run()) if read else None
    found, ends = list[float](), time.monotonic() + WINDOW_S
    while time.monotonic() < ends:
        found.append(await first_token(session, leaders))
        await asyncio.sleep(GAP_S)
    if task:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return found


@MINUTES
@pytest.mark.timeout(500, func_only=True)
async def test_what_the_readings_of_a_registry_cost(unread: list[LeaderState], tables: Tables) -> None:
    on, off = list[list[float]](), list[list[float]]()
    async with aiohttp.ClientSession() as session:
        await window(session, unread, read=True)
        for number in range(WINDOWS):
            read = number % 4 in (0, 3)
            (on if read else off).append(await window(session, unread, read=read))
    changes = [statistics.mean(one) / statistics.mean(other) - 1 for one, other in zip(on, off, strict=True)]
    error = statistics.stdev(changes) / math.sqrt(len(changes))
    with_, without = ([each for one in part for each in one] for part in (on, off))
    tables["time to the first token, while a registry reads the engines or not"] = [
        f"{what:<10}{len(found):>6} requests   mean {statistics.mean(found) * 1000:7.1f} ms   "
        f"median {statistics.median(found) * 1000:7.1f} ms"
        for what, found in (("read", with_), ("not read", without))
    ] + [f"change of the mean, over pairs of windows: {statistics.mean(changes):+.1%} ± {error:.1%} (standard error)"]
    assert statistics.mean(changes) - 3 * error < 0.01, "the readings cost more than 1 %"
