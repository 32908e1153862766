"""Tests that the operator reads pods live before decisions that would be wrong if a pod is missing from its cache."""

from dataclasses import replace

import pytest

from ome_operator.core.observed.objects import Observed
from tests.support.shapes import Shape
from tests.support.simulator import World
from tests.unit.core.passes import sets, settled


class Blind(World):
    """A cluster whose pods are missing from the cache."""

    def observed(self) -> Observed:
        """Return the facts of a reconciliation whose cache contains every object except the pods."""
        return replace(super().observed(), pods=())


def blinded(world: World) -> Blind:
    """Return the same cluster, with its pods missing from the cache."""
    blind = Blind(world.service, world.deps, 5)
    blind.children, blind.pods = world.children, world.pods
    return blind


@pytest.mark.parametrize("size", [1, 2])
def test_new_slice_is_not_created_if_the_live_list_has_old_pods(size: int) -> None:
    """A new slice is not created only because the cache contains no pods of the old one. The guard is read live and finds
    these pods.
    """
    world = blinded(settled(Shape(size=size, router=False)))
    world.edit(deps=Shape(size=size, image="b").deps())
    for _ in range(6):
        world.carry_out(world.sync())  # the simulated cluster refuses StatefulSets next to pods of another revision
    target = world.service.status["revision"].rpartition("→")[2]
    assert target not in sets(world)
    world.pods.clear()
    for _ in range(2):
        world.carry_out(world.sync())
    assert sets(world) == {target}


def test_workers_are_not_deleted_while_the_live_list_has_their_leader() -> None:
    world = blinded(settled(Shape(size=2, engines=2, router=False)))
    world.edit(Shape(size=2, engines=1, router=False).service())
    for _ in range(4):
        world.carry_out(world.sync())  # the simulated cluster refuses to delete workers before their leader
    left = [name for kind, name in world.children if kind == "StatefulSet"]
    (gone,) = [name for name in left if name.endswith("-w") and name.removesuffix("-w") not in left]
    assert len(left) == 3
    del world.pods[f"{gone.removesuffix('-w')}-0"]
    world.carry_out(world.sync())
    assert [name for kind, name in world.children if kind == "StatefulSet"] == [name for name in left if name != gone]
