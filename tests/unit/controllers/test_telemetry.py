"""Tests that the operator reads the summaries of the registries next to routers, whatever else answers there."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ome_operator import keys
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.controllers import telemetry
from ome_operator.controllers.registry_page import foreign_workers
from ome_operator.controllers.router_pages import DirectPages
from ome_operator.controllers.telemetry import SLOW_AFTER, Telemetry, owned_routers
from ome_operator.core.observed.objects import Deps
from ome_operator.core.observed.telemetry import DrainReport, ForeignWorkers
from ome_operator.names import slice_mark
from ome_operator.registry.metrics import RegistryMetrics
from tests.support.simulator import START
from tests.unit.controllers.registries import (
    GOING,
    HOSTILE,
    NOW,
    SELECTOR,
    SERVICE,
    Registry,
    pod,
    registries,
    summary,
)

pytestmark = pytest.mark.looptime
NAMES = st.sampled_from([f"{keys.FOREIGN_WORKERS}_total", keys.FOREIGN_WORKER_AT])
NUMBERS = st.floats() | st.integers() | st.from_regex(r"-?[0-9.e+-]{1,400}", fullmatch=True) | st.text(max_size=9)


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    async with registries() as item:
        yield item


# --- facts --------------------------------------------------------------------------------------------------------------


async def test_foreign_workers_make_the_service_dirty_once(registry: Registry) -> None:
    registry.answers(summary())
    assert await registry.walk() == {} and not registry.news
    registry.answers(summary(2, 5.0))
    assert await registry.walk() == {"u": ForeignWorkers(2, NOW - 5)}
    assert registry.news == [SERVICE] and registry.telemetry.total == 2
    registry.now += timedelta(seconds=5)
    registry.answers(summary(2, 9.0))
    assert await registry.walk() == {"u": ForeignWorkers(2, NOW - 5)}, "the age is rounded, so the computed time would vary"
    assert len(registry.news) == 1
    registry.answers(summary(3, 0.0))
    await registry.walk()
    assert len(registry.news) == 2 and registry.telemetry.total == 3


async def test_changing_numbers_do_not_wake_but_an_idle_draining_leader_does(registry: Registry) -> None:
    for running in (5, 9, 0, 3):
        registry.answers(summary(running=running))
        await registry.walk()
    assert registry.drains() == {"leader": (DrainReport("u", NOW - 4, 3, 0),)} and not registry.news
    registry.answers(summary(running=0, empty=1))
    await registry.walk()
    assert not registry.news
    for empty in (2, 3, 4):
        registry.answers(summary(running=0, empty=empty))
        await registry.walk()
    assert registry.news == [SERVICE] and registry.drains() == {"leader": (DrainReport("u", NOW - 4, 0, 4),)}


async def test_drain_reports_are_returned_only_for_draining_leaders(registry: Registry) -> None:
    registry.answers(summary())
    await registry.walk()
    assert registry.telemetry.drains(registry.pods) == {}
    assert registry.telemetry.drains([*registry.pods, GOING._replace(draining="")]) == {}


async def test_numbers_older_than_twenty_seconds_are_unknown(registry: Registry) -> None:
    registry.answers(summary())
    await registry.walk()
    assert registry.telemetry.states()["fresh",] == 1
    registry.now += timedelta(seconds=21)
    assert registry.drains() == {} and registry.telemetry.states()["silent",] == 1


async def test_numbers_are_unknown_after_the_clock_was_set_back(registry: Registry) -> None:
    registry.answers(summary())
    await registry.walk()
    registry.now -= timedelta(hours=1)
    assert registry.drains() == {}


async def test_summary_request_sends_no_token_and_accepts_no_compression(registry: Registry) -> None:
    registry.answers(summary())
    await registry.walk()
    (asked,) = registry.asked
    assert asked["path"] == "/summary" and "Authorization" not in asked and asked["Accept-Encoding"] == "identity"


async def test_pods_without_address_or_ended_are_not_read(registry: Registry) -> None:
    registry.pods = [pod(ip=""), pod()._replace(over=True)]
    await registry.walk()
    assert registry.asked == []
    registry.answers(summary())
    registry.pods = [pod(deletionTimestamp="2026-01-01T00:00:00Z")]
    await registry.walk()
    assert len(registry.asked) == 1, "a terminating router may still have requests"


# --- a registry of the version before -----------------------------------------------------------------------------------


def metrics_page(count: int, at: float) -> str:
    """Return the metrics page of a registry."""
    metrics = RegistryMetrics()
    metrics.count_foreign(count, at)
    return metrics.render(())


async def test_a_registry_without_a_summary_still_reports_foreign_workers(registry: Registry) -> None:
    registry.pages["/metrics"] = 200, metrics_page(2, NOW - 5), {}
    assert await registry.walk() == {"u": ForeignWorkers(2, NOW - 5)}
    assert [each["path"] for each in registry.asked] == ["/summary", "/metrics"]
    assert registry.drains() == {} and registry.telemetry.states()["old",] == 1
    registry.answers(summary(2, 5.0))
    await registry.walk()
    assert registry.telemetry.states()["fresh",] == 1, "the registry was upgraded"


@given(st.text() | st.builds("{} {}\n{} {}".format, NAMES, NUMBERS, NAMES, NUMBERS))
def test_any_metrics_page_gives_bounded_numbers_or_none(text: str) -> None:
    found = foreign_workers(text, NOW)
    assert found is None or (0 < found.found < 2**53 and 0.0 <= found.at <= NOW)


def test_future_time_counts_as_now() -> None:
    assert foreign_workers(metrics_page(1, NOW + 1e12), NOW) == ForeignWorkers(1, NOW)
    assert foreign_workers(metrics_page(1, -1e300), NOW) == ForeignWorkers(1, 0.0)


# --- whatever answers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", HOSTILE)
async def test_malformed_summary_changes_nothing(registry: Registry, case: str, caplog: pytest.LogCaptureFixture) -> None:
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


async def test_unreachable_router_affects_no_other(registry: Registry) -> None:
    registry.answers(summary())
    registry.pods = [pod(ip="127.0.0.77", uid="gone"), pod()]
    await registry.walk()
    assert registry.telemetry.states() == {("fresh",): 1, ("old",): 0, ("silent",): 1}


async def test_reports_of_deleted_routers_are_removed(registry: Registry) -> None:
    registry.answers(summary(1, 5.0))
    await registry.walk()
    registry.pods = []
    await registry.walk()
    assert registry.telemetry.strangers([pod()]) == {}


async def test_exception_while_parsing_affects_one_router(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise IndexError("string index out of range")

    registry.answers(summary())
    monkeypatch.setattr(telemetry, "parse_report", broken)
    await registry.walk()
    assert registry.telemetry.states()["silent",] == 1


# --- turns --------------------------------------------------------------------------------------------------------------


async def test_one_namespace_uses_at_most_a_quarter_of_the_connections(registry: Registry) -> None:
    registry.answers(summary())
    registry.delay = 0.02
    registry.pods = [pod(uid=f"u{each}") for each in range(40)]
    await registry.walk()
    assert registry.most == telemetry.OF_A_NAMESPACE and len(registry.asked) == 40


async def test_hanging_routers_do_not_delay_other_namespaces(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred routers of one namespace that never answer do not delay the reading of a router in another namespace."""
    registry.answers(summary())
    port = registry.port
    hung = await asyncio.start_server(lambda *_: asyncio.sleep(60), "127.0.0.78", port)
    registry.pods = [pod(ip="127.0.0.78", uid=f"h{each}", namespace="noisy") for each in range(100)] + [pod()]
    quick = Telemetry(lambda: registry.pods, registry.news.append, lambda: registry.now, 0.2, partial(DirectPages, port))
    async with hung:
        running = asyncio.create_task(quick.run())
        await asyncio.sleep(3)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert len(registry.asked) >= 8, "read again and again, while the first round of the other namespace continues"


async def test_router_that_fails_repeatedly_is_read_less_often(registry: Registry) -> None:
    registry.answers(status=500)
    registry.telemetry._interval = 5.0
    dues = []
    for _ in range(SLOW_AFTER + 1):
        await registry.walk()
        dues.append(registry.telemetry._known["u"].due_at - asyncio.get_running_loop().time())
    assert [round(due) for due in dues] == [5, 5, 30, 30]
    registry.answers(summary())
    await registry.walk()
    assert registry.telemetry._known["u"].failures == 0


async def test_router_watch_without_interval_reads_nothing_and_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    deaf = Telemetry(lambda: [pod()], lambda _: None, lambda: START, 0.0)
    with caplog.at_level("INFO"):
        await asyncio.wait_for(deaf.run(), 1)
    assert "no load is requested from routers" in caplog.text and not any(deaf.states().values())


async def test_summaries_of_a_namespace_share_a_size_limit(registry: Registry) -> None:
    """The summaries of one namespace are read up to a common bound, which does not affect a router of another namespace."""
    registry.pods = [pod(ip="127.0.0.1", uid=f"n{each}", namespace="noisy") for each in range(20)]
    registry.answers(summary(slice=slice_mark("noisy", SELECTOR), unused="x" * (200 * 1024)))
    await registry.walk()
    longest = telemetry.OF_NAMESPACE // (200 * 1024)
    assert registry.telemetry.states() == {("fresh",): longest, ("old",): 0, ("silent",): 20 - longest}
    registry.pods.append(pod())
    registry.answers(summary())
    await registry.walk()
    assert registry.telemetry.reports(registry.pods).keys() >= {"u"}, "another namespace has a bound of its own"
    registry.pods = registry.pods[longest:]
    registry.answers(summary(slice=slice_mark("noisy", SELECTOR), unused="x" * (200 * 1024)))
    await registry.walk()
    assert registry.telemetry.states()["fresh",] == longest + 1, "routers that are gone leave their part to the others"


# --- whose routers ------------------------------------------------------------------------------------------------------


def test_only_pods_of_deployments_owned_by_uid_are_read() -> None:
    cache = ClusterCache(Deps())
    meta = {"namespace": "team", "resourceVersion": "1"}
    cache.store_observed("InferenceService", {"metadata": {**meta, "name": "svc", "uid": "S"}, "spec": {}})
    labels = {"ome.io/inferenceservice": "svc", "component": "router", "ome.io/managed-by": "ome-operator"}
    for name, owner in (("svc-router-r1", "S"), ("svc-router-r2", "former")):
        ref = [{"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "name": "svc", "uid": owner, "controller": True}]
        cache.store_observed(
            "Deployment", {"metadata": {**meta, "name": name, "uid": name, "labels": labels, "ownerReferences": ref}}
        )
    for number, workload in enumerate(("svc-router-r1-5f4d", "svc-router-r2-5f4d", "svc-router-r1", "mine-5f4d", "")):
        ref = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": workload, "uid": "x", "controller": True}]
        of = {**labels, "ome.io/revision": "r2" if "r2" in workload else "r1"}
        about = {**meta, "name": f"p{number}", "uid": f"p{number}", "labels": of, "ownerReferences": ref}
        cache.store_observed("Pod", {"metadata": about, "status": {"podIP": "10.0.0.1"}})
    assert [each.uid for each in owned_routers(cache)] == ["p0"]
