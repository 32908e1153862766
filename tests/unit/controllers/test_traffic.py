"""Tests of the traffic samples of services: once a minute, not while a service is frozen, and kept across a restart."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from ome_operator.cache.resources import SERVICE
from ome_operator.controllers.traffic import FIRST, TICK, TrafficSampler
from ome_operator.core.observed.objects import Pod, Ref
from ome_operator.core.observed.telemetry import RouterReport, WorkRates
from ome_operator.core.status.traffic import PAUSE
from tests.support.simulator import START
from tests.unit.controllers.makers import cluster

REF = Ref(SERVICE, "ns", "svc")


class MeasuredService:
    """A service with a router whose numbers the test sets."""

    def __init__(self, interval: float = 5.0, **status: Any) -> None:
        self.handler, self.now, self.rate, self.news = cluster(), START, 5.0, list[Ref]()
        self.see(status=status)
        labels = {"ome.io/inferenceservice": "svc", "component": "router", "ome.io/revision": "r1"}
        metadata = {
            "namespace": "ns",
            "name": "svc-router-r1-5b9f8-x2x4z",
            "uid": "r",
            "labels": labels,
            "resourceVersion": "1",
        }
        self.handler.handle_observed(
            "Pod", {"metadata": metadata, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        )
        self.samples = TrafficSampler(self.handler.cache, self.reports, self.news.append, lambda: self.now, interval)

    def see(self, version: int = 1, status: Mapping[str, Any] | None = None, **annotations: str) -> None:
        """Show the operator a version of the service, as a watch event does."""
        metadata = {
            "name": "svc",
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": str(version),
            "annotations": annotations,
        }
        self.handler.handle_observed(SERVICE, {"metadata": metadata, "spec": {"engine": {}}, "status": status or {}})

    def reports(self, pods: Iterable[Pod]) -> Mapping[str, RouterReport]:
        """Return a report of each router."""
        at = self.now.timestamp()
        return {pod.uid: RouterReport(at, 0, 0.0, WorkRates(at, 60.0, {"requests": self.rate}, {}), 0, {}) for pod in pods}

    async def wait(self, seconds: float) -> None:
        """Let time pass in ticks, with a sample after each."""
        end = self.now + timedelta(seconds=seconds)
        while self.now < end:
            self.now += timedelta(seconds=TICK)
            await self.samples.sample_due()

    def field(self) -> dict[str, Any] | None:
        """Return the value of the service's `status.traffic`; None if it has none."""
        service = self.handler.cache.find_resource(REF)
        assert service is not None
        return self.samples.of(service)


async def test_constantly_changing_numbers_change_the_sample_once_a_minute() -> None:
    here = MeasuredService()
    await here.wait(FIRST + PAUSE)
    first = here.field()
    assert first is not None and first["requestsPerSecond"] == 5 and here.news == [REF]
    seen = [first["time"]]
    for rate in range(1, 61):  # ten minutes
        here.rate = float(2**rate)
        await here.wait(10)
        field = here.field()
        assert field is not None
        seen.append(field["time"])
    assert len(set(seen)) == 11 and len(here.news) == 11


async def test_steady_numbers_are_written_every_ten_minutes() -> None:
    here = MeasuredService()
    await here.wait(3600)
    assert 6 <= len(here.news) <= 7


async def test_frozen_service_keeps_its_traffic_sample() -> None:
    here = MeasuredService()
    await here.wait(FIRST + PAUSE)
    before = here.field()
    here.see(2, None, **{"ome.io/freeze": "true"})
    here.rate = 500.0
    await here.wait(3600)
    assert here.field() == before and here.news == [REF]
    here.see(3)
    await here.wait(2 * TICK)
    assert here.news == [REF, REF]


async def test_stored_sample_is_kept_after_restart_until_routers_were_read() -> None:
    stored = {"time": "2025-12-31T23:59:30Z", "requestsPerSecond": 5}
    here = MeasuredService(traffic=stored)
    assert here.field() == stored
    await here.wait(FIRST - TICK)
    assert here.field() == stored and not here.news


@pytest.mark.parametrize("stored", ["text", [1], 5, {"time": [1]}])
async def test_malformed_stored_sample_is_replaced(stored: Any) -> None:
    here = MeasuredService(traffic=stored)
    await here.wait(FIRST + PAUSE)
    field = here.field()
    assert field is not None and field["requestsPerSecond"] == 5


async def test_sample_is_unknown_if_routers_are_not_read() -> None:
    here = MeasuredService(interval=0.0, traffic={"time": "2025-12-31T23:59:30Z", "requestsPerSecond": 5})
    await here.samples.run()
    assert here.field() is None


async def test_clock_that_was_set_back_does_not_delay_a_sample() -> None:
    here = MeasuredService()
    await here.wait(FIRST + PAUSE)
    here.now -= timedelta(days=1)
    here.rate = 50.0
    await here.wait(TICK)
    field = here.field()
    assert field is not None and field["requestsPerSecond"] == 50


async def test_sample_of_a_deleted_service_is_removed() -> None:
    here = MeasuredService()
    await here.wait(FIRST + PAUSE)
    service = here.handler.cache.find_resource(REF)
    assert service is not None and here.samples.of(service) is not None
    here.handler.handle_deleted(SERVICE, "u", 9)
    await here.wait(TICK)
    assert here.samples.of(service) is None
