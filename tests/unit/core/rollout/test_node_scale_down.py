"""Tests of annotations that keep node autoscalers from removing the nodes of a component."""

from ome_operator import keys
from ome_operator.core.rollout.node_scale_down import FORBIDDEN
from tests.support import parts
from tests.support.shapes import Shape
from tests.support.simulator import World
from tests.unit.core.passes import sets


def world(**engine: str) -> World:
    """Return a ready service with two engine pods and a router."""
    made = World(parts.service(engine=engine, router={}), Shape(size=2).deps(), 3)
    made.settle()
    return made


def notes(found: World, component: str) -> list[dict[str, str]]:
    return [pod.notes for pod in found.pods.values() if pod.labels[keys.COMPONENT] == component]


MARKED = {**FORBIDDEN, keys.SCALE_DOWN_MARK: ",".join(FORBIDDEN)}


def test_all_pods_of_a_component_get_both_scale_down_annotations() -> None:
    found = world(nodeScaleDown="Forbid")
    assert notes(found, "engine") == [MARKED, MARKED] and notes(found, "router") == [{}]
    found.lose(next(name for name, pod in found.pods.items() if pod.labels[keys.COMPONENT] == "engine"))
    found.settle()
    assert notes(found, "engine") == [MARKED, MARKED]


def test_scale_down_annotations_are_off_by_default() -> None:
    assert notes(world(), "engine") == notes(world(nodeScaleDown="Allow"), "engine") == [{}, {}]


def test_change_of_node_scale_down_neither_restarts_pods_nor_makes_a_revision() -> None:
    found = world()
    pods, revisions = found.living_pods(), sets(found)
    for value, wanted in (("Forbid", MARKED), ("Allow", {}), ("Forbid", MARKED)):
        found.edit(parts.service(engine={"nodeScaleDown": value}, router={}))
        found.settle()
        assert notes(found, "engine") == [wanted, wanted], value
        assert found.living_pods() == pods and sets(found) == revisions
        assert len([key for key in found.children if key[0] == "ControllerRevision"]) == 1


def test_annotations_of_users_are_neither_changed_nor_removed() -> None:
    found = world()
    first, second = (pod for pod in found.pods.values() if pod.labels[keys.COMPONENT] == "engine")
    first.notes[keys.KARPENTER_KEEP] = "false"
    second.notes |= {keys.KARPENTER_KEEP: "true", keys.AUTOSCALER_EVICT: "true"}
    theirs = dict(first.notes), dict(second.notes)
    found.edit(parts.service(engine={"nodeScaleDown": "Forbid"}, router={}))
    found.settle()
    assert first.notes == {
        keys.KARPENTER_KEEP: "false", keys.AUTOSCALER_EVICT: "false", keys.SCALE_DOWN_MARK: keys.AUTOSCALER_EVICT,
    }  # fmt: skip
    assert second.notes == theirs[1]
    found.edit(parts.service(engine={}, router={}))
    found.settle()
    assert (first.notes, second.notes) == theirs


def test_frozen_service_reports_suppressed_scale_down_annotations() -> None:
    found = world()
    found.edit(parts.service(engine={"nodeScaleDown": "Forbid"}, router={}, annotations={keys.FREEZE: "maintenance"}))
    plan = found.sync()
    (said,) = (one["message"] for one in plan.status["conditions"] if one["type"] == "Frozen")
    assert not plan.patch and "would annotate 2 Pods" in said
