"""Tests of routers whose number is set by users or autoscalers: their RoleScale, rollouts, and upgrades of the operator."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ome_operator.core.reconcile.sync import sync
from tests.support import parts
from tests.support.simulator import World

SCALE, HPA = ("RoleScale", "svc-router"), ("HorizontalPodAutoscaler", "svc-router")
POLICY = ["--pd-disaggregation", "--service-discovery", "--policy=cache_aware"]


def asked(groups: int = 2, **router: Any) -> Any:
    """Return a service with this number of groups of each role, and with these fields of its router."""
    return parts.service(engine={"minReplicas": groups}, decoder={"minReplicas": groups}, router=router)


def settled(service: Any, seed: int = 1) -> World:
    world = World(service, parts.deps(parts.model(), parts.simple(decoder=True)), seed=seed)
    world.settle()
    return world


def routers(world: World) -> dict[str, int]:
    """Return the number of routers that each Deployment asks for."""
    return {name: each.manifest["spec"]["replicas"] for (kind, name), each in world.children.items() if kind == "Deployment"}


def advice(world: World) -> str:
    conditions = sync(world.service, world.deps, world.observed(), world.now).status["conditions"]
    return "".join(told["message"] for told in conditions if told["type"] == "Advice")


def scale(world: World, number: int) -> None:
    world.children[SCALE].manifest["spec"]["replicas"] = number


@pytest.mark.parametrize(("low", "high"), [(1, 4), (2, 5), (3, 8)])
def test_role_scale_of_routers_starts_with_the_running_number(low: int, high: int) -> None:
    world = settled(asked(minReplicas=low, maxReplicas=high))
    assert world.children[SCALE].manifest["spec"] == {"replicas": low} and [*routers(world).values()] == [low]
    engines = {pod.uid for pod in world.pods.values() if pod.labels["component"] != "router"}
    for number in (high, low + 1, high + 3, low - 1):
        scale(world, number)
        world.settle()
        assert [*routers(world).values()] == [min(max(number, low), high)]
        status = world.children[SCALE].status
        assert status["replicas"] == status["readyReplicas"] == min(max(number, low), high)
    assert {pod.uid for pod in world.pods.values() if pod.labels["component"] != "router"} == engines
    words = f"RoleScale svc-router asks for {low - 1} routers, but spec.router has minReplicas {low} and maxReplicas {high}"
    assert words in advice(world)


def test_equal_router_bounds_create_no_role_scale() -> None:
    world = settled(asked(minReplicas=3))
    assert SCALE not in world.children and [*routers(world).values()] == [3]


@pytest.mark.parametrize("number", [1, 3, 6])
def test_routers_of_a_role_scale_are_divided_between_slices_during_a_rollout(number: int) -> None:
    """During a rollout, the number of routers in the RoleScale is divided between the slices in proportion to their ready
    groups (decisions 11).
    """
    world = settled(asked(3, minReplicas=1, maxReplicas=8))
    scale(world, number)
    world.settle()
    world.edit(deps=parts.deps(parts.model(), parts.simple(decoder=True, image="engine:2")))
    seen = set[tuple[int, ...]]()
    for _ in range(300):
        plan = world.sync()
        world.carry_out(plan)
        world.step()
        world.now += timedelta(seconds=plan.requeue_after or 1)
        if len(found := routers(world)) == 2:
            seen.add(tuple(sorted(found.values())))
            assert all(1 <= each <= max(number, 2) for each in found.values())
    world.settle()
    assert seen and [*routers(world).values()] == [number]
    if number == 6:
        assert (2, 4) in seen, "a third of the groups is new, and so are two of six routers"


def test_number_of_routers_is_kept_if_the_role_scale_is_deleted() -> None:
    world = settled(asked(minReplicas=1, maxReplicas=5))
    scale(world, 4)
    world.settle()
    del world.children[SCALE]
    world.settle()
    assert [*routers(world).values()] == [4] and world.children[SCALE].manifest["spec"]["replicas"] == 4


def test_router_autoscaler_is_created_after_an_edit_and_not_after_an_upgrade() -> None:
    service = asked(minReplicas=1, maxReplicas=4, scaleMetric="cpu")
    before = replace(service, generation=3, status={"observedGeneration": 3})
    world = settled(before)
    assert HPA not in world.children and SCALE in world.children and [*routers(world).values()] == [1]
    assert "the autoscaler of spec.router had no effect in earlier versions of the operator" in advice(world)
    assert world.service.status["scalingIgnoredAt"] == 3
    world.edit(replace(service, generation=4))
    world.settle()
    assert HPA in world.children and world.service.status["scalingIgnoredAt"] == 3
    target = world.children[HPA].manifest["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == SCALE
    assert "earlier versions" not in advice(world)


def test_router_autoscaler_of_a_new_service_is_created_immediately() -> None:
    world = settled(asked(minReplicas=1, maxReplicas=4, scaleMetric="cpu"))
    assert HPA in world.children and world.service.status["scalingIgnoredAt"] == 0
    world.settle()
    assert HPA in world.children


def test_service_without_router_autoscaler_has_no_scaling_ignored_field() -> None:
    assert "scalingIgnoredAt" not in settled(asked(minReplicas=1, maxReplicas=4)).service.status


@pytest.mark.parametrize(
    ("args", "number", "told"),
    [
        (POLICY, 2, True),
        (POLICY[:2], 2, True),
        (POLICY, 1, False),
        ([*POLICY, "--prefill-policy=manual"], 2, False),
        ([*POLICY[:2], "--policy=round_robin"], 2, False),
        ([*POLICY, "--enable-mesh"], 2, False),
        (["--policy=cache_aware"], 2, False),
    ],
)
def test_advice_warns_about_several_cache_aware_routers(args: list[str], number: int, told: bool) -> None:
    runtime = parts.simple(decoder=True)
    assert runtime.spec.router_config is not None
    box = parts.container(name="router", image="docker.io/lightseekorg/smg:1.13.0", command=["smg", "launch"], args=args)
    changed = runtime.spec.model_copy(
        update={"router_config": parts.runtime(routerConfig={"runner": box}).spec.router_config}
    )
    deps = parts.deps(parts.model(), replace(runtime, spec=changed))
    world = World(asked(minReplicas=1, maxReplicas=4), deps, seed=1)
    world.settle()
    scale(world, number)
    world.settle()
    assert (f"each of the {number} routers with the policy cache_aware knows only" in advice(world)) == told
