"""Tests of services with the mode VirtualDeployment, as in OME v0.1.5: they are Ready under their name, and have no pods."""

from typing import Any

import pytest

from ome_operator.core.observed.objects import Observed
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.reconcile.sync import sync
from tests.support import parts
from tests.support.shapes import Shape
from tests.support.simulator import START, World

ANNOTATION = {"annotations": {"ome.io/deploymentMode": "VirtualDeployment"}}


@pytest.mark.parametrize("mode", [ANNOTATION, {"deploymentMode": "VirtualDeployment"}])
def test_virtual_service_has_no_pods_and_is_ready(mode: dict[str, Any]) -> None:
    """A service with the mode VirtualDeployment is Ready and has no pods. Previously, such a service got pods."""
    plan = sync(parts.service(engine={}, **mode), Shape().deps(), Observed(), START)
    assert plan == Plan(status=plan.status)
    (ready,) = plan.status["conditions"]
    assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "True", "VirtualDeployment")
    assert plan.status["url"] == plan.status["components"]["engine"]["url"] == "http://svc.team.svc.cluster.local"


def test_other_deployment_modes_are_not_virtual() -> None:
    one = parts.service(engine={}, annotations={"ome.io/deploymentMode": "MultiNode"})
    assert sync(one, Shape().deps(), Observed(), START).first


def test_switch_to_virtual_mode_keeps_running_pods_and_gives_advice() -> None:
    shape = Shape()
    world = World(shape.service(), shape.deps(), 1)
    world.settle()
    before = dict(world.pods)
    world.edit(parts.service(engine={}, router={}, **ANNOTATION))
    world.settle()
    assert world.pods == before
    assert "are left unchanged" in world.condition("Advice")["message"]
