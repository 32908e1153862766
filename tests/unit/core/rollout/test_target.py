"""Tests of which revision is the target of a service, and what happens to a revision that fails."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from ome_operator.core.rollout.target import TargetRevision, target
from tests.support.effects import effects
from tests.support.shapes import Shape
from tests.support.simulator import World

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STORED = {"a": 1, "b": 2, "c": 3}


def to(
    pin: str = "", whole: str = "a", rejected: tuple[dict[str, Any], ...] = (), retry: str = "", **more: int
) -> TargetRevision:
    """Return the target of a service with three revisions. `whole` is the last one that was complete."""
    return target(pin, {**STORED, **more}, whole, rejected, retry)


FAILED = to().reject("ProgressDeadlineExceeded", "0/1 pods", NOW)


@pytest.mark.parametrize(
    ("aim", "revision"),
    [
        (to(), "c"),
        (to("b"), "b"),
        (to(b=4), "b"),  # the user wrote the revision again
        (to(rejected=(FAILED,)), "a"),
        (to("b", rejected=(FAILED,)), "b"),
        (to("c", rejected=(FAILED,)), "a"),  # a pin also retries the same revision
        (to(rejected=(FAILED,), whole=""), "c"),  # there is no revision to return to
        (to(rejected=(FAILED,), whole="x"), "c"),
        (to(rejected=(FAILED,), d=4), "d"),
        (to(rejected=(FAILED,), retry="now"), "c"),
        (to(rejected=(to(retry="now").reject("R", "", NOW),), retry="now"), "a"),
        (target("", {}, "", (), ""), ""),
    ],
)
def test_target_is_the_pin_or_the_newest_revision_that_was_not_rejected(aim: TargetRevision, revision: str) -> None:
    assert aim.revision == revision


def test_only_a_stored_target_is_marked_as_named() -> None:
    assert not to().is_named and not to("x").is_named
    assert to("b").is_named and to("c").is_named and to(rejected=(FAILED,)).is_named


def test_unknown_pin_is_reported_with_the_stored_revisions() -> None:
    (problem,) = to("x").problems
    assert (problem.condition, problem.reason) == ("RolledOut", "RevisionNotFound")
    assert "x is not stored (stored: a, b, c)" in problem.message


def test_rejection_ends_only_with_an_edit_or_a_request() -> None:
    assert to(rejected=(FAILED,)).rejected == to("b", rejected=(FAILED,)).rejected == (FAILED,)
    assert to(rejected=(FAILED,), d=4).rejected == to(rejected=(FAILED,), retry="x").rejected == ()


def test_revisions_that_may_be_used_later_are_kept() -> None:
    assert to("b", rejected=(FAILED,)).used_revisions == {"a", "b", "c"}
    assert to(whole="").used_revisions == {"c"}


# --- complete passes ---------------------------------------------------------------------------------------------------


def failed(shape: Shape, **more: Any) -> tuple[World, str, str]:
    """Return a service whose edit never becomes ready, and the revisions before and after the edit."""
    world = World(shape.service(), shape.deps(), 1)
    world.settle()
    before = str(world.service.status["revision"])
    world.healthy = lambda pod: pod.labels["ome.io/revision"] == before
    world.edit(replace(shape, **more).service(), replace(shape, image="b", **more).deps())
    world.settle()
    stored = {one.labels["ome.io/revision"] for (kind, _), one in world.children.items() if kind == "ControllerRevision"}
    (after,) = stored - {before}
    return world, before, after


def templates(world: World) -> dict[str, Any]:
    """Return the pod templates of the existing StatefulSets."""
    return {name: one.manifest["spec"]["template"] for (kind, name), one in world.children.items() if kind == "StatefulSet"}


def test_slice_that_does_not_become_ready_is_reported_and_kept() -> None:
    world, before, after = failed(Shape())
    assert world.service.status["revision"] == after
    for type_ in ("RolledOut", "Ready"):
        said = world.condition(type_)
        assert (said["status"], said["reason"]) == ("False", "ProgressDeadlineExceeded")
        assert "1h (spec.rollout.readyTimeout): engine 0/2" in said["message"]
        assert f"go back to {before}: `ome undo svc -n team`" in said["message"]
    world.healthy = lambda _: True
    world.settle()
    assert world.condition("RolledOut")["status"] == "True"
    assert "progress" not in world.service.status


def test_first_slice_is_not_rolled_back() -> None:
    shape = Shape(rollback=True)
    world = World(shape.service(), shape.deps(), 1)
    world.healthy = lambda _: False
    world.settle()
    assert world.condition("RolledOut")["reason"] == "ProgressDeadlineExceeded"
    assert "ome undo" not in world.condition("RolledOut")["message"]
    assert "rejected" not in world.service.status


@pytest.mark.parametrize("shape", [Shape(rollback=True), Shape(rollback=True, size=3, engines=2, decoders=1)])
def test_rollback_recreates_the_old_statefulsets_unchanged(shape: Shape) -> None:
    world = World(shape.service(), shape.deps(), 1)
    world.settle()
    pods = templates(world)
    world, before, after = failed(shape)
    assert templates(world) == pods
    assert world.service.status["revision"] == before
    (one,) = world.service.status["rejected"]
    assert (one["revision"], one["reason"]) == (after, "ProgressDeadlineExceeded")
    assert world.condition("Ready")["status"] == "True"
    said = world.condition("RolledOut")
    assert (said["status"], said["reason"]) == ("False", "RolledBack")
    assert said["message"].startswith(f"revision {after} has made no progress for 5m (spec.rollout.readyTimeout): ")
    assert f": the revision was rejected, and revision {before} serves. " in said["message"]
    assert "`ome retry svc -n team`" in said["message"]


def test_rejected_revision_is_remembered_and_not_retried() -> None:
    world, before, _ = failed(Shape(rollback=True))
    log = list(world.log)
    world.restart()
    world.edit(Shape(rollback=True, engines=1).service())
    world.settle()
    assert world.log == log
    assert {one.labels["ome.io/revision"] for one in world.pods.values()} == {before}


def test_edit_or_retry_request_starts_the_rejected_rollout_again() -> None:
    world, _, after = failed(Shape(rollback=True))
    world.healthy = lambda _: True
    world.edit(replace(world.service, annotations={"ome.io/rollout-retry": "1"}))
    world.settle()
    assert world.service.status["revision"] == after and "rejected" not in world.service.status
    world, before, after = failed(Shape(rollback=True))
    world.edit(deps=Shape().deps())
    world.settle()
    assert world.service.status["revision"] == before and "rejected" not in world.service.status
    world.healthy = lambda _: True
    world.edit(deps=Shape(image="b").deps())
    world.settle()
    assert world.service.status["revision"] == after
    assert world.condition("RolledOut")["status"] == "True"


def test_runtime_edit_rejected_by_one_service_is_not_tried_by_others() -> None:
    """An edit of a runtime stops at the first service that does not become complete with it, even if that service was rolled
    back. Other services do not try the edit.
    """
    world, *_ = failed(Shape(rollback=True))
    assert world.sync().rolls
    world.edit(Shape(rollback=True).service(), Shape(image="c").deps())
    world.healthy = lambda _: True
    world.settle()
    assert not world.sync().rolls


def test_rollback_does_not_wait_for_admission() -> None:
    shape = Shape(rollback=True)
    world = World(shape.service(), shape.deps(), 1)
    world.settle()
    before = str(world.service.status["revision"])
    world.healthy = lambda pod: pod.labels["ome.io/revision"] == before
    world.edit(deps=Shape(image="b").deps())
    world.run(20)
    world.may_roll = False
    world.settle()
    assert {one.labels["ome.io/revision"] for one in world.pods.values()} == {before}


def test_progress_deadline_does_not_run_while_paused() -> None:
    shape = Shape(rollback=True)
    world = World(shape.service(), shape.deps(), 1)
    world.settle()
    world.healthy = lambda _: False
    world.edit(deps=Shape(image="b").deps())
    world.run(20)
    assert world.service.status["progress"]["readyPods"] == 0
    world.edit(replace(shape, paused=True).service())
    world.run(60)
    assert "progress" not in world.service.status and "rejected" not in world.service.status
    assert effects(world.sync()) == ()


def test_each_further_pod_resets_the_progress_clock_but_a_restart_does_not() -> None:
    shape = Shape(size=4, router=False)
    world = World(shape.service(), shape.deps(), 1)
    world.healthy = lambda pod: pod.rank in (1, 2)
    world.run(30)
    first = world.service.status["progress"]
    assert first["readyPods"] == 2
    world.restart()
    world.run(30)
    assert world.service.status["progress"] == first
    world.healthy = lambda pod: pod.rank > 0
    world.run(10)
    second = world.service.status["progress"]
    assert second["readyPods"] == 3 and second["since"] > first["since"]
    next(pod for pod in world.pods.values() if pod.rank == 3).ready = False
    world.healthy = lambda _: False
    world.run(10)
    assert world.service.status["progress"] == second, "alternating states are no progress"


def test_invalid_progress_time_resets_the_clock() -> None:
    world = World(Shape().service(), Shape().deps(), 1)
    world.healthy = lambda _: False
    world.run(20)
    spoiled = {**world.service.status["progress"], "since": "yesterday"}
    world.service = replace(world.service, status={**world.service.status, "progress": spoiled})
    assert world.sync().status["progress"]["since"] == world.now.isoformat()
