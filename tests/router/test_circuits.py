"""Tests that a real router with the flags of the runtimes in config/ serves requests again immediately after its engines
have failed requests for a moment. The engines are simulated.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml
from aiohttp import web

from ome_local import ports
from tests.router.conftest import Engine, address, router_process, worker_flags
from tests.support.parts import ROOT
from tests.support.waiting import wait_until

CLIENTS = 30
FAILURE_S = 1.0
AGAIN_WITHIN_S = 5.0
"""Maximum seconds from the end of the failure until no request fails any more. A circuit stays open for 1 s; the rest is for
slow machines.
"""
WATCHED_S = 15.0


class Failing(Engine):
    """An engine that answers with status 500 while `fails` is set, as SGLang does after a failed transfer."""

    fails = False

    async def _generate(self, request: web.Request) -> web.Response:
        await asyncio.sleep(0.1)
        if self.fails:
            return web.json_response({"error": {"message": "KVTransferError"}}, status=500)
        return await super()._generate(request)


def flags(runtime: str) -> list[str]:
    """Return the arguments of a runtime's router that configure its circuit breakers."""
    spec = yaml.safe_load((ROOT / "config/runtimes/srt" / f"{runtime}.yaml").read_text(encoding="utf-8"))["spec"]
    return [word for word in spec["routerConfig"]["runner"]["args"] if word.startswith("--cb-")]


@asynccontextmanager
async def failing_router(folder: Path, *words: str) -> AsyncIterator[tuple[str, list[Failing]]]:
    """Yield the URL of a router with two prefill and two decode engines, and the engines, prefill first."""
    prefill, decode = [address(61), address(62)], [address(71), address(72)]
    engines = [*(Failing(ip, "prefill") for ip in prefill), *(Failing(ip, "decode") for ip in decode)]
    port, metrics = ports.choose(2)
    router = router_process(folder, port, metrics, *worker_flags(prefill, decode), "--policy=round_robin", *words)
    for engine in engines:
        await engine.start()
    await router.start()
    try:
        yield f"http://127.0.0.1:{port}/generate", engines
    finally:
        await router.stop()
        for engine in engines:
            await engine.stop()


async def failures(url: str, failing: list[Failing], seconds: float | None) -> tuple[list[float], int]:
    """Let the engines fail for `seconds` seconds while `CLIENTS` clients send requests; with None, they fail until the end.
    Return the times of the failed requests, and the number of successful requests. Times are in seconds after the engines
    work again, or, with None, after they began to fail.
    """
    failed: list[float] = []
    succeeded, over = 0, asyncio.Event()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask() -> bool:
            try:
                async with session.post(url, json={"text": "hello"}) as answer:
                    await answer.read()
                    return answer.status == 200
            except aiohttp.ClientError:
                return False

        async def client() -> None:
            nonlocal succeeded
            while not over.is_set():
                if await ask():
                    succeeded += 1
                else:
                    failed.append(time.monotonic())
                await asyncio.sleep(0.3)

        await wait_until(ask, within=30)
        async with asyncio.TaskGroup() as running:
            for _ in range(CLIENTS):
                running.create_task(client())
            for engine in failing:
                engine.fails = True
            if seconds is not None:
                await asyncio.sleep(seconds)
                while len(failed) < CLIENTS:  # noqa: ASYNC110 - a busy machine may need longer for a request of each client
                    await asyncio.sleep(0.05)
                for engine in failing:
                    engine.fails = False
            since = time.monotonic()
            await asyncio.sleep(WATCHED_S)
            over.set()
    return [at - since for at in failed], succeeded


RUNTIMES = "kimi-k2-pd-rt", "kimi-k2-pd-seed-rt", "kimi-k2-tiny-pd-cpu-rt", "kimi-k2-pd-agentic-rt"


def test_all_disaggregated_runtimes_have_the_same_circuit_breaker_flags() -> None:
    assert {tuple(flags(runtime)) for runtime in RUNTIMES} == {("--cb-timeout-duration-secs=1", "--cb-success-threshold=1")}


@pytest.mark.parametrize("ours", [True, False])
async def test_requests_succeed_soon_after_a_second_of_failures(tmp_path: Path, ours: bool) -> None:
    """After a second of failures, requests succeed again soon with the flags of the runtimes. With the router's defaults,
    requests would keep failing (the rule `circuits-open`).
    """
    async with failing_router(tmp_path, *(flags(RUNTIMES[0]) if ours else [])) as (url, engines):
        failed, succeeded = await failures(url, engines, FAILURE_S)
    late = [at for at in failed if at > AGAIN_WITHIN_S]
    assert (succeeded > 0 and late == []) is ours, (len(late), len(failed), succeeded)


@pytest.mark.parametrize("bad", [1, 3])
async def test_permanently_failing_engine_gets_no_requests(tmp_path: Path, bad: int) -> None:
    """An engine that always fails gets no requests. The other engine of the same role answers, and the engines of the other
    role stay in use.
    """
    async with failing_router(tmp_path, *flags(RUNTIMES[0])) as (url, engines):
        failed, succeeded = await failures(url, [engines[bad]], None)
    assert len(failed) <= succeeded / 100, (len(failed), succeeded)
