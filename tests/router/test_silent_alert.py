"""Tests of the alert OmeRoutersSilent in a real Prometheus, with a registry that stops answering the operator."""

import asyncio
from pathlib import Path

from aiohttp import web
from aiohttp.test_utils import TestServer

from ome_operator.names import slice_mark
from release import alerts
from tests.router.test_stranger_alert import Operator
from tests.support.prometheus import BY, divide_durations, running, scrape_operator
from tests.support.waiting import wait_until

WITHIN_S = 180.0
DIVIDED_BY = 60
ALERT = "OmeRoutersSilent"
SELECTOR = "ome.io/managed-by=ome-operator,ome.io/inferenceservice=svc,ome.io/revision=r1"


class Registry:
    """A registry that answers while `answers` is set."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.answers.set()

    async def summary(self, _: web.Request) -> web.Response:
        """Return a summary without leaders."""
        await self.answers.wait()
        body = {"version": 1, "slice": slice_mark("team", SELECTOR), "strangers": {"found": 0, "age": None}}
        return web.json_response({**body, "router": {}, "leaders": [], "omitted": 0})


async def test_unresponsive_router_registry_fires_the_alert(tmp_path: Path) -> None:
    registry, app = Registry(), web.Application()
    app.router.add_get("/summary", registry.summary)
    async with TestServer(app) as server:
        assert server.port is not None
        operator = Operator(SELECTOR, server.port)
        port = await operator.start()
        rules = divide_durations(alerts.rules(), BY, {ALERT: DIVIDED_BY})
        try:
            with running(tmp_path, rules) as (asked, at, _):
                scrape_operator(at, port)

                async def heard() -> bool:
                    found = await asyncio.to_thread(asked.ask, 'ome_routers{state="fresh"} == 1')
                    return bool(found) and not await asyncio.to_thread(asked.alerts)

                async def fires() -> bool:
                    return await asyncio.to_thread(asked.alerts) == {ALERT}

                await wait_until(heard, WITHIN_S)
                registry.answers.clear()
                took = await wait_until(fires, WITHIN_S)
                registry.answers.set()
                cleared = await wait_until(heard, WITHIN_S)
                print(f"{ALERT}: {took:.0f} s to fire, {cleared:.0f} s to clear, with times divided by {DIVIDED_BY}")
        finally:
            registry.answers.set()
            await operator.stop()
