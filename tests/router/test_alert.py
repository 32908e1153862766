"""Tests of the alert OmeRouterErrors in a real Prometheus, with all durations divided by ten, and a real router whose
engines fail.
"""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from ome_local import ports, targets
from release import alerts
from tests.router.conftest import router_process
from tests.support.prometheus import Prometheus, divide_durations, running
from tests.support.waiting import wait_until

WITHIN_S = 120.0


class Engines:
    """A prefill and a decode engine that answer every request with the same status."""

    def __init__(self) -> None:
        self.status = 200
        self._runners: list[web.AppRunner] = []

    async def start(self, mode: str) -> int:
        """Start another engine, and return its port."""

        async def answer(_: web.Request) -> web.Response:
            return web.json_response({"text": "", "meta_info": {}}, status=self.status)

        async def info(_: web.Request) -> web.Response:
            return web.json_response({"disaggregation_mode": mode, "model_path": "m", "tp_size": 1, "dp_size": 1})

        async def well(_: web.Request) -> web.Response:
            return web.Response(text="ok")

        app = web.Application()
        app.router.add_routes([web.get("/health", well), web.get("/server_info", info), web.get("/model_info", info)])
        app.router.add_post("/generate", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self._runners.append(runner)
        return int(runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop both engines."""
        for runner in self._runners:
            await runner.cleanup()


@pytest.fixture
async def engines() -> AsyncIterator[Engines]:
    made = Engines()
    yield made
    await made.stop()


@pytest.fixture
async def router(engines: Engines, tmp_path: Path) -> AsyncIterator[tuple[int, int]]:
    """Yield the port of a router and the port of its metrics."""
    prefill, decode = [await engines.start(mode) for mode in ("prefill", "decode")]
    port, metrics = ports.choose(2)
    process = router_process(
        tmp_path, port, metrics, "--pd-disaggregation", "--policy=round_robin",
        "--prefill", f"http://127.0.0.1:{prefill}", "8998", "--decode", f"http://127.0.0.1:{decode}",
        "--prometheus-host=127.0.0.1", "--worker-startup-check-interval=1",
        "--disable-circuit-breaker", "--retry-max-retries=1",
    )  # fmt: skip
    await process.start()

    async def serves() -> bool:
        # The router answers 503 until it has the data of both engines. Starting Prometheus delays their answers by seconds.
        try:
            async with aiohttp.request("POST", f"http://127.0.0.1:{port}/generate", json={"text": "x"}) as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    try:
        await wait_until(serves, 60)
        yield port, metrics
    finally:
        await process.stop(signal.SIGTERM)


@pytest.fixture
async def asked(router: tuple[int, int], tmp_path: Path) -> AsyncIterator[Prometheus]:
    """Yield a Prometheus with all alert rules, which scrapes only the router successfully."""
    with running(tmp_path, divide_durations(alerts.rules())) as (made, at, _):
        target = {"targets": [f"127.0.0.1:{router[1]}"], "labels": {"job": "routers", "namespace": "team"}}
        (targets.folder(at) / "pods-router.json").write_text(json.dumps([target]))

        async def answers() -> bool:
            return bool(await asyncio.to_thread(made.targets))

        await wait_until(answers, 60)
        yield made


async def firing(asked: Prometheus) -> set[str]:
    """Return the firing alerts, except those about the operator, which does not run in this test."""
    return await asyncio.to_thread(asked.alerts) - {"OmeNobodyLeads"}


async def test_failing_engines_fire_the_router_alert_but_client_errors_do_not(
    engines: Engines, router: tuple[int, int], asked: Prometheus
) -> None:
    answered: set[int] = set()

    async def load() -> None:
        async with aiohttp.ClientSession() as session:
            while True:
                async with session.post(f"http://127.0.0.1:{router[0]}/generate", json={"text": "x"}) as answer:
                    answered.add(answer.status)
                await asyncio.sleep(0.2)

    async def is_asked() -> bool:
        return bool(await asyncio.to_thread(asked.ask, "rate(smg_router_requests_total[30s]) > 0"))

    async def is_fired() -> bool:
        return await firing(asked) == {"OmeRouterErrors"}

    async def is_quiet() -> bool:
        return not await firing(asked)

    loading = asyncio.create_task(load())
    try:
        await wait_until(is_asked, WITHIN_S)
        engines.status = 400
        pending = 'ALERTS{alertname="OmeRouterErrors"}'
        refused = 'sum(increase(smg_http_responses_total{status_code="400"}[30s])) > 100'

        async def clients_are_wrong() -> bool:
            return bool(await asyncio.to_thread(asked.ask, refused))

        await wait_until(clients_are_wrong, WITHIN_S)
        assert not await asyncio.to_thread(asked.ask, pending), "errors of clients do not count as errors of the router"
        assert answered == {200, 400}
        engines.status = 500
        took = await wait_until(is_fired, WITHIN_S)
        engines.status = 200
        cleared = await wait_until(is_quiet, WITHIN_S)
        print(f"OmeRouterErrors: {took:.0f} s to fire, {cleared:.0f} s to clear, with times divided by ten")
    finally:
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
