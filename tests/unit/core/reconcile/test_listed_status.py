"""Tests of fields of the status that `kubectl get isvc` and `ome status` show while an edit is rolled out or waits."""

from dataclasses import replace
from datetime import timedelta

import pytest

from ome_operator.core.reconcile.sync import sync
from tests.support import parts
from tests.support.shapes import Shape
from tests.unit.core.passes import settled


def test_status_shows_the_serving_model_while_an_edit_waits() -> None:
    """While an edit of the model waits, the status shows the model that serves. `kubectl get isvc` shows this field.
    Previously, it showed the model of the spec, although another one served.
    """
    world = settled(Shape())
    assert world.service.status["model"] == "tiny"
    renamed = parts.service(model={"name": "absent"}, engine={}, router={})
    plan = sync(replace(renamed, status=world.service.status), world.deps, world.observed(), world.now)
    assert plan.status["model"] == "tiny"
    other = parts.deps(parts.model(name="other"), parts.simple(2, decoder=True, image="a"))
    renamed = parts.service(model={"name": "other"}, rollout={"paused": True}, engine={}, router={})
    plan = sync(replace(renamed, status=world.service.status), other, world.observed(), world.now)
    assert plan.status["model"] == "tiny→other" and "→" in plan.status["revision"]


@pytest.mark.parametrize("strategy", ["recreate", "blueGreen", "surge"])
def test_status_keeps_the_last_start_duration_during_a_rollout(strategy: str) -> None:
    """During a rollout, the status keeps how long the last start took. `ome status` says "starting for 80 s, last time 55
    s". The groups that started in 55 s are gone by then, unless the strategy keeps them.
    """
    world = settled(Shape(strategy=strategy))
    start = {"time": "2026-01-01T00:00:00Z", "seconds": 55, "parts": []}
    groups = [{**group, "start": start} for group in world.service.status["groups"]]
    world.service = replace(world.service, status={**world.service.status, "groups": groups})
    world.deps = Shape(image="b", strategy=strategy).deps()
    seen = []
    for _ in range(40):
        plan = world.sync()
        target = plan.status["revision"].rpartition("→")[2]
        seen += [(one["phase"], one.get("start")) for one in plan.status["groups"] if one["revision"] == target]
        world.carry_out(plan)
        if not world.step() and plan.requeue_after:
            world.now += timedelta(seconds=plan.requeue_after)
    before_ready = [found for phase, found in seen if phase != "Ready"]
    assert before_ready and all(found == start for found in before_ready)
    assert seen[-1][0] == "Ready" and seen[-1][1] != start
