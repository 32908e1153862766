"""Tests of which revisions are stored, which one is the target, and what happens to the others."""

from dataclasses import replace

import pytest

from ome_operator import names
from ome_operator.core.observed import slices as observed
from ome_operator.core.rollout import revisions
from tests.support import parts
from tests.support.shapes import Shape
from tests.support.simulator import World
from tests.unit.core.observed.test_revisions import stored


def test_equal_inputs_use_the_newest_equal_revision() -> None:
    inputs = {"engine": {"labels": {"a": "1"}}}
    known = observed.stored_revisions([stored("a", 1, inputs), stored("b", 2, inputs), stored("c", 3)], "u")
    found = revisions.find_equivalent(inputs, known)
    assert found is not None and found.name == "b"
    assert revisions.find_equivalent({"engine": {}}, known) is None


def test_duplicate_revision_name_gets_a_counter() -> None:
    inputs = {"engine": {}}
    taken = names.digest(inputs)
    known = observed.stored_revisions([stored(taken, 1)], "u")
    other = revisions.name_of(inputs, known)
    assert other != taken and len(other) == len(taken)
    assert revisions.name_of(inputs, []) == taken


@pytest.mark.parametrize(
    ("used", "gone"), [(frozenset(), ["a", "b"]), (frozenset({"a"}), ["b", "c"]), (frozenset("abcde"), [])]
)
def test_oldest_unused_revisions_are_deleted(used: frozenset[str], gone: list[str]) -> None:
    known = observed.stored_revisions([stored(name, number) for number, name in enumerate("abcde")], "u")
    assert [one.name for one in revisions.revisions_beyond_limit(known, used, 3)] == gone


def rolled(*images: str) -> World:
    """Return a service that was rolled out with these images, one after the other."""
    shape = Shape(image=images[0])
    world = World(shape.service(), shape.deps(), 1)
    world.settle()
    for image in images[1:]:
        world.edit(deps=replace(shape, image=image).deps())
        world.settle()
    return world


def numbers(world: World) -> list[int]:
    """Return the numbers of the stored revisions."""
    return sorted(one.manifest["revision"] for (kind, _), one in world.children.items() if kind == "ControllerRevision")


def test_rollback_makes_the_old_revision_the_newest() -> None:
    world = rolled("a", "b", "a")
    assert numbers(world) == [2, 3]
    assert world.service.status["revision"] == rolled("a").service.status["revision"]


def test_revision_history_is_limited() -> None:
    assert numbers(rolled(*(f"image-{number}" for number in range(14)))) == list(range(5, 15))


def test_pinned_revision_is_used_even_if_the_current_model_is_missing() -> None:
    world = rolled("a", "b")
    old, new = (f"svc-{name}" for name in (rolled("a").service.status["revision"], world.service.status["revision"]))
    pinned = Shape(pin=old.removeprefix("svc-"))
    world.edit(pinned.service(), replace(Shape(image="c").deps(), models={}))  # the files are still on the nodes
    world.settle()
    assert world.service.status["revision"] == pinned.pin
    assert world.condition("Ready")["status"] == "True"
    assert "spec.rollout.revision pins the service to it" in world.condition("RolledOut")["message"]
    assert {one.labels["ome.io/revision"] for one in world.pods.values()} == {pinned.pin}
    assert {("ControllerRevision", old), ("ControllerRevision", new)} <= world.children.keys()


def test_new_inputs_are_recorded_while_pinned_or_paused() -> None:
    """New inputs are stored as a revision while the service is pinned or paused, so that users can inspect the revision and
    pin it (decisions 12).
    """
    for shape in (Shape(paused=True), Shape(pin=str(rolled("a").service.status["revision"]))):
        world = rolled("a")
        world.edit(shape.service(), Shape(image="b").deps())
        world.settle()
        assert numbers(world) == [1, 2]
        assert len(world.living_pods()) == Shape().pods


def test_oversized_revision_is_refused_and_the_old_one_keeps_serving() -> None:
    world = rolled("a")
    pods = world.living_pods()
    template = "x" * (revisions.SIZE_LIMIT + 1)
    engine = {"runner": {"args": [template]}}
    world.edit(parts.service(engine=engine, router={}))
    world.settle()
    assert world.condition("EngineReady")["reason"] == "RevisionTooLarge"
    assert world.living_pods() == pods
    assert numbers(world) == [1]
