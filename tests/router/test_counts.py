"""Tests of what a real router counts as arrivals, and of what it does not report (docs/demand.md)."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ome_operator.registry.exposition import iter_samples
from tests.router.conftest import NEW, OLD, Stage, address
from tests.support.waiting import wait_until

SMG = pytest.mark.skipif(
    importlib.util.find_spec(NEW) is None, reason="the package smg is not installed (tests/router/conftest.py)"
)
ROUTERS = [OLD, pytest.param(NEW, marks=SMG)]
P, D = address(11), address(21)
PROBES = "/health", "/readiness", "/liveness", "/health_generate", "/v1/models", "/workers"
REQUESTS, RETRIES, IDLE, HELD = 10, 2, 20, 3


@asynccontextmanager
async def serving(folder: Path, module: str) -> AsyncIterator[Stage]:
    """Yield a router with one prefill and one decode leader after its registry has read the router's counters."""
    stage = Stage(folder, module)
    for one in stage.engines.values():
        await one.start()
    stage.api.run("p-0", "engine", P)
    stage.api.run("d-0", "decoder", D)
    await stage.api.start()
    await stage.registry.start()
    await stage.router.start()

    async def known() -> bool:
        return "window" in (await stage.summary())["router"]

    try:
        await stage.lists(P, D, within=20)
        await wait_until(known, within=15)
        yield stage
    finally:
        for process in (stage.registry, stage.router):
            await process.stop()
        await stage.api.stop()
        for one in stage.engines.values():
            await one.stop()
        await stage.session.close()


async def connections(stage: Stage) -> Mapping[str, float]:
    """Return the series of the router whose names speak of connections."""
    async with stage.session.get(stage.metrics) as answer:
        text = await answer.text()
    names = {line.partition("{")[0].partition(" ")[0] for line in text.splitlines() if not line.startswith("#")}
    return {name: value for name, _, value in iter_samples(text, frozenset(one for one in names if "connection" in one))}


@pytest.mark.parametrize("module", ROUTERS)
async def test_router_retries_and_health_checks_are_not_counted_as_arrivals(tmp_path: Path, module: str) -> None:
    """Retries of the router and health checks do not count as arrivals. The prefill engine answers each request twice with
    503, and the router tries again. Meanwhile somebody probes the router, and the router probes its workers.
    """
    async with serving(tmp_path, module) as stage:
        engine = stage.engines[P]
        for _ in range(REQUESTS):
            engine.refuses = RETRIES
            async with stage.session.post(f"{stage.url}/generate", json={"text": "0", "sampling_params": {}}) as answer:
                assert answer.status == 200
            for path in PROBES:
                async with stage.session.get(stage.url + path) as answer:
                    assert answer.status == 200
        assert (engine.refused, engine.answered) == (REQUESTS * RETRIES, REQUESTS)

        async def counted() -> bool:
            router = (await stage.summary())["router"]
            return abs(router.get("requests", 0.0) * router["window"] - REQUESTS) < 1

        await wait_until(counted, within=25)


@pytest.mark.parametrize("module", ROUTERS)
async def test_no_router_metric_counts_idle_client_connections(tmp_path: Path, module: str) -> None:
    """No series of a router counts the connections of its clients. `smg_http_connections_active` is the number of
    requests that are being answered: connections without a request do not count. If a new version counts them, this test
    fails, and routers could then be scaled by this number.
    """
    async with serving(tmp_path, module) as stage:
        idle = [await asyncio.open_connection("127.0.0.1", int(stage.url.rpartition(":")[2])) for _ in range(IDLE)]
        body = {"text": "held", "sampling_params": {}}
        held = [asyncio.create_task(stage.session.post(f"{stage.url}/generate", json=body)) for _ in range(HELD)]

        async def counted() -> bool:
            return await connections(stage) == {"smg_http_connections_active": HELD}

        await wait_until(counted, within=15)
        for engine in stage.engines.values():
            engine.released.set()
        for task in held:
            (await task).release()

        async def none() -> bool:
            return await connections(stage) == {"smg_http_connections_active": 0}

        await wait_until(none, within=15)
        for _, writer in idle:
            writer.close()
