"""Tests that the operator reads the summaries of routers through the API server if it is told to, and only then."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from ome_operator.controllers import router_pages
from ome_operator.controllers.base import CORE
from ome_operator.controllers.manager import Manager
from ome_operator.controllers.router_pages import PROXY_INTERVAL, DirectPages, ProxiedPages, way_of
from ome_operator.controllers.telemetry import Telemetry
from ome_operator.core.observed.telemetry import DrainReport, ForeignWorkers
from ome_operator.kube.client import Client
from ome_operator.kube.connection import Connection
from ome_operator.machinery.metrics import Metrics
from ome_operator.settings import Settings
from tests.support.fake_api import FakeApi
from tests.support.simulator import START
from tests.unit.controllers.registries import (
    HOSTILE,
    NOW,
    PROXY,
    SERVICE,
    TOKEN,
    Registry,
    pod,
    registries,
    summary,
)

pytestmark = pytest.mark.looptime


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[Registry]:
    async with registries(tmp_path) as item:
        yield item


# --- what is asked, and when --------------------------------------------------------------------------------------------


async def test_a_summary_is_read_through_the_api_server_with_the_operators_token(registry: Registry) -> None:
    registry.answers(summary(2, 5.0))
    assert await registry.walk() == {"u": ForeignWorkers(2, NOW - 5)} and registry.news == [SERVICE]
    (asked,) = registry.asked
    assert asked["path"] == f"{PROXY}/summary" and asked["Authorization"] == f"Bearer {TOKEN}"
    assert asked["Accept-Encoding"] == "identity" and asked["User-Agent"] == "ome-operator"


async def test_metrics_are_read_from_a_registry_without_summary(registry: Registry) -> None:
    registry.pages["/metrics"] = 200, "", {}
    await registry.walk()
    assert [each["path"] for each in registry.asked] == [f"{PROXY}/summary", f"{PROXY}/metrics"]
    assert registry.telemetry.states()["old",] == 1


@pytest.mark.parametrize(
    ("settings", "interval", "way"),
    [
        (Settings(), 0.0, DirectPages),
        (Settings(router_watch=5.0), 5.0, DirectPages),
        (Settings(router_proxy=True), PROXY_INTERVAL, ProxiedPages),
        (Settings(router_proxy=True, router_watch=5.0), 5.0, DirectPages),
    ],
)
async def test_summaries_use_the_api_server_only_with_the_option(
    registry: Registry, settings: Settings, interval: float, way: type, tmp_path: Path
) -> None:
    """Without the option, no summary is requested from the API server. A direct interval takes precedence over it."""
    client = Client(await Connection.open(tmp_path / "kubeconfig"))
    found, opened = way_of(settings, client)
    assert found == interval
    async with opened() as pages:
        assert type(pages) is way
    await client.close()
    assert registry.asked == []


async def test_operator_outside_the_cluster_reads_no_router_without_the_option(registry: Registry, tmp_path: Path) -> None:
    client = Client(await Connection.open(tmp_path / "kubeconfig"))
    deaf = Telemetry(lambda: registry.pods, registry.news.append, lambda: START, *way_of(Settings(), client))
    await asyncio.wait_for(deaf.run(), 1)
    await client.close()
    assert registry.asked == []


async def test_class_demand_does_not_use_proxied_numbers() -> None:
    """The samples of `status.traffic` use the proxied numbers. The autoscaler of the class Demand does not, because its
    reason would change every few seconds.
    """
    manager = Manager(Settings(router_proxy=True), CORE, FakeApi(), Metrics(), lambda: START)
    assert (manager._telemetry._interval, manager._traffic._heard, manager._demand._heard) == (PROXY_INTERVAL, True, False)


async def test_each_router_is_read_at_most_every_thirty_seconds(registry: Registry) -> None:
    """A router is asked again 30 s after an answer and after a failure, and new routers are spread over this time."""
    assert PROXY_INTERVAL == 30
    registry.telemetry._interval = PROXY_INTERVAL
    loop = asyncio.get_running_loop()
    for status in (200, 500, 403, 500, 500):
        registry.answers(summary(), status=status)
        await registry.walk()
        assert registry.telemetry._known["u"].due_at - loop.time() == pytest.approx(PROXY_INTERVAL, abs=1)
    asked = len(registry.asked)
    for _ in range(3):
        await registry.telemetry._begin(registry.through)
        await asyncio.sleep(0.01)
    assert len(registry.asked) == asked
    first = [registry.telemetry._new(pod(uid=f"u{each}"), 0.0, registry.through.spread).due_at for each in range(200)]
    assert min(first) < 3 and 27 < max(first) <= PROXY_INTERVAL


async def test_proxied_numbers_are_fresh_for_two_thirds_of_the_time(registry: Registry) -> None:
    registry.answers(summary())
    known = 0
    for second in range(60):
        registry.now = START + timedelta(seconds=second)
        if second % PROXY_INTERVAL == 0:
            await registry.walk()
        known += bool(registry.telemetry.reports(registry.pods))
        assert registry.telemetry.states()["fresh",] == 1, "or an alert about silent routers would fire"
    assert 38 <= known <= 42
    registry.now += timedelta(seconds=PROXY_INTERVAL)
    assert registry.telemetry.states()["silent",] == 1, "a request has failed since"


async def test_at_most_32_routers_are_read_concurrently(registry: Registry) -> None:
    registry.answers(summary())
    registry.delay = 0.05
    pods = [pod(uid=f"u{each}", namespace=f"n{each % 10}") for each in range(80)]
    registry.telemetry._known = {each.uid: registry.telemetry._new(each, -60.0, 0.0) for each in pods}
    registry.pods = pods
    await registry.telemetry._begin(registry.through)
    await asyncio.gather(*registry.telemetry._busy.values())
    assert len(registry.asked) == 80 and registry.most == router_pages.AT_ONCE == 32


# --- what answers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", HOSTILE)
async def test_malformed_proxied_response_changes_nothing(
    registry: Registry, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    registry.answers(summary(1, 5.0, running=7))
    await registry.walk()
    registry.news.clear()
    registry.pages["/summary"] = HOSTILE[case]
    with caplog.at_level("INFO"):
        for _ in range(4):
            assert await registry.walk() == {"u": ForeignWorkers(1, NOW - 5)}
    assert not registry.news and registry.drains() == {"leader": (DrainReport("u", NOW - 4, 7, 0),)}
    told = [each for each in caplog.messages if "the summary of the router team/r is not used: " in each]
    assert len(told) == 1 and "169.254" not in told[0] and "hello" not in told[0]
    assert len(registry.asked) == 5, "no redirect is followed, and a 401 of a pod renews no credentials"


async def test_unanswered_request_ends_after_two_seconds(registry: Registry) -> None:
    registry.answers(summary())
    registry.delay = 60.0
    started = asyncio.get_running_loop().time()
    await registry.walk()
    assert 1.5 < asyncio.get_running_loop().time() - started < 4 and registry.telemetry.states()["silent",] == 1


async def test_pod_response_text_is_not_logged(registry: Registry, caplog: pytest.LogCaptureFixture) -> None:
    words = '{"kind": "Status", "message": "hello from the pod"}'
    headers = {"Content-Type": "application/json"}
    with caplog.at_level("DEBUG", logger="ome_operator"):
        for status in (403, 404, 409, 422, 429, 500, 503):
            for _ in range(3):
                registry.pages["/summary"] = status, words, headers
                await registry.walk()
    assert "the response has the status 503" in caplog.text and "hello" not in caplog.text


async def test_cookies_of_pods_are_not_stored(registry: Registry) -> None:
    registry.pages["/summary"] = 200, "", {"Set-Cookie": "of=tenant; Path=/"}
    await registry.walk()
    await registry.walk()
    assert [each.get("Cookie") for each in registry.asked] == [None, None]


async def test_missing_proxy_permission_is_logged_once(registry: Registry, caplog: pytest.LogCaptureFixture) -> None:
    """Without the right to `get pods/proxy`, the operator knows no load of routers. It logs this once, however many of its
    requests are refused.
    """
    registry.answers(status=403)
    registry.pods = [pod(uid=f"u{each}") for each in range(20)]
    with caplog.at_level("INFO"):
        for _ in range(4):
            await registry.walk()
    told = [each for each in caplog.messages if "router" in each]
    assert len(told) == 1 and "no right to `get pods/proxy`: set registry.podsProxy=true in the chart" in told[0]
    assert registry.telemetry.states() == {("fresh",): 0, ("old",): 0, ("silent",): 20} and not registry.drains()
    registry.answers(summary())
    await registry.walk()
    assert registry.telemetry.states()["fresh",] == 20, "a right that is granted later is enough"


async def test_log_states_how_long_the_numbers_are_fresh(registry: Registry, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        async with registry.telemetry._opened():
            pass
    assert "of each router every 30 s, so the load is unknown for about a third of the time" in caplog.text
