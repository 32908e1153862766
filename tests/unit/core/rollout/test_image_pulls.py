"""Tests that images of a new revision are pulled onto the nodes of the serving groups before the rollout replaces groups."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from ome_operator import keys
from ome_operator.core.observed.objects import Refusal
from ome_operator.core.rollout.image_pulls import PullOutcome, pull_outcome
from tests.support import parts
from tests.support.parts import change_deps
from tests.support.pulling import LIMIT, LOST, NEW, OLD, PODLESS, STUCK, TIMEOUT, PullingWorld, node, serving
from tests.support.shapes import Shape
from tests.support.simulator import START
from tests.unit.core.placement.test_capacity_check import nodes, said

SHAPE = Shape(size=2, engines=2, decoders=2, image=OLD)
AFTER = replace(SHAPE, image=NEW)
PODS = 8
"""Engine pods of the service, each on a node of its own."""


def pulling(shape: Shape = SHAPE) -> PullingWorld:
    """Return a service that serves, whose images are being pulled because its runtime was edited."""
    world = serving(shape)
    world.answer = lambda _: STUCK
    world.rolls_to(replace(shape, image=NEW))
    world.run(4)
    assert world.condition("RolledOut")["reason"] == "PullingImages" and len(world.jobs()) == LIMIT
    return world


def _while_all_serve(world: PullingWorld) -> Iterator[None]:
    """Run passes until a pod of the service ends."""
    pods = world.living_pods()
    for _ in range(200):
        yield
        world.run(1)
        if world.living_pods() != pods:
            return
    pytest.fail("the rollout does not begin")


def advice(world: PullingWorld) -> str:
    return str(world.condition("Advice").get("message", ""))


def test_the_groups_serve_until_every_node_has_the_image() -> None:
    world = serving(SHAPE)
    pods, occupied = world.living_pods(), {pod.node for pod in world.pods.values() if pod.node}
    world.rolls_to(AFTER)
    while not world.jobs() or world.condition("RolledOut")["reason"] == "PullingImages":
        assert world.living_pods() == pods
        assert world.condition("Ready")["status"] == "True"
        world.run(1)
    assert {node(live.manifest) for live in world.jobs()} == occupied and len(occupied) == PODS
    assert world.most == LIMIT
    world.settle()
    assert world.condition("RolledOut")["status"] == "True" and "image" not in advice(world)
    assert len(world.jobs()) == PODS, "nothing is pulled a second time"


def test_status_counts_nodes_with_the_pulled_image() -> None:
    world = pulling()
    first = node(world.jobs()[0].manifest)
    world.answer = lambda name: "pulled" if name == first else STUCK
    world.run(3)
    plan = world.sync()
    status, reason, message = said(plan, "RolledOut")
    revision = plan.status["revision"].rpartition("→")[2]
    assert (status, reason) == ("False", "PullingImages")
    assert message == (
        f"revision {revision} waits for its images: 1 of 8 images are on the nodes of the serving groups; the rollout "
        "begins when the other images are there, at the latest after 600 s"
    )
    assert plan.status["components"]["engine"]["rolloutHold"]["gate"] == "PullingImages"
    assert plan.pulls == LIMIT and plan.requeue_after is not None and plan.requeue_after <= 30


def test_failed_image_pull_holds_the_rollout_until_the_timeout() -> None:
    world = pulling()
    began = world.now
    for _ in _while_all_serve(world):
        pass
    assert timedelta(0) <= world.now - began - timedelta(seconds=TIMEOUT) <= timedelta(seconds=60)
    world.answer = lambda _: LOST
    world.run(3)
    revision = world.service.status["revision"][-8:]
    assert f"3 Jobs could not pull an image of revision {revision}, and the rollout does not wait for the image: " in advice(
        world
    )
    assert f"(kubectl describe job {world.jobs()[0].key[1]} -n team)" in advice(world)
    world.settle()
    assert world.condition("RolledOut")["status"] == "True" and "could not pull" not in advice(world)


def test_pull_jobs_without_status_hold_the_rollout_until_the_timeout() -> None:
    """If no job controller runs, the Jobs that pull images never get a status. The rollout then waits until the timeout,
    which begins when the status of the service first reports the wait.
    """
    world = serving(SHAPE)
    world._act = lambda _: None  # type: ignore[method-assign]
    world.rolls_to(AFTER)
    world.run(3)
    began = world.now
    for _ in _while_all_serve(world):
        assert world.now - began < timedelta(seconds=TIMEOUT + 60)


@pytest.mark.parametrize("answer", [LOST, PODLESS])
def test_rollout_does_not_wait_for_immediately_failing_pull_jobs(answer: str) -> None:
    """If a Job that pulls an image fails at once, because its pod is evicted or a quota refuses its pod, the rollout does
    not wait until the timeout.
    """
    world = serving(SHAPE)
    world.answer = lambda _: answer
    world.rolls_to(AFTER)
    world.run(2)
    began = world.now
    for _ in _while_all_serve(world):
        assert world.now - began < timedelta(seconds=TIMEOUT / 2)
    assert "could not pull" in advice(world)


def test_refused_pull_jobs_are_reported_and_do_not_hold_the_rollout() -> None:
    world = serving(SHAPE)
    world.rolls_to(AFTER)
    world.run(1)
    plan = world.sync()
    while not plan.pulls:
        world.carry_out(plan)
        plan = world.sync()
    refused = [apply.manifest["metadata"]["name"] for apply in plan.apply if apply.kind == "Job"]
    assert len(refused) == LIMIT
    world.deps = change_deps(world.deps, image_pulls=100)
    revision = refused[0].split("-pull-")[1][:8]
    world.refusals = {("Job", name): Refusal("Forbidden", "no Jobs here") for name in refused}
    plan = world.sync()
    assert f"{refused[0]} (refused: no Jobs here)" in said(plan, "Advice")[2] and revision in said(plan, "Advice")[2]
    assert {apply.manifest["metadata"]["name"] for apply in plan.apply if apply.kind == "Job"}.isdisjoint(refused)
    assert said(plan, "Ready")[0] == "True" and "3 could not be pulled" in said(plan, "RolledOut")[2]


def test_rollout_begins_immediately_without_a_free_pull_slot() -> None:
    world = serving(SHAPE)
    world.pulls = LIMIT
    world.rolls_to(AFTER)
    world.settle()
    assert world.condition("RolledOut")["status"] == "True" and not world.jobs()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (SHAPE, replace(SHAPE, size=1)),  # the same image
        (replace(SHAPE, strategy="blueGreen"), replace(AFTER, strategy="blueGreen")),
        (replace(SHAPE, strategy="surge"), replace(AFTER, strategy="surge")),
        (replace(SHAPE, image="engine:latest"), AFTER),  # restarts of these containers pull, too
        (replace(SHAPE, image="engine"), AFTER),
    ],
    ids=["same image", "blueGreen", "surge", "latest", "no tag"],
)
def test_no_images_are_pulled_in_cases_without_benefit(before: Shape, after: Shape) -> None:
    world = serving(before)
    world.rolls_to(after)
    world.run(60)
    assert not world.jobs() and world.service.status["revision"]


def test_no_images_are_pulled_by_default() -> None:
    world = serving(SHAPE, limit=0)
    world.rolls_to(AFTER)
    world.settle()
    assert not world.jobs() and world.condition("RolledOut")["status"] == "True"


@pytest.mark.parametrize("strategy", ["", "recreate", "faster"])
def test_every_strategy_that_removes_groups_first_waits_for_image_pulls(strategy: str) -> None:
    world = pulling(replace(SHAPE, strategy=strategy))
    world.answer = lambda _: "pulled"
    world.settle()
    assert world.condition("RolledOut")["status"] == "True" and len(world.jobs()) == PODS


def test_loss_of_a_group_ends_the_wait_for_image_pulls() -> None:
    """The loss of a group ends the wait for images, because the edit may be the repair."""
    world = pulling()
    lost = next(pod for pod in world.pods.values() if pod.rank == 0 and pod.labels[keys.COMPONENT] == keys.ENGINE)
    lost.ready = False
    world.healthy = lambda _: False
    assert world.condition("RolledOut")["reason"] == "PullingImages"
    world.run(2)
    assert world.condition("RolledOut")["reason"] != "PullingImages"


def test_rollback_does_not_wait_for_image_pulls() -> None:
    world = serving(SHAPE)
    first = world.service.status["revision"]
    world.rolls_to(AFTER)
    world.settle()
    jobs = len(world.jobs())
    world.edit(replace(SHAPE, pin=first).service())
    world.run(2)
    assert world.condition("RolledOut")["reason"] != "PullingImages" and len(world.jobs()) == jobs


def test_frozen_service_creates_no_pull_jobs_and_reports_them() -> None:
    world = serving(SHAPE)
    world.rolls_to(AFTER)
    world.edit(replace(world.service, annotations={keys.FREEZE: "drill"}))
    world.settle()
    assert not world.jobs()
    world.edit(replace(world.service, annotations={}))
    world.answer = lambda _: STUCK
    world.run(4)
    assert len(world.jobs()) == LIMIT
    world.edit(replace(world.service, annotations={keys.FREEZE: "drill"}))
    plan = world.settle()
    assert plan.pulls == LIMIT and len(world.jobs()) == LIMIT, "Jobs that run are neither ended nor joined by others"
    assert said(plan, "RolledOut")[1] == "Frozen"


def test_service_pulls_images_only_after_admission_and_keeps_the_admission() -> None:
    world = serving(SHAPE)
    world.may_roll = False
    world.rolls_to(AFTER)
    world.settle()
    assert world.condition("RolledOut")["reason"] == "WaitingForTurn" and not world.jobs()
    world.may_roll, world.answer = True, lambda _: STUCK
    world.run(3)
    plan = world.sync()
    assert said(plan, "RolledOut")[1] == "PullingImages" and plan.rolls


def test_operator_restart_neither_repeats_pulls_nor_extends_the_wait() -> None:
    world = pulling()
    pods, began = world.living_pods(), world.now
    names = {live.key for live in world.jobs()}
    for _ in _while_all_serve(world):
        if world.chance.random() < 0.2:
            world.restart()  # the next pass repeats the dry run
        assert {live.key for live in world.jobs()} == names
    assert world.living_pods() != pods and world.now - began < timedelta(seconds=TIMEOUT + 60)


def test_only_nodes_eligible_for_the_new_pods_pull_the_image() -> None:
    """An image is not pulled onto a cordoned node, or onto a node that the pods of the new revision do not select."""
    world = serving(SHAPE)
    occupied = sorted({pod.node for pod in world.pods.values() if pod.node})
    world.rolls_to(AFTER)
    cordoned, other = occupied[:2]
    found = {**nodes(16), cordoned: nodes(16)[cordoned]._replace(ready=False), other: nodes(16)[other]._replace(labels={})}
    world.edit(deps=replace(world.deps, nodes=found))
    plan = world.sync()
    wanted = set[str]()
    for _ in range(60):
        wanted |= {node(apply.manifest) for apply in plan.apply if apply.kind == "Job"}
        world.carry_out(plan)
        world.step()
        plan = world.sync()
    assert wanted and wanted <= set(occupied) - {cordoned}


def test_edit_during_a_pull_pulls_the_new_image() -> None:
    world = pulling()
    world.rolls_to(replace(SHAPE, image="engine:c"))
    world.run(3)
    assert len(world.jobs()) == LIMIT, "the first Jobs hold the slots until they end"
    world.answer = lambda _: "pulled"
    world.settle()
    assert world.condition("RolledOut")["status"] == "True" and world.most == LIMIT


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        ({}, PullOutcome.ACTIVE),
        ({"active": 1, "startTime": START.isoformat()}, PullOutcome.ACTIVE),
        ({"startTime": (START + timedelta(seconds=90)).isoformat()}, PullOutcome.ACTIVE),
        ({"startTime": START.isoformat()}, PullOutcome.FAILED),
        ({"startTime": START.isoformat(), "uncountedTerminatedPods": {"succeeded": ["uid"]}}, PullOutcome.ACTIVE),
        ({"startTime": "yesterday"}, PullOutcome.ACTIVE),
        ({"conditions": [{"type": "Complete", "status": "True"}]}, PullOutcome.PULLED),
        ({"conditions": [{"type": "Failed", "status": "True", "reason": "PodFailurePolicy"}]}, PullOutcome.PULLED),
        ({"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]}, PullOutcome.FAILED),
        ({"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]}, PullOutcome.FAILED),
        ({"conditions": [{"type": "Suspended", "status": "True"}], "active": 1}, PullOutcome.ACTIVE),
    ],
)
def test_exit_of_pull_job_proves_pulled_image(status: dict[str, object], wanted: PullOutcome) -> None:
    """A Job whose container exits with any code shows that the image was pulled; a Job whose pod ends without an exit code
    does not.
    """
    world = pulling()
    job = world.jobs()[0].facts(world.service)
    assert pull_outcome(job._replace(content={"status": status, "generation": 0}), START + timedelta(seconds=100)) is wanted


def test_no_images_are_pulled_with_pull_policy_never() -> None:
    world = serving(SHAPE)
    written = SHAPE.service().spec.model_dump(by_alias=True, exclude_none=True)
    for role in ("engine", "decoder"):
        written[role] |= {"runner": {"name": "ome-container", "image": NEW, "imagePullPolicy": "Never"}}
    world.edit(parts.service(written))
    world.settle()
    assert world.condition("RolledOut")["status"] == "True" and not world.jobs()
