"""Tests of a service whose roles are scaled to zero and back: its Service, its groups, and the effect of a request."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.core.observed.arrivals import Arrivals
from ome_operator.core.observed.objects import Deps, Observed
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.reconcile.sync import sync
from tests.conftest import SOAK
from tests.support import parts
from tests.support.simulator import World

ROUTER = ["--pd-disaggregation", "--service-discovery", "--port=8080"]
BOUNDS = {"minReplicas": 0, "maxReplicas": 4}


class ZeroWorld(World):
    """A simulated world in which requests arrive at the service."""

    arrived: float | None = None
    """Time of the last request that no engine could serve, in seconds since the epoch."""

    def observed(self) -> Observed:
        return replace(super().observed(), arrivals=Arrivals(self.arrived))


def deps(*, decoder: bool = True, registry: str = "operator:1") -> Deps:
    args = ROUTER if decoder else ROUTER[1:]
    box = parts.container(name="router", image="docker.io/lightseekorg/smg:1.13.0", command=["smg", "launch"], args=args)
    runtime = parts.simple(decoder=decoder)
    router = parts.runtime(routerConfig={"runner": box}).spec.router_config
    found = parts.deps(parts.model(), replace(runtime, spec=runtime.spec.model_copy(update={"router_config": router})))
    return replace(found, policy=replace(found.policy, registry_image=registry, policies_from="ome"))


def world(wakes: bool | None = None, decoder: bool = True, seed: int = 1, **more: Any) -> ZeroWorld:
    """Return a service with two groups of each role. `wakes` is `spec.scalingPolicy.wakeOnRequest`; None leaves the field
    out.
    """
    spec: dict[str, Any] = {"engine": BOUNDS, "router": {"minReplicas": 2}}
    spec |= {"decoder": BOUNDS} if decoder else {}
    spec |= {} if wakes is None else {"scalingPolicy": {"wakeOnRequest": wakes}}
    out = ZeroWorld(parts.service(**spec), deps(decoder=decoder, **more), seed)
    out.settle()
    scale(out, 2)
    out.settle()
    assert out.condition("Ready")["status"] == "True"
    return out


def roles(one: World) -> list[str]:
    return [role for role in ("engine", "decoder") if ("RoleScale", f"svc-{role}") in one.children]


def scale(one: World, number: int) -> None:
    for role in roles(one):
        one.children["RoleScale", f"svc-{role}"].manifest["spec"]["replicas"] = number


def asked(one: World) -> dict[str, int]:
    return {role: one.children["RoleScale", f"svc-{role}"].manifest["spec"]["replicas"] for role in roles(one)}


def answered(one: World) -> bool:
    """Return whether the Service sends requests to the registries. Fail if only some of the objects agree."""
    body = one.children["Service", "svc"].manifest
    is_labelled = keys.ANSWERED_BY in body["metadata"]["labels"]
    ports = {port["targetPort"] for port in body["spec"]["ports"]}
    assert ports == ({keys.ANSWER_PORT} if is_labelled else {8080})
    assert body["spec"].get("publishNotReadyAddresses", False) == is_labelled
    allowed = str(one.children["NetworkPolicy", "svc-router"].manifest["spec"]["ingress"])
    assert (str(keys.ANSWER_PORT) in allowed) == is_labelled
    return is_labelled


def can_serve(one: World) -> bool:
    """Return whether a leader of each role is ready and not being drained."""
    ready = {pod.labels[keys.COMPONENT] for pod in one.pods.values() if pod.ready and not pod.deleting and not pod.draining}
    return {"router", *roles(one)} <= ready


def step(one: World, seconds: float = 5) -> Plan:
    plan = one.sync()
    one.carry_out(plan)
    one.step()
    one.now += timedelta(seconds=seconds)
    return plan


def at_zero(one: ZeroWorld) -> ZeroWorld:
    scale(one, 0)
    one.settle()
    assert answered(one) and not one.living_pods("engine")
    return one


@pytest.mark.parametrize("decoder", [True, False])
@pytest.mark.parametrize("seed", range(12 if SOAK else 1))
def test_service_selects_registries_only_while_no_engine_is_available(decoder: bool, seed: int) -> None:
    one = world(decoder=decoder, seed=seed)
    assert not answered(one)
    scale(one, 0)
    for _ in range(40):
        could = can_serve(one)
        step(one)
        assert not (could and answered(one)), "a request would get 503 although an engine could serve it"
    one.settle()
    assert answered(one) and len(one.living_pods("router")) == 2 and one.condition("Ready")["reason"] == "ScaledToZero"
    scale(one, 1)
    for _ in range(60):
        could = can_serve(one)
        step(one)
        assert could or answered(one), "the router has no engine yet"
    one.settle()
    assert not answered(one) and one.condition("Ready")["status"] == "True"


def test_service_selects_registries_if_one_role_is_at_zero() -> None:
    one = world()
    one.children["RoleScale", "svc-decoder"].manifest["spec"]["replicas"] = 0
    one.settle()
    assert answered(one) and len(one.living_pods("engine")) == 2


def test_service_selector_is_unchanged_without_a_registry() -> None:
    one = world(registry="")
    scale(one, 0)
    one.settle()
    assert not answered(one)


def test_services_of_slices_behind_a_route_also_select_registries() -> None:
    one = world()
    exposed = one.deps.policy.exposure._replace(kind="HTTPRoute", domain="example.com", gateway="edge/gw")
    one.edit(deps=replace(one.deps, policy=replace(one.deps.policy, exposure=exposed)))
    one.settle()
    names = [name for kind, name in one.children if kind == "Service" and name.startswith("svc-router-")]
    assert names
    at_zero(one)
    for name in names:
        assert [port["targetPort"] for port in one.children["Service", name].manifest["spec"]["ports"]] == [keys.ANSWER_PORT]


@pytest.mark.parametrize("wakes", [None, False])
def test_request_does_not_wake_without_wake_on_request(wakes: bool | None) -> None:
    one = at_zero(world(wakes))
    one.now += timedelta(seconds=60)
    one.arrived = one.now.timestamp() - 1
    one.settle()
    assert asked(one) == {"engine": 0, "decoder": 0} and answered(one)


def test_request_restores_both_roles_and_status_records_the_duration() -> None:
    one = at_zero(world(True))
    assert one.service.status["zero"]["groups"] == {"engine": 2, "decoder": 2}
    one.now += timedelta(seconds=60)
    one.arrived = one.now.timestamp() - 1
    plan = step(one, 0)
    assert [patch.name for patch in plan.scale] == ["svc-engine", "svc-decoder"]
    assert asked(one) == {"engine": 2, "decoder": 2} and answered(one)
    for _ in range(60):
        one.arrived = one.now.timestamp() - 1
        assert step(one).scale == (), "a wake causes one change"
    one.settle()
    assert not answered(one) and one.condition("Ready")["status"] == "True"
    wake = one.service.status["zero"]["wake"]
    assert wake["by"] == "Request" and wake["servedAfterSeconds"] > 0


def test_wake_does_not_overwrite_a_concurrently_written_role_scale() -> None:
    one = at_zero(world(True))
    one.now += timedelta(seconds=60)
    one.arrived = one.now.timestamp() - 1
    (engine, _) = one.sync().scale
    assert engine.body["metadata"]["resourceVersion"] == str(one.observed().children["RoleScale", "svc-engine"].version)


def test_autoscaler_that_writes_zero_does_not_interrupt_a_wake() -> None:
    one = at_zero(world(True))
    one.now += timedelta(seconds=60)
    one.arrived = one.now.timestamp() - 1
    step(one)
    one.arrived = None
    scale(one, 0)
    for _ in range(25):
        step(one)
    assert len(one.living_pods("engine")) == 2 and one.condition("Ready")["status"] == "True"
    said = sync(one.service, one.deps, one.observed(), one.now).status["conditions"]
    advice = next(told["message"] for told in said if told["type"] == "Advice")
    assert "RoleScale svc-engine asks for 0 groups, but a request has woken the service, so 2 are kept until" in advice
    one.now += timedelta(seconds=900)
    one.settle()
    assert answered(one) and not one.living_pods("engine") and asked(one) == {"engine": 0, "decoder": 0}


@pytest.mark.parametrize("note", [keys.FREEZE, keys.OBSERVE])
def test_a_service_that_is_held_is_not_woken(note: str) -> None:
    one = at_zero(world(True))
    one.service = replace(one.service, annotations={note: "true"})
    one.now += timedelta(seconds=60)
    one.arrived = one.now.timestamp() - 1
    plan = one.sync()
    assert plan.scale == () and "scale 2 RoleScales" in str(plan.status["conditions"])


def test_frozen_service_with_ready_engines_receives_requests_again() -> None:
    one = at_zero(world())
    scale(one, 1)
    for _ in range(60):
        if can_serve(one):
            break
        step(one)
    assert answered(one)
    one.service = replace(one.service, annotations={keys.FREEZE: "true"})
    one.carry_out(one.sync())
    labels = one.children["Service", "svc"].manifest["metadata"]["labels"]
    assert keys.ANSWERED_BY not in labels


def test_role_without_role_scale_cannot_be_woken_and_gives_advice() -> None:
    one = ZeroWorld(
        parts.service(engine={"minReplicas": 0}, decoder=BOUNDS, router={}, scalingPolicy={"wakeOnRequest": True}), deps(), 1
    )
    one.settle()
    one.now += timedelta(seconds=60)
    one.arrived = one.now.timestamp() - 1
    assert one.sync().scale == ()
    advice = one.condition("Advice")["message"]
    assert "spec.scalingPolicy.wakeOnRequest cannot wake engine, which has no RoleScale" in advice
