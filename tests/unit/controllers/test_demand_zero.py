"""Tests of the numbers of groups that the autoscaler uses while a schedule scales a service to zero, and back."""

from datetime import timedelta

from ome_operator.controllers.demand import FIRST
from ome_operator.core.demand.facts import DECODE, KEPT, PREFILL, STALE, Fleet, GroupBounds, RoleFleet
from ome_operator.core.demand.task import RECOMMEND, PeakTime
from tests.unit.controllers.scaled import REF, STORED, Follower
from tests.unit.core.demand.loads import TARGETS, fleet

NIGHT = PeakTime(frozenset(range(7)), 0, 0, {PREFILL: 0, DECODE: 0})
LOW = TARGETS._replace(bounds={**TARGETS.bounds, PREFILL: GroupBounds(0, 9), DECODE: GroupBounds(0, 9)})
BEFORE = {name: value for name, value in STORED.items() if name != "changedAt"}
NOTHING = Fleet(RoleFleet(0), RoleFleet(0))


async def test_applied_numbers_become_zero_with_the_role_scales_and_return() -> None:
    here = Follower(scaling=BEFORE)
    here.rate = 0.0
    await here.wait(KEPT + FIRST + 60, peaks=(NIGHT,), targets=LOW)
    assert (here.field()["hold"], here.field()["wanted"]) == ("ScheduledZero", {"prefill": 0, "decode": 0, "routers": 1})
    assert here.field()["applied"] == {"engine": 2, "decoder": 1}, "nothing has seen the RoleScales at zero"
    here.task = here.task._replace(back=(2, 1))
    here.scaler.report(here.handler.cache.services()[0].ref, here.task)
    assert here.field()["applied"] == {"engine": 0, "decoder": 0}
    here.rate = None
    await here.wait(KEPT, asked=(0, 0, 1), fleet=NOTHING)
    assert (here.field()["hold"], here.field()["applied"]) == ("ScheduledZero", {"engine": 0, "decoder": 0})
    await here.wait(10, peaks=())
    assert (here.field().get("hold"), here.field()["applied"]) == (None, {"engine": 2, "decoder": 1})


async def test_zero_decision_expires_after_20_seconds_and_requests_reconciliations() -> None:
    here = Follower(scaling=BEFORE)
    here.rate = 0.0
    service = here.handler.cache.services()[0]
    await here.wait(KEPT + FIRST - 60, peaks=(NIGHT,), targets=LOW)
    assert not here.scaler.scales_to_zero(service)
    await here.wait(120)
    here.news.clear()
    await here.wait(30)
    assert here.scaler.scales_to_zero(service) and here.news == [REF] * 3, "nothing else changes"
    assert not here.restarted().scales_to_zero(service), "another process has decided nothing yet"
    here.now += timedelta(seconds=STALE + 1)
    assert not here.scaler.scales_to_zero(service)
    await here.wait(20, asked=(0, 0, 1), fleet=NOTHING, back=(2, 1))
    here.news.clear()
    await here.wait(30)
    assert not here.scaler.scales_to_zero(service) and not here.news, "it is at zero"
    here = Follower(scaling=BEFORE)
    here.rate = 0.0
    await here.wait(KEPT + FIRST + 60, peaks=(NIGHT,), targets=LOW, mode=RECOMMEND)
    assert here.field()["hold"] == "ScheduledZero" and not here.scaler.scales_to_zero(here.handler.cache.services()[0])


async def test_wake_is_used_although_no_decision_was_made_since() -> None:
    here = Follower(scaling=BEFORE)
    here.rate = 0.0
    await here.wait(KEPT + FIRST + 60, peaks=(NIGHT,), targets=LOW)
    await here.wait(10, asked=(0, 0, 1), fleet=NOTHING, back=(2, 1))
    await here.wait(10, asked=(3, 2, 1), fleet=fleet(3, 2), back=None)
    assert here.field()["applied"] == {"engine": 0, "decoder": 0}, "a 0 does not count: the RoleScales do"
    here.rate = 1.0
    await here.wait(10)
    assert here.field()["applied"] == {"engine": 3, "decoder": 2}
