"""The autoscaler of the class Demand beside reconciliations: what it reads, when it stores a decision, and a restart."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest

from ome_operator.cache.resources import SERVICE
from ome_operator.controllers.demand import FIRST, PAUSE, REPEAT, DemandScaler, _Asks
from ome_operator.core.demand.estimate import PERIOD
from ome_operator.core.demand.facts import KEPT, NO_PLAN, GroupBounds, PlannedSpeeds
from ome_operator.core.demand.stored import to_status
from ome_operator.core.demand.task import APPLY, RECOMMEND, DemandTask, MeasuredStart
from ome_operator.core.observed.objects import Pod, Ref
from ome_operator.core.observed.telemetry import LeaderLoad, LeaderReport, RouterReport, WorkRates
from ome_operator.core.placement.demand import Demand
from ome_operator.core.placement.fit import Need, Needs
from tests.support.simulator import START
from tests.unit.controllers.makers import cluster
from tests.unit.core.demand.loads import TARGETS, fleet, state

REF = Ref(SERVICE, "ns", "svc")
ROLES = {"prefill": "engine", "decode": "decoder"}


class Follower:
    """A service with a router, whose numbers and task a test sets."""

    def __init__(self, names: Iterable[str] = ("svc",), **status: Any) -> None:
        self.handler, self.now, self.news = cluster(), START, list[Ref]()
        self.rate: float | None = 4.0
        self.room = True
        for name in names:
            self.see(name, status)
        self.scaler = self.restarted()
        self.task = DemandTask(APPLY, fleet(), TARGETS, (2, 1, 1), roles=ROLES)

    def restarted(self, interval: float = 5.0) -> DemandScaler:
        """Return the autoscaler of a new process, which asks routers at this interval."""
        return DemandScaler(self.handler.cache, self.reports, self.has_room, self.news.append, lambda: self.now, interval)

    def see(self, name: str, status: Mapping[str, Any], namespace: str = "ns") -> None:
        """Deliver a service with a router."""
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": name if namespace == "ns" else f"{namespace}-{name}",
            "resourceVersion": "1",
        }
        self.handler.seen(SERVICE, {"metadata": metadata, "spec": {"engine": {}}, "status": status})
        labels = {"ome.io/inferenceservice": name, "component": "router", "ome.io/revision": "r1"}
        metadata = {"namespace": namespace, "name": f"{name}-r", "labels": labels, "resourceVersion": "1"}
        metadata["uid"] = f"{name}-r" if namespace == "ns" else f"{namespace}-{name}-r"
        self.handler.seen("Pod", {"metadata": metadata, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})

    def has_room(self, ref: Ref, needs: Needs, now: datetime) -> bool:
        """Return whether nodes are free."""
        return self.room

    def reports(self, pods: Iterable[Pod]) -> Mapping[str, RouterReport]:
        """Return a report of each router, with a leader of each role."""
        if self.rate is None:
            return {}
        at, rate = self.now.timestamp(), self.rate
        work = {"requests": rate, "promptTokens": 1000 * rate, "outputTokens": 100 * rate, "errors": 0.0}
        histogram = {"firstToken": ((1.0, 30 * rate), (4.0, 30 * rate))}
        load = LeaderLoad(at, round(2 * rate), 0, 0, 0.4)
        leaders = {
            role: LeaderReport(role, "serving", load, WorkRates(at, 60.0, work, histogram)) for role in ("prefill", "decode")
        }
        return {pod.uid: RouterReport(at, 0, 0.0, WorkRates(at, 60.0, work, {}), 8, leaders) for pod in pods}

    async def wait(self, seconds: float = PERIOD, **task: Any) -> None:
        """Let time pass, with a reconciliation and a decision every ten seconds."""
        self.task = self.task._replace(**task)
        for _ in range(round(seconds / PERIOD)):
            self.now += timedelta(seconds=PERIOD)
            self.scaler.report(REF, self.task)
            await self.scaler.decide_all()

    def field(self) -> dict[str, Any]:
        """Return the value of `status.scaling`."""
        service = self.handler.cache.find(REF)
        assert service is not None
        return self.scaler.of(service) or {}


STORED = {"mode": "Apply", "applied": {"engine": 2, "decoder": 1}, **to_status(state())}


async def test_nothing_is_decided_before_every_router_was_asked() -> None:
    here = Follower(scaling=STORED)
    await here.wait(FIRST - PERIOD)
    assert here.field() == STORED and not here.news
    await here.wait(2 * PERIOD)
    assert here.field()["wanted"] == {"prefill": 2, "decode": 1, "routers": 1}


async def test_numbers_that_move_cause_one_write_an_hour() -> None:
    here = Follower(scaling=STORED)
    await here.wait(FIRST + PAUSE)
    here.news.clear()
    for step in range(720):  # two hours
        here.rate = 3.9 + 0.2 * (step % 2)
        await here.wait()
    assert len(here.news) == 2
    assert here.field()["days"][-1]["gpuHours"] > 20


async def test_a_burst_is_stored_at_once_with_the_numbers_that_count() -> None:
    here = Follower(scaling=STORED)
    await here.wait(FIRST + 2 * PAUSE)
    here.news.clear()
    here.rate = 40.0
    await here.wait(20)
    assert here.news and here.field()["applied"]["engine"] > 5
    assert here.field()["applied"] == {
        "engine": here.field()["wanted"]["prefill"],
        "decoder": here.field()["wanted"]["decode"],
    }
    assert "requests/s arrive" in here.field()["why"]


async def test_recommend_stores_no_number_that_counts() -> None:
    here = Follower(scaling=STORED)
    here.rate = 40.0
    await here.wait(300, mode=RECOMMEND)
    assert here.field()["wanted"]["prefill"] > 5 and "applied" not in here.field()


async def test_a_change_of_the_mode_begins_with_the_size_that_exists() -> None:
    here = Follower(scaling={**STORED, "mode": "Recommend", "wanted": {"prefill": 9, "decode": 9, "routers": 1}})
    await here.wait(FIRST)
    assert here.field()["applied"] == {"engine": 2, "decoder": 1}


async def test_a_silent_router_makes_the_numbers_unknown_and_keeps_the_size() -> None:
    here = Follower(scaling=STORED)
    await here.wait(FIRST + PAUSE)
    here.rate = None
    await here.wait(1200)
    assert here.field()["hold"] == "Unknown" and here.field()["applied"] == {"engine": 2, "decoder": 1}
    here.news.clear()
    await here.wait(300)
    assert not here.news


async def test_a_restart_keeps_what_was_learned_and_writes_nothing() -> None:
    here = Follower(scaling=STORED)
    await here.wait(1200)
    kept = here.field()
    service = here.handler.cache.find(REF)
    assert service is not None
    here.see("svc", {"scaling": kept})
    body = {"name": "svc", "namespace": "ns", "uid": "svc", "resourceVersion": "2"}
    here.handler.seen(SERVICE, {"metadata": body, "spec": {"engine": {}}, "status": {"scaling": kept}})
    here.scaler, here.news = here.restarted(), []
    assert here.field() == kept
    await here.wait(FIRST + PERIOD)
    assert here.field() == kept and not here.news
    assert here.field()["learned"]["startSeconds"] == [100]


async def test_starts_are_learned_once() -> None:
    here = Follower(scaling=STORED)
    starts = tuple(MeasuredStart(f"u{number}", f"2026-01-01T00:00:{number:02}Z", 60.0 + number) for number in range(3))
    await here.wait(FIRST + 300, starts=starts)
    here.rate = 40.0
    await here.wait(20)
    assert here.field()["learned"]["startSeconds"] == [100], "the groups existed before this process"
    here.rate = 80.0
    await here.wait(60, starts=(*starts, MeasuredStart("u9", "2026-01-01T00:09:00Z", 50.0)))
    here.rate = 1.0
    await here.wait(2 * KEPT + REPEAT)
    assert here.field()["learned"]["startSeconds"] == [100, 50]


async def test_samples_are_bounded() -> None:
    here = Follower(scaling=STORED)
    await here.wait(7200)
    followed = here.scaler._followed["svc"]
    assert len(followed.samples) <= 67


async def test_nodes_without_capacity_limit_the_size() -> None:
    here = Follower(scaling=STORED)
    await here.wait(FIRST + PAUSE)
    here.room, here.rate = False, 40.0
    await here.wait(300)
    assert here.field()["hold"] == "NoRoom" and here.field()["applied"] == {"engine": 2, "decoder": 1}


async def test_a_service_that_is_gone_or_has_another_class_is_left_alone() -> None:
    here = Follower(scaling=STORED)
    await here.wait(FIRST + PAUSE)
    here.scaler._planner._kept[REF] = {}
    here.scaler.report(REF, None)
    here.news.clear()
    kept = here.field()
    for _ in range(100):
        here.now += timedelta(seconds=PERIOD)
        here.rate = 40.0
        await here.scaler.decide_all()
    assert here.field() == kept and not here.news, "its task is unknown while its spec cannot be read"
    assert not here.scaler._planner._kept, "its predictions are forgotten"
    here.handler.gone(SERVICE, "svc", 9)
    here.scaler.report(REF, here.task)
    await here.scaler.decide_all()
    assert not here.scaler._followed and not here.scaler._tasks


async def test_an_error_affects_one_service_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    here = Follower(("a", "svc"), scaling=STORED)
    broken = here.task._replace(targets=TARGETS._replace(bounds={}))
    for _ in range(5):
        here.scaler.report(Ref(SERVICE, "ns", "a"), broken)
        await here.wait()
    assert here.field()["wanted"]["prefill"] == 2
    assert caplog.text.count("cannot decide the size of ns/a") == 1


@pytest.mark.parametrize("stored", ["text", [1], 5, {"wanted": [1]}, {"days": "x", "learned": 3}])
async def test_a_stored_field_that_is_something_else_is_replaced(stored: Any) -> None:
    here = Follower(scaling=stored)
    await here.wait(FIRST + PERIOD)
    assert here.field()["wanted"] == {"prefill": 2, "decode": 1, "routers": 1}


async def test_unmeasured_services_hold_until_requests_waited() -> None:
    here = Follower()
    await here.wait(300)
    assert here.field()["hold"] == "Unmeasured"
    assert here.field()["applied"] == {"engine": 2, "decoder": 1}


async def test_sentences_that_alternate_cause_one_write_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prediction may exist for one class of request lengths and not for the next one."""
    here, asked = Follower(), count()

    async def alternates(*_: Any) -> PlannedSpeeds:
        return PlannedSpeeds(missing=f"why {next(asked) % 2}")

    monkeypatch.setattr(here.scaler._planner, "of", alternates)
    await here.wait(300)
    here.news.clear()
    await here.wait(605)
    assert here.field()["hold"] == "Unmeasured" and 2 <= len(here.news) <= 10
    here.news.clear()

    async def settles(*_: Any) -> PlannedSpeeds:
        return PlannedSpeeds(missing="why 2")

    monkeypatch.setattr(here.scaler._planner, "of", settles)
    await here.wait(2 * PAUSE)
    assert here.field()["why"].endswith("why 2") and len(here.news) == 1


async def test_an_operator_that_asks_no_router_says_so_and_changes_nothing() -> None:
    here = Follower(scaling=STORED)
    here.scaler, here.rate = here.restarted(0.0), 40.0
    await here.wait(300)
    assert here.field()["hold"] == "Unheard" and "its option `router-watch` is 0: set it to 5" in here.field()["why"]
    assert here.field()["applied"] == {"engine": 2, "decoder": 1}
    assert sum(one.get("hold") == "Unheard" for one in here.field()["decisions"]) == 1


async def test_a_number_that_somebody_sets_counts_before_the_next_decision() -> None:
    here = Follower(scaling=STORED)
    await here.wait(FIRST + PERIOD)
    bounds = {**TARGETS.bounds, "decode": GroupBounds(4, 4)}
    here.scaler.report(REF, here.task._replace(targets=TARGETS._replace(bounds=bounds)))
    assert here.field()["applied"] == {"engine": 2, "decoder": 4}


async def test_another_mistake_is_stated_at_once() -> None:
    here = Follower(scaling=STORED)
    await here.wait(FIRST + PERIOD, problem="a")
    await here.wait(problem="b")
    assert (here.field()["hold"], here.field()["why"]) == ("Invalid", "b")
    here.news.clear()
    await here.wait(300, problem="b")
    assert not here.news


async def test_what_was_read_while_the_planner_worked_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prediction takes half a second. Routers that are read meanwhile have numbers that are newer than the round."""
    here = Follower(("a", "svc"), scaling=STORED)
    await here.wait(FIRST + PAUSE)

    async def slow(*_: Any) -> PlannedSpeeds:
        here.now += timedelta(seconds=0.5)
        return NO_PLAN

    monkeypatch.setattr(here.scaler._planner, "of", slow)
    await here.wait(60)
    assert here.field().get("hold", "") != "Unknown"
    assert None not in [one.arrivals for one in here.scaler._followed["svc"].samples[-5:]]


@pytest.mark.parametrize("gone", ["service", "task"])
async def test_a_service_that_goes_while_the_planner_works_is_left_alone(gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Follower(("a", "svc"), scaling=STORED)
    await here.wait(FIRST + PAUSE)
    here.news.clear()
    here.scaler.report(Ref(SERVICE, "ns", "a"), here.task)

    async def slow(*_: Any) -> PlannedSpeeds:
        if gone == "service":
            here.handler.gone(SERVICE, "svc", 9)
            here.handler.gone(SERVICE, "a", 9)
        here.scaler.report(REF, None)
        here.scaler.report(Ref(SERVICE, "ns", "a"), None)
        return NO_PLAN

    monkeypatch.setattr(here.scaler._planner, "of", slow)
    here.rate, before = 40.0, len(here.scaler._followed["svc"].samples)
    here.now += timedelta(seconds=PERIOD)
    await here.scaler.decide_all()
    assert not here.news and not here.scaler._tasks
    followed = here.scaler._followed.get("svc")
    assert (followed and len(followed.samples)) == (before if gone == "task" else None)


class Counted(DemandScaler):
    """An autoscaler that knows a number of free places, each for one group, and counts how often it looks for them."""

    free, looks = 40, 0

    def fits(self, ref: Ref, task: DemandTask, more: Mapping[str, int], taken: list[Needs], now: datetime) -> Needs | None:
        """Return the needs of these groups if there are places for them."""
        self.looks += 1
        asked = sum(more.values()) + sum(need.pods for needs in taken for need in needs)
        return (Need(("engine",), "engine", Demand(), sum(more.values())),) if asked <= self.free else None


def counted(here: Follower) -> Counted:
    return Counted(here.handler.cache, here.reports, here.has_room, here.news.append, lambda: here.now, 5.0)


async def test_groups_that_a_namespace_never_creates_keep_no_nodes_from_others() -> None:
    """A tenant with a quota asks for all free nodes, before everybody else, and gets none. Before, the other one waited for
    ever (finding U14).
    """
    here = Follower((), scaling=STORED)
    victim = Ref(SERVICE, "other", "svc")
    for at in range(5):
        here.see(f"a{at}", {"scaling": STORED})
    here.see("svc", {"scaling": STORED}, "other")
    here.scaler, here.rate, waited = counted(here), 40.0, 0.0
    while waited < 3600:
        for at in range(5):
            here.scaler.report(Ref(SERVICE, "ns", f"a{at}"), here.task._replace(priority=1000))
        here.scaler.report(victim, here.task)
        here.now += timedelta(seconds=PERIOD)
        await here.scaler.decide_all()
        found = here.handler.cache.find(victim)
        assert found is not None
        if (here.scaler.of(found) or {}).get("applied", {}).get("engine", 0) > 5:
            break
        waited += PERIOD
    assert waited <= 180


async def test_a_namespace_with_many_services_has_as_long_to_create_groups_as_one_with_one() -> None:
    """Before, ten services that waited for their pods for one round counted as a minute of their namespace."""
    here = Follower(("svc", *(f"a{at}" for at in range(9))), scaling=STORED)
    here.scaler = counted(here)
    here.scaler.free = 10**6
    for rate, seconds in ((4.0, FIRST + PAUSE), (40.0, 50.0)):
        here.rate = rate
        for _ in range(round(seconds / PERIOD)):
            for at in range(9):
                here.scaler.report(Ref(SERVICE, "ns", f"a{at}"), here.task)
            await here.wait()
    found = here.scaler._followed
    assert all(one.reserved for one in found.values()) and 0 < here.scaler._unused["ns"][0] < 50
    for _ in range(5):
        for at in range(9):
            here.scaler.report(Ref(SERVICE, "ns", f"a{at}"), here.task)
        await here.wait()
    assert not any(one.reserved for one in found.values()), "a minute has passed"


async def test_groups_that_fit_are_counted_with_few_looks() -> None:
    """A tenant may ask for 1,000 groups of each role, and each look for nodes takes a millisecond with 1,000 nodes."""
    here = Follower()
    scaler = counted(here)
    for free, more, granted in (
        (40, {"prefill": 1000, "decode": 1000}, (20, 20)),
        (41, {"prefill": 1000, "decode": 1000}, (21, 20)),
        (40, {"prefill": 1000, "decode": 5}, (35, 5)),
        (40, {"prefill": 0, "decode": 1000}, (0, 40)),
        (0, {"prefill": 3, "decode": 3}, (0, 0)),
        (40, {"prefill": 20, "decode": 20}, (20, 20)),
    ):
        scaler.free, scaler.looks = free, 0
        found = _Asks(scaler, REF, here.task, [], START).granted(more)
        assert (found["prefill"], found["decode"]) == granted and scaler.looks < 30


async def test_services_of_higher_priority_get_free_nodes_first() -> None:
    here = Follower(("high", "low"), scaling=STORED)
    order = list[str]()

    def has_room(ref: Ref, needs: Needs, now: datetime) -> bool:
        order.append(ref.name)
        return True

    here.scaler = DemandScaler(here.handler.cache, here.reports, has_room, here.news.append, lambda: here.now, 5.0)
    here.now += timedelta(seconds=FIRST)
    for rate in (4.0, 40.0):
        here.rate = rate
        for name, priority in (("low", 1), ("high", 2)):
            here.scaler.report(Ref(SERVICE, "ns", name), here.task._replace(priority=priority))
        for _ in range(9):
            here.now += timedelta(seconds=PERIOD)
            await here.scaler.decide_all()
    assert order[0] == "high" and "low" in order
