"""Tests that slices and revisions with the layout of an earlier version of the operator are never changed."""

import json

import pytest

from ome_operator import keys
from ome_operator.core.reconcile.plan import Plan
from tests.support.effects import effects
from tests.support.shapes import Shape
from tests.support.simulator import World
from tests.unit.core.passes import conditions, sets, settled


def former(world: World, *, made: bool) -> str:
    """Change the stored revision to the form of an earlier version, and return its name. If `made` is true, the
    StatefulSets of that version exist; otherwise all pods are removed.
    """
    revision = str(world.service.status["revision"])
    for key, one in list(world.children.items()):
        if key[0] == "ControllerRevision":
            one.manifest["data"] = {**one.manifest["data"], "render": 2}
        elif key[0] == "StatefulSet":
            del world.children[key]
            if made and keys.WORKER_INDEX in one.labels:
                metadata = one.manifest["metadata"]
                labels = {name: value for name, value in metadata["labels"].items() if name != keys.GROUP_INDEX}
                one.manifest["metadata"] = {**metadata, "name": key[1].rpartition("-")[0], "labels": labels}
                world.children[one.key] = one
    if not made:
        world.pods.clear()
    return revision


def test_legacy_slice_is_recognized_without_its_revision() -> None:
    """A slice with the layout of an earlier version is recognized even if its ControllerRevision was deleted. The operator
    must not create StatefulSets next to the old ones, because together they would need twice the accelerators.
    """
    world = settled(Shape(size=2, engines=2))
    former(world, made=True)
    for key in [key for key in world.children if key[0] == "ControllerRevision"]:
        del world.children[key]
    plan = world.sync()
    assert plan == Plan(status=plan.status, events=plan.events)
    assert conditions(plan)["Ready"] == ("False", "FormerShape")


@pytest.mark.parametrize("edit", [Shape(), Shape(image="b"), Shape(engines=3, router=False), Shape(paused=True)])
def test_legacy_slice_is_not_changed(edit: Shape) -> None:
    world = settled(Shape(size=2, engines=2))
    before, revision = dict(world.service.status), former(world, made=True)
    world.edit(edit.service(), edit.deps())
    log = list(world.log)
    plan = world.sync()
    assert plan == Plan(status=plan.status, events=plan.events)
    assert conditions(plan)["Ready"] == ("False", "FormerShape")
    (message,) = [one["message"] for one in plan.status["conditions"] if one["type"] == "Ready"]
    assert f"revision {revision} was created by an older version" in message and "delete the InferenceService" in message
    kept = ("url", "revision", "components", "groups")
    assert {name: plan.status.get(name) for name in kept} == {name: before.get(name) for name in kept}
    assert conditions(plan)["EngineReady"] == ("True", "Ready"), "the other conditions stay"
    assert plan.status["observedGeneration"] == world.service.generation
    world.carry_out(plan)
    assert world.log == log
    assert world.sync() == Plan(status=plan.status), "it is reported once"


def test_nothing_is_changed_if_a_legacy_slice_exists_next_to_a_current_one() -> None:
    world = settled(Shape())
    old = former(world, made=True)
    (one,) = [one for key, one in world.children.items() if key[0] == "StatefulSet"]
    new = World(Shape(image="b").service(), Shape(image="b").deps(), 3)
    new.settle()
    for key, live in new.children.items():
        world.children.setdefault(key, live)
    assert {each.labels[keys.REVISION] for key, each in world.children.items() if key[0] == "StatefulSet"} != {old}
    assert effects(world.sync()) == () and one.key in world.children
    assert conditions(world.sync())["Ready"] == ("False", "FormerShape")
    del world.children[one.key]
    assert conditions(world.sync())["Ready"][1] != "FormerShape", "somebody deleted the former StatefulSet"


@pytest.mark.parametrize("render", [2, 1, 0, None])
def test_legacy_revision_without_pods_is_never_the_target(render: int | None) -> None:
    """A revision with the layout of an earlier version from which no pods were created never becomes the target. The same
    inputs become another revision with another name, because the data of a revision never changes.
    """
    world = settled(Shape())
    old = former(world, made=False)
    (stored,) = [one for key, one in world.children.items() if key[0] == "ControllerRevision"]
    data = {key: value for key, value in stored.manifest["data"].items() if key != "render"}
    stored.manifest["data"] = data if render is None else {**data, "render": render}
    before = json.dumps(stored.manifest)
    world.settle()
    new = world.service.status["revision"]
    assert new != old and sets(world) == {new}
    assert json.dumps(stored.manifest) == before and stored.key in world.children
    fresh = world.children["ControllerRevision", f"svc-{new}"].manifest
    assert (fresh["revision"], stored.manifest["revision"]) == (2, 1)
    assert fresh["data"]["inputs"] == data["inputs"]
    assert conditions(world.sync())["Ready"][0] == "True"
    world.settle()
    assert world.service.status["revision"] == new, "its name is the same in every pass"


def test_legacy_revision_cannot_be_pinned() -> None:
    world = settled(Shape())
    old = former(world, made=False)
    world.edit(Shape(pin=old).service())
    for _ in range(5):
        world.carry_out(world.sync())
        world.step()
    assert old not in sets(world)
    assert conditions(world.sync())["Ready"][0] == "False"
