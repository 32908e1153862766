"""Tests of the alert OmeRouterStranger in a real Prometheus, with a real router, its registry, and the operator's queries
of that registry.
"""

import asyncio
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from ome_operator import keys
from ome_operator.controllers.router_pages import DirectPages
from ome_operator.controllers.telemetry import Telemetry
from ome_operator.core.observed import from_api
from ome_operator.core.observed.objects import Ref
from ome_operator.machinery import health
from ome_operator.machinery.metrics import Metrics
from release import alerts
from tests.router.conftest import PORT
from tests.router.test_strangers import THIEF, Place, place
from tests.support.prometheus import BY, Prometheus, divide_durations, running, scrape_operator
from tests.support.waiting import wait_until

WITHIN_S = 120.0
DIVIDED_BY = 60
"""Divisor of the durations. The alert clears only half an hour after the last foreign worker was seen."""
ALERT = "OmeRouterStranger"


def router_pod(selector: str) -> dict[str, object]:
    """Return the pod of the router whose registry selects pods by `selector`, as the API server returns it."""
    labels = {**dict(pair.split("=") for pair in selector.split(",")), "component": keys.ROUTER}
    metadata = {"namespace": "team", "name": "svc-router", "uid": "u", "labels": labels}
    return {"metadata": metadata, "status": {"podIP": "127.0.0.1"}}


class Operator:
    """The part of the operator that queries registries, with its page of metrics."""

    def __init__(self, selector: str, page: int) -> None:
        """Query the registry on the port `page`, beside the router of the slice with this selector."""
        pods, self.told = [from_api.pod(router_pod(selector))], list[Ref]()
        opened = partial(DirectPages, page)
        self._telemetry = Telemetry(lambda: pods, self.told.append, lambda: datetime.now(UTC), 1.0, opened)
        self._metrics = Metrics()
        self._metrics.leader.set(1)
        self._metrics.ask("ome_router_strangers_total", lambda: {(): self._telemetry.total})
        self._metrics.ask("ome_routers", self._telemetry.states)

    async def start(self) -> int:
        """Query the registry every second, and return the port of the metrics page."""

        async def shown() -> health.Answer:
            return True, await self._metrics.page()

        self._walking = asyncio.create_task(self._telemetry.run())
        self._served, port = await health.serve("127.0.0.1", 0, {"/metrics": shown})
        return port

    async def stop(self) -> None:
        """Stop querying."""
        self._walking.cancel()
        await asyncio.gather(self._walking, return_exceptions=True)
        await self._served.cleanup()


async def test_foreign_worker_fires_the_alert(tmp_path: Path) -> None:
    """A worker that another user adds to the router makes the alert fire. The router has no key of the operator. With a key,
    other users cannot add workers (tests/router/test_strangers.py).
    """
    async with place(tmp_path, note="false") as here:
        operator = Operator(here.selector, here.page)
        port = await operator.start()
        rules = divide_durations(alerts.rules(), BY, {ALERT: DIVIDED_BY})
        try:
            with running(tmp_path, rules) as (asked, at, _):
                scrape_operator(at, port)
                await _fires_and_clears(here, operator, asked)
        finally:
            await operator.stop()


async def _fires_and_clears(here: Place, operator: Operator, asked: Prometheus) -> None:
    async def counted() -> bool:
        return bool(await asyncio.to_thread(asked.ask, "count_over_time(ome_router_strangers_total[1m]) > 3"))

    async def fires() -> bool:
        return await asyncio.to_thread(asked.alerts) == {ALERT}

    async def quiet() -> bool:
        return not await asyncio.to_thread(asked.alerts)

    await wait_until(counted, WITHIN_S)
    await wait_until(quiet, WITHIN_S)
    operator.told.clear()  # the end of the worker's start is reported, too
    body = {"url": f"http://{THIEF}:{PORT}", "worker_type": "regular"}
    async with here.session.post(f"{here.url}/workers", json=body) as answer:
        assert answer.status < 300, "otherwise the test proves nothing"
    took = await wait_until(fires, WITHIN_S)
    assert operator.told == [Ref("InferenceService", "team", "svc")]
    cleared = await wait_until(quiet, WITHIN_S)
    print(f"{ALERT}: {took:.0f} s to fire, {cleared:.0f} s to clear, with times divided by {DIVIDED_BY}")
