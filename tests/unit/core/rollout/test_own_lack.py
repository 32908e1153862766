"""Tests that a service whose pods cannot start for a reason of its own, such as a missing volume claim, is distinguished
from a service that the shared edit broke.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ome_operator.core.observed.objects import Pod
from ome_operator.core.reconcile.plan import EditState
from ome_operator.core.rollout import own_lack
from tests.support.shapes import Shape
from tests.support.simulator import START, World
from tests.unit.core.placement.test_turns_of_services import RUNTIME, numbered

HOUR = timedelta(hours=2)


def rolled(after: Shape, before: Shape = Shape(), **facts: Any) -> World:  # noqa: B008 (it is never changed)
    """Return a service two hours after an edit of its runtime. The new pods have these facts, and none of them is ready."""
    world = World(before.service(), numbered(before, 1), 3)
    world.settle()
    world.deps = numbered(after, 2)
    old = str(world.service.status["revision"])
    world.healthy = lambda pod: pod.facts(world.service).revision == old
    plain = world.observed

    def seen(pod: Pod) -> Pod:
        return pod if pod.revision == old or pod.component == "router" else pod._replace(**facts)

    world.observed = lambda: replace(now := plain(), pods=tuple(map(seen, now.pods)))  # type: ignore[method-assign]
    world.run(20)
    world.now += HOUR
    world.run(2)
    return world


HOMELESS = {"node": "", "reason": "Unschedulable", "message": 'persistentvolumeclaim "mine" not found'}


def test_unschedulable_service_holds_its_wave_without_failing_the_edit() -> None:
    """Pods find no node for a reason of their service, and the deadline of an hour has passed. This is reported and holds
    back the service's wave, but it proves nothing against the edit.
    """
    stand = rolled(Shape(image="b"), **HOMELESS).sync().stands[RUNTIME]
    assert stand.state == EditState.PENDING and stand.lacks is not None


@pytest.mark.parametrize(
    "facts",
    [
        {"node": "n", "reason": "CrashLoopBackOff"},
        {"node": "n", "reason": "ImagePullBackOff"},
        {"node": "n", "reason": "Starting", "restarts": 1},
        {"node": "n", "reason": "Starting"},
    ],
)
def test_pods_that_started_and_did_not_become_ready_fail_the_edit(facts: dict[str, Any]) -> None:
    stand = rolled(Shape(image="b"), **facts).sync().stands[RUNTIME]
    assert stand.state == EditState.FAILED and stand.lacks is None


def test_rollback_for_lack_of_resources_holds_the_wave_without_failing_the_edit() -> None:
    """With `onFailure: Rollback`, a service whose pods lacked something of its own returns to its previous revision. It
    holds back its wave, but proves nothing against the edit: the stored rejection states what the pods lacked.
    """
    world = rolled(Shape(image="b", rollback=True), Shape(rollback=True), **HOMELESS)
    world.run(20)
    (rejection,) = world.service.status["rejected"]
    assert {pod.revision for pod in world.observed().pods} == {world.service.status["revision"]} != {rejection["revision"]}
    stand = world.sync().stands[RUNTIME]
    assert stand.state == EditState.PENDING and stand.lacks is not None
    assert stand.lacks.isoformat() == rejection["lacksSince"] < rejection["time"]


def test_rollback_after_container_failure_fails_the_edit() -> None:
    world = rolled(Shape(image="b", rollback=True), Shape(rollback=True), node="n", reason="CrashLoopBackOff")
    world.run(20)
    assert "lacksSince" not in world.service.status["rejected"][0]
    assert world.sync().stands[RUNTIME].state == EditState.FAILED


@pytest.mark.parametrize("text", ["", "yesterday", "2999-01-01T00:00:00+00:00"])
def test_invalid_lacks_since_time_is_ignored(text: str) -> None:
    assert own_lack.when_rejected({"lacksSince": text}, START) is None
