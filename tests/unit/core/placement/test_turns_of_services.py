"""Tests of an edit that several services share: which service may begin, how long its admission lasts, and which service
proves that the edit works.
"""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from ome_operator import keys
from ome_operator.api.rollout import Rollout
from ome_operator.core.observed.objects import Deps, Epoch, Ref
from ome_operator.core.reconcile.plan import EditStand, EditState, Plan
from ome_operator.core.reconcile.sync import sync
from ome_operator.core.rollout import revisions
from tests.support.shapes import Shape
from tests.support.simulator import START, World
from tests.unit.core.passes import conditions, settled


@pytest.mark.parametrize("strategy", ["", "surge", "blueGreen"])
def test_admission_to_an_edit_lasts_until_the_new_slice_is_complete(strategy: str) -> None:
    """A service keeps its admission to an edit until its new slice is complete. So an edit of a runtime that works for no
    service stops at its first service, even if the old slice continues to serve.
    """
    world = settled(Shape(strategy=strategy))
    world.deps = Shape(image="b").deps()
    plans: list[Plan] = []
    world.watcher = plans.append
    world.healthy = lambda _: False
    world.settle()
    assert plans[-1].rolls and conditions(plans[-1])["RolledOut"] == ("False", "ProgressDeadlineExceeded")
    assert conditions(plans[-1])["Ready"][0] == str(bool(strategy))
    world.healthy = lambda _: True
    world.settle()
    assert not plans[-1].rolls and conditions(plans[-1])["RolledOut"] == ("True", "Complete")


def test_admission_ends_in_the_reconciliation_that_reports_it() -> None:
    """An admission ends in the reconciliation whose status reports the end. The operator's own write of a status causes no
    event, and a later reconciliation may be ten minutes away, while other services wait.
    """
    world = settled(Shape())
    world.deps = Shape(image="b").deps()
    plans: list[Plan] = []
    world.watcher = plans.append
    world.settle()
    turns = [(plan.rolls, conditions(plan)["RolledOut"][0]) for plan in plans]
    assert (True, "False") in turns
    assert (True, "True") not in turns


def test_edit_of_the_service_itself_does_not_wait_for_admission() -> None:
    world = settled(Shape())
    world.may_roll = False
    world.deps = Shape(image="b").deps()
    world.settle()
    assert conditions(sync(world.service, world.deps, world.observed(), START))["RolledOut"] == ("False", "WaitingForTurn")
    world.deps = Shape().deps()
    engine = world.service.spec.engine
    assert engine is not None
    changed = engine.model_copy(update={"runner": {"env": [{"name": "A", "value": "1"}]}})
    world.service = replace(world.service, spec=world.service.spec.model_copy(update={"engine": changed}))
    world.settle()
    assert conditions(sync(world.service, world.deps, world.observed(), START))["RolledOut"] == ("True", "Complete")


RUNTIME = Ref("ClusterServingRuntime", "", "rt")


def numbered(shape: Shape, generation: int) -> Deps:
    """Return the objects that a service of this shape may refer to, with a runtime of this generation."""
    deps = shape.deps()
    return replace(
        deps, runtimes={ref: replace(item, uid="u", generation=generation) for ref, item in deps.runtimes.items()}
    )  # type: ignore[arg-type]


def stories(world: World) -> list[Plan]:
    """Return a list to which the following plans are added as they are carried out."""
    plans: list[Plan] = []
    world.watcher = plans.append
    return plans


def test_service_proves_only_the_edit_with_which_it_became_complete() -> None:
    """A service proves only the edit with which it became complete. A new service proves nothing. A service whose engines
    the edit does not change proves nothing, either.
    """
    world = World(Shape().service(), numbered(Shape(), 1), 3)
    world.settle()
    assert "reached" not in world.service.status and world.sync().stands[RUNTIME].state == EditState.EQUAL
    world.deps, plans = numbered(Shape(image="b"), 2), stories(world)
    world.settle()
    states = [plan.stands[RUNTIME].state for plan in plans]
    assert states == sorted(states, reverse=True) and {*states} == {EditState.PENDING, EditState.DONE}, (
        "the edit is first pending, then done"
    )
    assert all((plan.rolls or bool(plan.check)) is (plan.stands[RUNTIME].state == EditState.PENDING) for plan in plans)
    (proof,) = world.service.status["reached"]
    at = datetime.fromisoformat(proof["time"])
    assert proof | {"time": ""} == {"kind": "ClusterServingRuntime", "name": "rt", "uid": "u", "generation": 2, "time": ""}
    assert world.sync().stands[RUNTIME] == EditStand(Epoch("u", 2), EditState.DONE, at)
    world.now += timedelta(hours=1)
    world.edit(Shape(engines=2).service())
    world.settle()
    assert world.sync().stands[RUNTIME].since == at, "scaling up does not invalidate the proof"
    world.deps = numbered(Shape(image="b"), 3)
    world.settle()
    assert world.sync().stands[RUNTIME].state == EditState.EQUAL and "reached" not in world.service.status


def test_rollout_to_a_named_revision_does_not_wait_for_admission() -> None:
    world = World(Shape().service(), numbered(Shape(), 1), 3)
    world.settle()
    first = str(world.service.status["revision"])
    world.deps = numbered(Shape(image="b"), 2)
    world.settle()
    world.may_roll = False
    rollout = Rollout(revision=first)
    world.service = replace(world.service, spec=world.service.spec.model_copy(update={"rollout": rollout}))
    world.settle()
    assert world.service.status["revision"] == first and conditions(world.sync())["RolledOut"] == ("True", "Complete")
    assert world.sync().stands == {} and "reached" not in world.service.status, "the service is in no wave"


@pytest.mark.parametrize("why", ["keeps", "model", "large"])
def test_complete_service_that_does_not_use_the_edit_proves_nothing(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that is complete without using an edit proves nothing about the edit. The service does not follow the
    runtime, or no revision can be created from the present runtime.
    """
    world = World(Shape().service(), numbered(Shape(), 1), 3)
    world.settle()
    world.deps = numbered(Shape(image="b"), 2)
    if why == "keeps":
        assert world.service.spec.runtime is not None
        kept = world.service.spec.runtime.model_copy(update={"auto_sync": False})
        world.service = replace(world.service, spec=world.service.spec.model_copy(update={"runtime": kept}))
    elif why == "model":
        world.deps = replace(world.deps, models={})
    else:
        monkeypatch.setattr(revisions, "SIZE_LIMIT", 10)
    world.settle()
    assert conditions(world.sync())["RolledOut"] == ("True", "Complete")
    assert world.sync().stands.get(RUNTIME, EditStand(Epoch("u", 2))) == EditStand(Epoch("u", 2))
    assert (RUNTIME in world.sync().stands) is (why != "keeps")


@pytest.mark.parametrize("back", [False, True])
def test_edit_fails_if_the_service_is_not_complete_in_time(back: bool) -> None:
    shape = Shape(rollback=back)
    world = World(shape.service(), numbered(shape, 1), 3)
    world.settle()
    world.deps = numbered(replace(shape, image="b"), 2)
    world.healthy = lambda pod: (
        pod.labels[keys.REVISION] == world.service.status["components"]["engine"].get("latestReadyRevision")
    )
    world.settle()
    assert world.sync().stands[RUNTIME].state == EditState.FAILED
    assert conditions(world.sync())["RolledOut"][1] == ("RolledBack" if back else "ProgressDeadlineExceeded")
    world.deps = numbered(shape, 3)
    world.settle()
    assert world.sync().stands[RUNTIME].state != EditState.FAILED, "the runtime was reverted"


def test_edit_refused_by_the_api_server_fails_before_the_rollout() -> None:
    """If the API server refuses an edit, the edit has failed for the service before its rollout begins. Otherwise the
    service would be asked to roll out forever, and nothing would be reported.
    """
    world = World(Shape().service(), numbered(Shape(), 1), 3)
    world.settle()
    world.verdict = lambda revision: "Invalid: imagePullPolicy"
    world.deps = numbered(Shape(image="b"), 2)
    world.settle()
    assert conditions(world.sync())["RolledOut"] == ("False", "DryRunRefused")
    assert world.sync().stands[RUNTIME].state == EditState.FAILED and conditions(world.sync())["Ready"][0] == "True"
    world.verdict = lambda revision: ""
    world.deps = numbered(Shape(image="c"), 3)
    assert world.sync().stands[RUNTIME].state == EditState.PENDING, "another edit is tried again"
    world.settle()
    assert world.sync().stands[RUNTIME].state == EditState.DONE
