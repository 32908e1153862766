"""Tests of services that KEDA scales: when a ScaledObject exists, how many requests it causes, and what the advice says."""

from dataclasses import replace
from typing import Any

import pytest

from ome_operator.core.observed.from_api import child
from ome_operator.core.observed.objects import Observed
from ome_operator.core.reconcile.sync import sync
from tests.support import parts
from tests.support.simulator import World

SCALE, OBJECT, HPA = (
    (kind, "svc-engine") for kind in ("RoleScale", "ScaledObject", "HorizontalPodAutoscaler")
)  # fmt: skip
TRIGGER = {"type": "prometheus", "metadata": {"serverAddress": "http://p", "query": "q", "threshold": "4"}}
BY_KEDA = {"class": "KEDA", "keda": {"triggers": [TRIGGER]}}


def asked(**engine: Any) -> Any:
    return parts.service(engine={"minReplicas": 1, "maxReplicas": 4, "autoscaler": BY_KEDA, **engine})


def settled(service: Any, *, keda: bool = True) -> World:
    world = World(service, parts.change_deps(parts.deps(parts.model(), parts.simple()), keda=keda), seed=1)
    world.settle()
    return world


def advice(world: World, observed: Observed | None = None) -> str:
    conditions = sync(world.service, world.deps, observed or world.observed(), world.now).status["conditions"]
    return "".join(told["message"] for told in conditions if told["type"] == "Advice")


def test_keda_writes_the_role_scale_and_the_operator_follows_it() -> None:
    world = settled(asked())
    target = world.children[OBJECT].manifest["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == SCALE and HPA not in world.children
    world.children[SCALE].manifest["spec"]["replicas"] = 3
    world.settle()
    assert len({pod.uid for pod in world.pods.values()}) == 3 and advice(world) == ""
    assert world.children[SCALE].manifest["spec"]["replicas"] == 3, "KEDA sets the number of groups"


def test_size_is_kept_and_advice_given_without_keda() -> None:
    world = settled(asked(), keda=False)
    assert OBJECT not in world.children and SCALE in world.children and len(world.pods) == 1
    assert "class KEDA has no effect for engine and its size stays" in advice(world)


def test_scaled_object_is_created_after_an_edit_and_not_after_an_upgrade() -> None:
    service = asked()
    world = settled(replace(service, generation=3, status={"observedGeneration": 3}))
    assert OBJECT not in world.children and len(world.pods) == 1
    assert "the autoscaler of spec.engine had no effect in earlier versions of the operator" in advice(world)
    assert world.service.status["scalingIgnoredAt"] == 3
    world.edit(replace(service, generation=4))
    world.settle()
    assert OBJECT in world.children and "earlier versions" not in advice(world)


def test_upgrade_is_recorded_even_if_keda_is_enabled_later() -> None:
    world = settled(replace(asked(), generation=3, status={"observedGeneration": 3}), keda=False)
    world.edit(deps=parts.change_deps(world.deps, keda=True))
    world.settle()
    assert OBJECT not in world.children and "earlier versions" in advice(world)


def test_another_class_removes_the_scaled_object() -> None:
    world = settled(asked())
    world.children[SCALE].manifest["spec"]["replicas"] = 3
    world.settle()
    world.edit(asked(autoscaler={"class": "HPA"}))
    world.settle()
    assert OBJECT not in world.children and HPA in world.children and len(world.pods) == 3
    world.edit(asked())
    world.settle()
    assert OBJECT in world.children and HPA not in world.children


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ({"type": "Ready", "status": "False", "message": "no server"}, "no server"),
        ({"type": "Ready", "status": "True", "message": "fine"}, ""),
        ({"type": "Fallback", "status": "True", "message": "one trigger is falling back"}, "one trigger is falling back"),
        ({"type": "Fallback", "status": "False", "message": "none"}, ""),
        ({"type": "Active", "status": "False", "message": "idle"}, ""),
    ],
)
def test_scaled_object_condition_gives_the_keda_error_message(condition: dict[str, str], message: str) -> None:
    metadata = {"name": "svc-engine", "namespace": "team", "uid": "u", "resourceVersion": "1"}
    assert child("ScaledObject", {"metadata": metadata, "status": {"conditions": [condition]}}).message == message


def test_keda_error_is_reported_as_advice_and_the_size_stays() -> None:
    world = settled(asked())
    world.children[SCALE].manifest["spec"]["replicas"] = 2
    world.settle()
    seen = world.observed()
    blind = replace(seen, children={**seen.children, OBJECT: seen.children[OBJECT]._replace(message="no server")})
    assert advice(world, blind) == "ScaledObject svc-engine does not scale: no server"
    assert len(world.pods) == 2
