"""Tests of services whose autoscaler has the class Demand: what a reconciliation reports to the autoscaler, which number of
groups counts, and what the status shows.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ome_operator.core.demand.facts import DECODE, PREFILL, GroupBounds
from ome_operator.core.observed.arrivals import Arrivals
from ome_operator.core.observed.objects import Observed
from ome_operator.core.reconcile.sync import sync
from tests.support import parts
from tests.support.demanded import BUSY, QUIET, Demanded, spec, told
from tests.support.simulator import World


class Woken(Demanded):
    """A service for which requests arrive."""

    arrived: float | None = None
    """Time of the last request that no engine could serve, in seconds since the epoch."""

    def observed(self) -> Observed:
        """Return what the operator sees of the cluster, with the time of the last request."""
        return replace(super().observed(), arrivals=Arrivals(self.arrived))


def test_recommend_is_the_default_mode_and_does_not_scale() -> None:
    world = Demanded(**spec())
    world.decide()
    assert told(world) == ("True", "Followed")
    world.rate = BUSY
    world.decide(240)
    assert world.wanted() == 2 and world.decoders() == 1
    assert told(world) == ("True", "Recommended")
    assert "applied" not in world.service.status["scaling"]
    assert world.condition("Ready")["status"] == world.condition("Scaled")["status"] == "True"


def test_apply_mode_adds_and_removes_a_group() -> None:
    world = Demanded(**spec("Apply"))
    world.rate = BUSY
    world.decide(120)
    assert world.decoders() == 2 and told(world) == ("True", "Followed")
    assert world.service.status["scaling"]["applied"] == {"decoder": 2}
    assert world.children["RoleScale", "svc-decoder"].manifest["spec"]["replicas"] == 1, "nothing writes it"
    world.rate = QUIET
    world.decide(1800)
    assert world.decoders() == 1


def test_missing_samples_change_no_size() -> None:
    world = Demanded(**spec("Apply"))
    world.rate = BUSY
    world.decide(120)
    world.rate = None
    world.decide(1800)
    assert world.decoders() == 2 and told(world) == ("False", "DemandUnknown")


def test_switch_from_recommend_to_apply_starts_with_the_existing_size() -> None:
    world = Demanded(**spec(role={"minReplicas": 1, "maxReplicas": 9}))
    world.write_scale(3)
    world.decide(3600)
    assert world.wanted() == 1 and world.decoders() == 3
    world.resume()
    world.edited(**spec("Apply", role={"minReplicas": 1, "maxReplicas": 9}))
    assert world.decoders() == 3, "not at once what was recommended"
    sizes = [world.decoders()]
    for _ in range(200):  # while a group drains, the numbers of the test have a gap
        world.decide()
        sizes.append(world.decoders())
    assert sorted(set(sizes), reverse=True) == [3, 2, 1], "one at a time"


@pytest.mark.parametrize(
    "role", [{"autoscaler": {"class": "Demand"}}, {"autoscaler": None}, {"autoscaler": {"class": "HPA"}}]
)
def test_end_of_apply_keeps_the_size_and_writes_it_to_the_role_scale(role: dict[str, Any]) -> None:
    world = Demanded(**spec("Apply"))
    world.rate = BUSY
    world.decide(120)
    mode = "Recommend" if role["autoscaler"] and role["autoscaler"]["class"] == "Demand" else "Apply"
    world.edited(**spec(mode, role=role))
    world.settle()
    assert world.decoders() == 2
    assert world.children["RoleScale", "svc-decoder"].manifest["spec"]["replicas"] == 2
    assert "applied" not in world.service.status.get("scaling", {})
    world.write_scale(1)
    assert world.decoders() == 1, "the number counts"


def test_manually_written_role_scale_is_followed_until_resume() -> None:
    world = Demanded(**spec("Apply"))
    world.rate = BUSY
    world.decide(120)
    world.write_scale(4)
    assert world.decoders() == 4
    assert world.service.status["scaling"]["applied"] == {"decoder": 4}, "before the next decision"
    world.decide(30)
    assert world.decoders() == 4 and told(world) == ("False", "ScaledByHand")
    assert "`ome scale svc -n team --resume` lets the number follow the demand again" in world.condition("Advice")["message"]
    world.rate = QUIET
    world.decide(1800)
    assert world.decoders() == 4
    world.resume()
    assert world.decoders() == 4, "it begins with the existing groups"
    world.decide(3600)
    assert world.decoders() == 1 and told(world) == ("True", "Followed")


@pytest.mark.parametrize("minimum", [0, 1])
def test_after_a_wake_the_demand_decides_again_by_itself(minimum: int) -> None:
    world = Demanded(**spec("Apply", role={"minReplicas": minimum}))
    world.write_scale(3)
    world.decide(30)
    if minimum == 0:
        world.write_scale(0)
        world.decide(30)
        assert world.decoders() == 0 and told(world) == ("False", "ScaledByHand")
    world.wake(3)
    assert world.decoders() == 3
    sizes = [world.decoders()]
    for _ in range(300):  # while a group drains, the numbers of the test have a gap
        world.decide()
        sizes.append(world.decoders())
    assert sorted(set(sizes), reverse=True) == [3, 2, 1], "one at a time, and only because the demand needs fewer"
    assert told(world) == ("True", "Followed")
    world.wake(3)  # once more, before the first one is reported
    world.write_scale(4)
    world.decide(30)
    assert world.decoders() == 4 and told(world) == ("False", "ScaledByHand"), "the number that was written last counts"


def test_demand_decides_again_after_a_wake_by_request() -> None:
    role = {"minReplicas": 0, "maxReplicas": 4, "autoscaler": {"class": "Demand"}}
    whole = spec("Apply", role=role)
    world = Woken(**{**whole, "scalingPolicy": {**whole["scalingPolicy"], "wakeOnRequest": True}})
    world.write_scale(2)
    world.decide(30)
    world.write_scale(0)
    world.decide(30)
    assert world.decoders() == 0 and told(world) == ("False", "ScaledByHand")
    world.arrived = world.now.timestamp() + 1
    world.now += timedelta(seconds=2)
    world.settle()
    world.task = None
    assert world.decoders() == 2 and world.service.status["zero"]["wake"]["by"] == "Request"
    world.decide(30)
    assert world.decoders() == 2 and told(world) == ("True", "Followed")
    world.decide(1800)
    assert world.decoders() == 1, "the demand needs fewer"


def test_scaled_back_size_is_kept_until_resume() -> None:
    back = {"annotations": {"ome.io/scaled-back": "prefill=1,decode=1,routers=1"}}
    world = Demanded(**spec("Apply"))
    world.rate = BUSY
    world.decide(120)
    world.edited(**spec("Apply"), **back)
    world.decide(600)
    assert world.decoders() == 1 and told(world) == ("False", "DemandUndone")
    recorded = world.service.status["scaling"]["decisions"]
    assert (recorded[-1]["decode"], recorded[-1]["hold"], recorded[-2]["decode"]) == (1, "Undone", 2)
    assert world.condition("FollowsDemand")["message"].endswith("The size is 1 prefill and 1 decode groups")
    world.edited(**spec("Apply"))
    world.decide(60)
    assert world.decoders() == 2 and told(world) == ("True", "Followed")
    world.edited(**spec(), **back)
    assert "annotation ome.io/scaled-back has no effect" in world.condition("Advice")["message"]


def test_edited_bounds_apply_immediately() -> None:
    world = Demanded(**spec("Apply"))
    world.rate = BUSY
    world.decide(120)
    world.edited(**spec("Apply", role={"maxReplicas": 1}))
    assert world.decoders() == 1
    world.edited(**spec("Apply", role={"minReplicas": 3}))
    assert world.decoders() == 3


@pytest.mark.parametrize(
    ("free", "more", "reason"),
    [(0, {}, "NoRoom"), (100, {"role": {"maxReplicas": 1}}, "Maximum")],
)
def test_unavailable_size_is_requested_once(free: int, more: dict[str, Any], reason: str) -> None:
    world = Demanded(**spec("Apply", **more))
    world.free, world.rate = free, BUSY
    world.decide(600)
    assert world.decoders() == 1
    scaling = world.service.status["scaling"]
    assert scaling["hold"] == reason and told(world) == ("False", "DemandUnmet")
    assert sum(one.get("hold") == reason for one in scaling["decisions"]) == 1


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({"scalingPolicy": None}, "autoscaler.class Demand needs targets: set spec.scalingPolicy.demand"),
        ({"decoder": None, "engine": {"autoscaler": {"class": "Demand"}}}, "add spec.decoder, or use another class"),
        ({"router": None}, "add spec.router, or use another class"),
    ],
)
def test_unsupported_demand_configuration_is_reported(written: dict[str, Any], words: str) -> None:
    whole = {name: value for name, value in {**spec("Apply"), **written}.items() if value is not None}
    world = World(parts.service(**whole), parts.deps(parts.model(), parts.simple(decoder="decoder" in whole)), seed=1)
    world.settle()
    task = world.sync().demand
    assert task is not None and words in task.problem


def test_budget_below_the_smallest_size_is_reported() -> None:
    service, deps = parts.kimi()
    body = {**service.spec.dump(), **spec("Apply", gpuBudget=8), "engine": {"minReplicas": 1}}
    world = World(parts.service({**body}), deps, seed=1)
    task = world.sync().demand
    assert task is not None
    gpus = sum(task.fleet.role(role).gpus for role in (PREFILL, DECODE))
    assert gpus > 8 and f"gpuBudget is 8, but the smallest size of the service needs {gpus} GPUs" in task.problem


def test_demand_task_contains_role_bounds_targets_and_fleet_state() -> None:
    world = Demanded(
        **spec("Apply", spare={"decoder": 1}, priority=7, coolDown="2m", changesPerHour=3, requestsPerRouter=50)
    )
    task = world.sync().demand
    assert task is not None
    assert task.targets.bounds[PREFILL] == GroupBounds(1, 1), "its class is not Demand"
    assert task.targets.bounds[DECODE] == GroupBounds(1, 4, 1)
    assert (task.priority, task.targets.cool_down, task.targets.changes_an_hour) == (7, 120.0, 3)
    assert (task.targets.ttft, task.targets.tbt, task.targets.in_flight_of_a_router) == (3.0, 0.04, 50)
    assert (task.fleet.prefill.ready, task.fleet.decode.ready, task.fleet.busy, task.fleet.frozen) == (1, 1, "", "")
    assert task.asked == (1, 1, 1)


def test_rollout_pause_and_freeze_are_reported_in_the_demand_task() -> None:
    world = Demanded(**spec("Apply"))
    world.edit(parts.service(**{**spec("Apply"), "engine": {"minReplicas": 1, "runner": {"image": "engine:2"}}}))
    world.run(6)
    task = world.sync().demand
    assert task is not None and task.fleet.busy == "a rollout is in progress"
    world.settle()
    world.edit(parts.service(**spec("Apply"), rollout={"paused": True}))
    task = world.sync().demand
    assert task is not None and task.fleet.frozen == "spec.rollout.paused is true"
    frozen = parts.change_deps(world.deps, frozen="by alice")
    task = sync(world.service, frozen, world.observed(), world.now).demand
    assert task is not None and "frozen with all services" in task.fleet.frozen


def test_paused_rollout_holds_the_size() -> None:
    world = Demanded(**spec("Apply"))
    world.edited(**spec("Apply"), rollout={"paused": True})
    world.rate = BUSY
    world.decide(300)
    assert world.decoders() == 1 and world.service.status["scaling"]["hold"] == "Frozen"


def test_a_group_that_fails_before_the_first_decision_is_not_given_up() -> None:
    world = Demanded(**spec("Apply", role={"minReplicas": 1, "maxReplicas": 9}))
    world.children["RoleScale", "svc-decoder"].manifest["spec"]["replicas"] = 3  # as it was created
    world.settle()
    lost = next(name for name in world.living_pods("decoder"))
    world.lose(lost)
    task = world.sync().demand
    assert task is not None and task.asked[1] == 3
    world.decide()
    assert world.service.status["scaling"]["applied"] == {"decoder": 3}


def test_service_without_class_demand_has_no_scaling_status_and_no_task() -> None:
    world = Demanded(**spec(role={"autoscaler": {"class": "External"}}))
    plan = world.sync()
    assert plan.demand is None and "scaling" not in plan.status and told(world) == ("", "")


def test_autoscaler_class_annotation_cannot_select_demand() -> None:
    """The annotation with the class of an autoscaler cannot set the class Demand. Services with this annotation were not
    scaled by earlier versions, and an upgrade alone must not start to scale them.
    """
    whole = spec("Apply", role={"autoscaler": None})
    whole["decoder"] = {name: value for name, value in whole["decoder"].items() if value is not None}
    world = World(
        parts.service(**whole, annotations={"ome.io/autoscalerClass": "demand"}),
        parts.deps(parts.model(), parts.simple(decoder=True)), seed=1,
    )  # fmt: skip
    world.settle()
    assert world.sync().demand is None
    assert "is 'demand', which is not an autoscaler class" in world.condition("Advice")["message"]


def test_invalid_applied_numbers_in_status_are_ignored() -> None:
    world = Demanded(**spec("Apply"))
    for applied in ({"decoder": "9"}, {"decoder": -1}, ["decoder"], 3, {"decoder": True}):
        world.scaling = None
        status = {**world.service.status, "scaling": {"applied": applied}}
        world.service = world.service.__class__(**{**vars(world.service), "status": status})
        world.sync()
        world.settle()
        assert world.decoders() == 1


def test_start_durations_are_measured_from_node_assignment_until_serving() -> None:
    world = Demanded(**spec("Apply"))
    observed = world.observed()
    begin = world.now - timedelta(seconds=100)
    times = observed.pods[0].times._replace(
        created=(begin - timedelta(seconds=900)).isoformat(), scheduled=begin.isoformat(), ready=world.now.isoformat()
    )
    pods = tuple(pod._replace(times=times) if pod.component == "decoder" else pod for pod in observed.pods)
    task = sync(world.service, world.deps, replace(observed, pods=pods), world.now).demand
    assert task is not None
    decoders = {pod.uid for pod in pods if pod.component == "decoder"}
    assert [round(one.seconds) for one in task.starts if one.leader in decoders] == [100]
