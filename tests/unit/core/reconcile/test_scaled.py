"""Tests of services whose number of groups is set by users or autoscalers: which objects exist, and what the condition
Advice says.
"""

from dataclasses import replace
from typing import Any

from ome_operator.core.observed.objects import Observed
from ome_operator.core.reconcile.sync import sync
from tests.support import parts
from tests.support.simulator import World

HPA, SCALE = ("HorizontalPodAutoscaler", "svc-engine"), ("RoleScale", "svc-engine")


def settled(**engine: Any) -> World:
    """Return a service with up to two groups that has become ready."""
    service = parts.service(engine={"minReplicas": 1, "maxReplicas": 2, **engine})
    world = World(service, parts.deps(parts.model(), parts.simple(router=False)), seed=1)
    world.settle()
    return world


def advice(world: World, observed: Observed | None = None) -> str:
    """Return the Advice of the next pass."""
    conditions = sync(world.service, world.deps, observed or world.observed(), world.now).status["conditions"]
    return "".join(told["message"] for told in conditions if told["type"] == "Advice")


def test_different_replica_bounds_create_a_role_scale_but_no_autoscaler() -> None:
    world = settled()
    assert SCALE in world.children and HPA not in world.children
    assert advice(world) == "", "this is how a role is scaled by hand"


def test_requests_per_second_target_is_not_used_as_cpu_percentage() -> None:
    world = settled(scaleMetric="rps", scaleTarget=5)
    assert SCALE in world.children and HPA not in world.children
    assert (
        "spec.engine.scaleMetric rps cannot be read by a HorizontalPodAutoscaler, so no HorizontalPodAutoscaler is created"
        in advice(world)
    )


def test_autoscaler_is_deleted_when_no_longer_requested_and_groups_stay() -> None:
    """An autoscaler that the spec does not request any more is deleted, and the number of groups stays. Earlier versions
    created the autoscaler because of minReplicas and maxReplicas alone.
    """
    world = settled(scaleMetric="cpu")
    world.children[SCALE].manifest["spec"]["replicas"] = 2
    world.settle()
    pods = {pod.uid for pod in world.pods.values()}
    assert HPA in world.children and len(pods) == 2
    world.edit(parts.service(engine={"minReplicas": 1, "maxReplicas": 2}))
    world.settle()
    assert HPA not in world.children and {pod.uid for pod in world.pods.values()} == pods


def test_role_scale_outside_its_bounds_is_reported_as_advice() -> None:
    world = settled(scaleMetric="cpu")
    assert advice(world) == ""
    world.children[SCALE].manifest["spec"]["replicas"] = 7
    world.settle()
    assert len(world.pods) == 2
    assert "RoleScale svc-engine asks for 7 groups, but spec.engine has minReplicas 1 and maxReplicas 2" in advice(world)


def test_missing_autoscaler_metrics_are_reported_only_if_pods_are_ready() -> None:
    world = settled(scaleMetric="cpu")
    seen = world.observed()
    blind = seen.children[HPA]._replace(message="the HPA was unable to compute the replica count: no metrics returned")
    told = replace(seen, children={**seen.children, HPA: blind})
    assert "HorizontalPodAutoscaler svc-engine does not scale: the HPA was unable to compute" in advice(world, told)
    starting = tuple(pod._replace(ready=False, reason="Starting") for pod in told.pods)
    assert "does not scale" not in advice(world, replace(told, pods=starting))
