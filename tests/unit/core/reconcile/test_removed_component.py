"""Tests of passes after a component was removed from the spec while its pods still serve."""

from dataclasses import replace

import pytest

from tests.support.shapes import Shape
from tests.support.simulator import World

WHOLE = Shape(size=1, engines=1, decoders=1)


@pytest.mark.parametrize("gone", [{"decoders": 0}, {"router": False}], ids=["decoder", "router"])
def test_pods_of_a_removed_component_are_deleted(gone: dict[str, int]) -> None:
    world = World(WHOLE.service(), WHOLE.deps(), 3)
    world.settle()
    after = replace(WHOLE, **gone)  # type: ignore[arg-type]
    world.edit(after.service(), deps=after.deps())
    world.sync()
    world.settle()
    assert len(world.living_pods()) == after.pods
