"""Tests of services that their schedule scales to zero groups, and back: what is written, and who decides if several writers
set the number.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.core.observed.arrivals import Arrivals
from ome_operator.core.observed.objects import Observed
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.reconcile.sync import sync
from ome_operator.core.rollout import zero
from tests.support.demanded import DEMAND, QUIET, Demanded, told

SCALES = "svc-engine", "svc-decoder"
NIGHT = timedelta(hours=2)


class Sleeper(Demanded):
    """A service with two prefill and one decode group whose schedule permits zero from `begin` for two hours."""

    arrived: float | None = None
    """Time of the last request that no engine could serve, in seconds since the epoch."""

    def __init__(self, minimum: dict[str, int] | None = None, **policy: Any) -> None:
        role = {"minReplicas": 0, "maxReplicas": 4, "autoscaler": {"class": "Demand"}}
        super().__init__(engine=role, decoder=role, router={}, scalingPolicy={"demand": {**DEMAND, "mode": "Apply"}})
        self.begin = self.now + timedelta(minutes=120)
        night = {"start": f"{self.begin:%H:%M}", "end": f"{self.begin + NIGHT:%H:%M}"}
        night["minimum"] = minimum or {"engine": 0, "decoder": 0}  # type: ignore[assignment]
        demand = {**DEMAND, "mode": "Apply", "schedule": [night], **policy.pop("demand", {})}
        self.edited(engine=role, decoder=role, router={}, scalingPolicy={"demand": demand, **policy})
        self.written(2, 1)

    def observed(self) -> Observed:
        """Return what the operator observes, with the time of the last request."""
        return replace(super().observed(), arrivals=Arrivals(self.arrived))

    def numbers(self) -> tuple[int, int]:
        """Return the numbers of the prefill and of the decode groups."""
        return len(self.living_pods("engine")), len(self.living_pods("decoder"))

    def scales(self) -> tuple[int, int]:
        """Return the numbers in the RoleScales of prefill and decode."""
        engine, decoder = (self.children["RoleScale", name].manifest["spec"]["replicas"] for name in SCALES)
        return engine, decoder

    def written(self, *numbers: int) -> None:
        """Write the RoleScales as `ome wake` does."""
        for name, number in zip(SCALES, numbers, strict=True):
            scale = self.children["RoleScale", name]
            scale.woken_by(zero.written_by_wake(scale.generation, scale.manifest["spec"]["replicas"], number))
        self.settle()
        self.task = None

    def until(self, minutes: float, rate: float = 0.0) -> None:
        """Let time pass until so many minutes after `begin`, with this load."""
        assert self.now < self.begin + timedelta(minutes=minutes)
        while self.now < self.begin + timedelta(minutes=minutes):
            self.tick(rate)

    def tick(self, rate: float = 0.0) -> None:
        """Let ten seconds pass. Without groups nothing is known about the load."""
        self.rate, self.in_flight = (rate if all(self.numbers()) else None), 40 if rate else 0
        self.decide()
        self.task = None


def test_schedule_scales_an_idle_service_to_zero_and_back() -> None:
    world = Sleeper()
    world.until(-1)
    before = world.numbers()
    assert all(before), "the night has not begun, and the demand itself decides no zero"
    world.until(30)
    assert world.numbers() == (0, 0) == world.scales()
    assert told(world) == ("True", "Followed") and world.service.status["scaling"]["hold"] == "ScheduledZero"
    assert world.condition("FollowsDemand")["message"] == "the size is 0 prefill and 0 decode groups"
    assert world.service.status["zero"]["groups"] == dict(zip(("engine", "decoder"), before, strict=True))
    world.until(119)
    assert world.numbers() == (0, 0)
    world.until(125)
    assert world.numbers() == before == world.scales(), "both roles come back at the end"
    recorded = [(one["prefill"], one["decode"], one.get("hold")) for one in world.service.status["scaling"]["decisions"]]
    assert recorded.count((0, 0, "ScheduledZero")) == 1 and (*before, None) in recorded
    world.until(240)
    assert all(world.numbers())


def test_service_with_requests_stays_up_during_the_zero_schedule() -> None:
    world = Sleeper()
    world.until(130, QUIET)
    decided = world.service.status["scaling"]["decisions"]
    assert all(world.numbers()) and not any(one.get("hold") == "ScheduledZero" for one in decided)


def test_ome_wake_starts_groups_until_ten_idle_minutes_have_passed() -> None:
    world = Sleeper()
    world.until(20)
    assert world.numbers() == (0, 0)
    world.written(2, 1)
    woken = world.now
    world.tick()
    assert world.numbers() == (2, 1), "it is quiet, and not taken back at once"
    while world.numbers() != (0, 0):
        world.tick()
    assert timedelta(minutes=10) <= world.now - woken < timedelta(minutes=100)


def test_partly_written_wake_is_not_reverted() -> None:
    """`ome wake` writes one RoleScale after the other. A reconciliation between these writes does not undo the wake."""
    world = Sleeper()
    world.until(20)
    world.written(2, 0)
    world.tick()
    assert world.scales() == (2, 0)
    world.written(2, 1)
    world.tick(QUIET)
    assert world.numbers() == (2, 1)


def test_request_wakes_the_service_if_wake_on_request_is_set() -> None:
    world = Sleeper(wakeOnRequest=True)
    world.until(20)
    assert world.numbers() == (0, 0)
    world.now += timedelta(seconds=2)
    world.arrived = world.now.timestamp() - 1
    world.settle()
    world.task = None
    assert all(world.numbers()) and world.service.status["zero"]["wake"]["by"] == "Request"
    world.tick(QUIET)
    assert all(world.numbers())


def test_manually_written_number_is_kept_during_the_zero_schedule() -> None:
    world = Sleeper()
    scale = world.children["RoleScale", "svc-decoder"]
    scale.manifest = {**scale.manifest, "spec": {"replicas": 3}}
    scale.generation += 1
    world.settle()
    world.until(60)
    assert world.numbers()[1] == 3 and told(world) == ("False", "ScaledByHand")


def test_groups_stay_until_both_role_scales_are_zero() -> None:
    """The groups of both roles stay until both RoleScales ask for zero. A write may fail or be seen late; the service goes
    to zero when both are seen, and never has another size in between.
    """
    world = Sleeper()
    world.until(1, QUIET)
    before, sizes, plans = world.numbers(), set[tuple[int, int]](), 0
    carried = world.carry_out

    def half(plan: Plan) -> None:
        nonlocal plans
        sizes.add(world.numbers())
        plans += bool(plan.scale)
        carried(replace(plan, scale=plan.scale[:1]) if plans == 1 else plan)

    world.carry_out = half  # type: ignore[method-assign]
    world.until(30)
    assert sizes == {before, (0, 0)} and plans >= 2 and world.scales() == (0, 0)


class Ended(Exception):
    """Raised where the operator ends before it has written the RoleScales."""


class Mortal(Sleeper):
    """A service whose operator ends before it writes a RoleScale if `ends` is true. All plans are kept in `plans`."""

    ends = True
    plans: tuple[Plan, ...] = ()

    def carry_out(self, plan: Plan) -> None:
        """Keep the plan in `plans`. Then carry it out, or raise Ended if it writes a RoleScale and `ends` is true."""
        self.plans = (*self.plans, plan)
        if self.ends and plan.scale:
            raise Ended
        super().carry_out(plan)


def test_reconciliation_that_stores_zero_decision_requeues_to_write_role_scales() -> None:
    """The pass that stores the decision to scale to zero requests another pass at once, which writes the RoleScales. No
    event follows the write of a status, so nothing else would start that pass.
    """
    world = Mortal()
    world.ends = False
    world.until(30)
    assert world.scales() == (0, 0)
    written = next(number for number, plan in enumerate(world.plans) if plan.scale)
    before = world.plans[written - 1]
    assert before.requeue_after == 0.0 and before.status["scaling"]["hold"] == "ScheduledZero"
    assert before.status["scaling"]["applied"] != {"engine": 0, "decoder": 0}


@pytest.mark.parametrize("hours", [0.1, 3.0])
def test_zero_decision_stored_before_operator_restart_is_not_executed(hours: float) -> None:
    """The operator ends after it has stored the decision to scale to zero, and before it writes the RoleScales. After its
    restart, the groups stay, both within the scheduled time and after it.
    """
    world = Mortal()
    with pytest.raises(Ended):
        world.until(30)
    before = world.numbers(), world.scales()
    assert all(before[0]) and all(before[1]) and world.service.status["scaling"]["hold"] == "ScheduledZero"
    world.ends, world.gone, world.scaling = False, float("-inf"), world.service.status["scaling"]
    world.now += timedelta(hours=hours)
    world.settle()
    assert (world.numbers(), world.scales()) == before


def test_zero_decision_is_not_executed_after_a_conflicting_edit_or_hold() -> None:
    world = Mortal()
    with pytest.raises(Ended):
        world.until(30)
    before = world.numbers(), world.scales()
    world.ends = False
    assert world.observed().goes and world.sync().scale
    for annotations in ({keys.SCALED_BACK: "prefill=2,decode=1,routers=1"}, {keys.FREEZE: "true"}):
        held = replace(world.service, annotations=annotations)
        assert not sync(held, world.deps, world.observed(), world.now).scale, annotations
    demand = {**DEMAND, "mode": "Apply"}
    role = {"minReplicas": 0, "maxReplicas": 4, "autoscaler": {"class": "Demand"}}
    world.edited(engine=role, decoder=role, router={}, scalingPolicy={"demand": demand})
    assert (world.numbers(), world.scales()) == before


def test_fields_that_prevent_scale_to_zero_are_named() -> None:
    world = Sleeper(minimum={"engine": 0})
    assert "schedule[0].minimum is 0 for one role only" in world.condition("Advice")["message"]
    world.until(30)
    assert all(world.numbers())
    role = {"minReplicas": 1, "maxReplicas": 4, "autoscaler": {"class": "Demand"}}
    night = {"start": "01:00", "end": "05:00", "minimum": {"engine": 0, "decoder": 0}}
    policy = {"demand": {**DEMAND, "mode": "Apply", "schedule": [night]}}
    world.edited(engine=role, decoder=role, router={}, scalingPolicy=policy)
    assert (
        "keep their groups: write minReplicas: 0 and autoscaler.class: Demand for spec.engine and spec.decoder"
        in world.condition("Advice")["message"]
    )
