"""Tests of a complete reconciliation of a service whose preflight check has found a problem before the engines started."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ome_operator.core.observed.objects import Pod
from ome_operator.core.preflight.results import OWN, CheckResult, PreflightFinding
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.reconcile.sync import sync
from ome_operator.core.recovery.policy import START
from ome_operator.describe.diagnosis import find_trouble
from ome_operator.describe.tree import tree
from tests.support.effects import effects
from tests.support.shapes import Shape
from tests.support.simulator import World

SHM = PreflightFinding("shm", OWN, "/dev/shm has 16 MiB, but 128 MiB are needed", "mount more")


def seen(held: bool, later: float = 0.0, **more: Any) -> tuple[Plan, World]:
    """Return the plan of a reconciliation of a new service in which the check of rank 0 of the engine has found a problem,
    and the simulated world.
    """
    world = World(Shape().service(), Shape().deps(), 3)
    world.settle()

    def wanting(pod: Pod) -> Pod:
        pod = pod._replace(node="gpu-7")
        if pod.component != "engine":
            return pod
        if pod.rank:
            return pod._replace(running=not held)
        fields: dict[str, Any] = {"preflight": CheckResult((SHM,), held), **more}
        if held:
            fields |= {"ready": False, "running": False, "reason": "PreflightFailed", "message": SHM.sentence}
        return pod._replace(**fields)

    observed = world.observed()
    wrong = replace(observed, pods=tuple(wanting(pod) for pod in observed.pods))
    service = replace(world.service, status={**world.service.status, "groups": []})
    plan = sync(service, world.deps, wrong, world.now)
    service = replace(service, status=plan.status)
    return sync(service, world.deps, wrong, world.now + timedelta(seconds=later)), world


def condition(plan: Plan, name: str) -> dict[str, Any]:
    return next((dict(each) for each in plan.status["conditions"] if each["type"] == name), {})


def test_warn_mode_reports_findings_and_the_service_is_ready() -> None:
    plan, _ = seen(held=False)
    told = condition(plan, "Preflight")
    assert (told["status"], told["reason"]) == ("False", "PreflightFindings")
    assert "rank 0 on node gpu-7" in told["message"] and SHM.said in told["message"]
    assert condition(plan, "Ready")["status"] == "True"
    (group,) = [each for each in plan.status["groups"] if "preflight" in each]
    assert group["phase"] == "Ready" and SHM.said in group["preflight"][0]


@pytest.mark.parametrize("later", [0.0, 2 * START])
def test_require_mode_holds_the_group_without_recycling(later: float) -> None:
    plan, _ = seen(held=True, later=later)
    told, engine = condition(plan, "Preflight"), condition(plan, "EngineReady")
    assert told["reason"] == engine["reason"] == "PreflightFailed"
    assert "held by their preflight" in engine["message"]
    assert condition(plan, "Ready")["status"] == "False"
    (group,) = [each for each in plan.status["groups"] if "preflight" in each]
    assert group["phase"] == "Preflight" and not plan.recycle and effects(plan) == ()


def test_status_and_explain_show_preflight_findings_with_a_next_step() -> None:
    plan, world = seen(held=False)
    body = {"metadata": {"name": "svc", "namespace": "team", "uid": world.service.uid}, "spec": {}, "status": plan.status}
    drawn = tree(body, world.observed())
    assert ("Preflight", "PreflightFindings") in [(each.type, each.reason) for each in drawn.conditions]
    found = {each.condition: each for each in find_trouble(drawn, plan.status["conditions"], ()).findings}
    assert "-c ome-preflight" in found["Preflight"].next and SHM.said in found["Preflight"].message


def test_new_preflight_finding_creates_an_event() -> None:
    world = World(Shape().service(), Shape().deps(), 3)
    world.settle()
    observed = world.observed()
    wrong = tuple(pod._replace(preflight=CheckResult((SHM,), False)) if pod.rank == 0 else pod for pod in observed.pods)
    plan = sync(world.service, world.deps, replace(observed, pods=wrong), world.now)
    assert [each.reason for each in plan.events] == ["PreflightFindings"]
