"""Tests of the autoscaler of the class Demand next to reconciliations: what it reads, when it stores a decision, and what
happens at a restart.
"""

from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from ome_operator.cache.resources import SERVICE
from ome_operator.controllers.demand import FIRST, PAUSE, REPEAT
from ome_operator.core.demand.estimate import PERIOD
from ome_operator.core.demand.facts import KEPT, NO_PLAN, Configuration, Fleet, GroupBounds, PlannedSpeeds, RoleFleet
from ome_operator.core.demand.task import RECOMMEND, MeasuredStart
from ome_operator.core.observed.objects import Ref
from tests.unit.controllers.scaled import REF, ROLES, STORED, Follower
from tests.unit.core.demand.loads import KNOWN, TARGETS


async def test_no_decision_is_made_before_every_router_was_read() -> None:
    here = Follower(scaling=STORED)
    await here.wait(FIRST - PERIOD)
    assert here.field() == STORED and not here.news
    await here.wait(2 * PERIOD)
    assert here.field()["wanted"] == {"prefill": 2, "decode": 1, "routers": 1}


async def test_changing_numbers_cause_one_write_per_hour() -> None:
    here = Follower(scaling=STORED)
    await here.wait(FIRST + PAUSE)
    here.news.clear()
    for step in range(720):  # two hours
        here.rate = 3.9 + 0.2 * (step % 2)
        await here.wait()
    assert len(here.news) == 2
    assert here.field()["days"][-1]["gpuHours"] > 20


async def test_scale_up_is_stored_immediately_with_the_applied_numbers() -> None:
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


async def test_recommend_mode_stores_no_applied_numbers() -> None:
    here = Follower(scaling=STORED)
    here.rate = 40.0
    await here.wait(300, mode=RECOMMEND)
    assert here.field()["wanted"]["prefill"] > 5 and "applied" not in here.field()


async def test_change_of_mode_starts_with_the_existing_size() -> None:
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


async def test_restart_keeps_learned_values_without_a_write() -> None:
    here = Follower(scaling=STORED)
    await here.wait(1200)
    kept = here.field()
    service = here.handler.cache.find_resource(REF)
    assert service is not None
    here.see("svc", {"scaling": kept})
    body = {"name": "svc", "namespace": "ns", "uid": "svc", "resourceVersion": "2"}
    here.handler.handle_observed(SERVICE, {"metadata": body, "spec": {"engine": {}}, "status": {"scaling": kept}})
    here.scaler, here.news = here.restarted(), []
    assert here.field() == kept
    await here.wait(FIRST + PERIOD)
    assert here.field() == kept and not here.news
    assert here.field()["learned"]["startSeconds"] == [100]


async def test_rollout_is_stored_within_a_minute_and_known_after_a_restart() -> None:
    """A rollout is stored within a minute, so that the operator's next process knows it, too. The speeds that were measured
    before the rollout are not the speeds of the new groups.
    """
    here = Follower(scaling=STORED)

    def runs(template: str) -> Fleet:
        found = (Configuration(template),)
        return Fleet(RoleFleet(2, configurations=found), RoleFleet(1, configurations=found))

    await here.wait(FIRST + 2 * PAUSE, fleet=runs("old"))
    learned = here.field()["learned"]
    assert learned["configurations"] == dict.fromkeys(ROLES, "old")
    assert learned["prefill"] == STORED["learned"]["prefill"], "the status was stored by a version without configurations"
    here.rate = None  # nothing is measured any more
    await here.wait(PAUSE)
    here.rate = 0.0
    await here.wait(2 * PAUSE, fleet=runs("new"))
    stored = here.field()
    assert stored["learned"].keys() == {"configurations", "request", "startSeconds"}
    assert stored["learned"]["configurations"] == dict.fromkeys(ROLES, "new")
    assert stored["former"]["prefill"] == learned["prefill"] and stored["speeds"] == dict.fromkeys(ROLES, "Former")
    again = Follower(scaling=stored)
    await again.wait(FIRST, fleet=runs("new"))
    assert again.scaler._followed["svc"].state.former.work == KNOWN.work
    await again.wait(PERIOD, fleet=runs("old"))
    assert again.scaler._followed["svc"].state.learned.work == KNOWN.work, "rolled back"


async def test_start_times_of_leaders_are_learned_once() -> None:
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


async def test_number_of_demand_samples_is_limited() -> None:
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


async def test_deleted_or_reclassed_service_is_not_followed() -> None:
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
    here.handler.handle_deleted(SERVICE, "svc", 9)
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
async def test_malformed_stored_field_is_replaced(stored: Any) -> None:
    here = Follower(scaling=stored)
    await here.wait(FIRST + PERIOD)
    assert here.field()["wanted"] == {"prefill": 2, "decode": 1, "routers": 1}


async def test_unmeasured_services_hold_until_requests_waited() -> None:
    here = Follower()
    await here.wait(300)
    assert here.field()["hold"] == "Unmeasured"
    assert here.field()["applied"] == {"engine": 2, "decoder": 1}


async def test_alternating_messages_cause_one_write_per_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that change with every decision are written at most once a minute. For example, a prediction may exist for
    one class of request lengths and not for the next one.
    """
    here, asked = Follower(), count()

    async def alternates(*_: Any) -> PlannedSpeeds:
        return PlannedSpeeds(missing=f"why {next(asked) % 2}")

    monkeypatch.setattr(here.scaler._planner, "predict", alternates)
    await here.wait(300)
    here.news.clear()
    await here.wait(605)
    assert here.field()["hold"] == "Unmeasured" and 2 <= len(here.news) <= 10
    here.news.clear()

    async def settles(*_: Any) -> PlannedSpeeds:
        return PlannedSpeeds(missing="why 2")

    monkeypatch.setattr(here.scaler._planner, "predict", settles)
    await here.wait(2 * PAUSE)
    assert here.field()["why"].endswith("why 2") and len(here.news) == 1


async def test_disabled_router_watch_is_reported_and_keeps_the_size() -> None:
    here = Follower(scaling=STORED)
    here.scaler, here.rate = here.restarted(0.0), 40.0
    await here.wait(300)
    assert here.field()["hold"] == "Unheard" and "its option `router-watch` is 0: set it to 5" in here.field()["why"]
    assert here.field()["applied"] == {"engine": 2, "decoder": 1}
    assert sum(one.get("hold") == "Unheard" for one in here.field()["decisions"]) == 1


async def test_manually_set_number_applies_before_the_next_decision() -> None:
    here = Follower(scaling=STORED)
    await here.wait(FIRST + PERIOD)
    bounds = {**TARGETS.bounds, "decode": GroupBounds(4, 4)}
    here.scaler.report(REF, here.task._replace(targets=TARGETS._replace(bounds=bounds)))
    assert here.field()["applied"] == {"engine": 2, "decoder": 4}


async def test_changed_configuration_error_is_stored_immediately() -> None:
    here = Follower(scaling=STORED)
    await here.wait(FIRST + PERIOD, problem="a")
    await here.wait(problem="b")
    assert (here.field()["hold"], here.field()["why"]) == ("Invalid", "b")
    here.news.clear()
    await here.wait(300, problem="b")
    assert not here.news


async def test_router_numbers_read_during_planning_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of routers that are read while the planner computes a prediction, which takes half a second, are used for the
    decision, because they are newer than those at its beginning.
    """
    here = Follower(("a", "svc"), scaling=STORED)
    await here.wait(FIRST + PAUSE)

    async def slow(*_: Any) -> PlannedSpeeds:
        here.now += timedelta(seconds=0.5)
        return NO_PLAN

    monkeypatch.setattr(here.scaler._planner, "predict", slow)
    await here.wait(60)
    assert here.field().get("hold", "") != "Unknown"
    assert None not in [one.arrivals for one in here.scaler._followed["svc"].samples[-5:]]


@pytest.mark.parametrize("gone", ["service", "task"])
async def test_service_deleted_during_planning_is_not_followed(gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Follower(("a", "svc"), scaling=STORED)
    await here.wait(FIRST + PAUSE)
    here.news.clear()
    here.scaler.report(Ref(SERVICE, "ns", "a"), here.task)

    async def slow(*_: Any) -> PlannedSpeeds:
        if gone == "service":
            here.handler.handle_deleted(SERVICE, "svc", 9)
            here.handler.handle_deleted(SERVICE, "a", 9)
        here.scaler.report(REF, None)
        here.scaler.report(Ref(SERVICE, "ns", "a"), None)
        return NO_PLAN

    monkeypatch.setattr(here.scaler._planner, "predict", slow)
    here.rate, before = 40.0, len(here.scaler._followed["svc"].samples)
    here.now += timedelta(seconds=PERIOD)
    await here.scaler.decide_all()
    assert not here.news and not here.scaler._tasks
    followed = here.scaler._followed.get("svc")
    assert (followed and len(followed.samples)) == (before if gone == "task" else None)
