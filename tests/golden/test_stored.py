"""An upgrade of the operator under services that an earlier version made: no pod goes, nothing new is rolled out."""

from pathlib import Path

import pytest

from tests.golden.stored import RECORDS, restored
from tests.support.simulator import World

pytestmark = pytest.mark.parametrize("folder", RECORDS, ids=lambda path: f"{path.parent.name}-{path.name}")


def test_pods_and_revisions_stay(folder: Path) -> None:
    """The simulator refuses changes of StatefulSets and of stored revisions by itself."""
    world = restored(folder)
    before, revisions, said = world.alive(), stored(world), ready(world)
    world.settle()
    assert world.alive() == before
    assert stored(world) == revisions
    assert ready(world) == said


def test_a_pod_that_is_lost_comes_back(folder: Path) -> None:
    """By what is stored: today's operator repairs what it did not make."""
    world = restored(folder)
    lost = next(iter(world.pods.values()))
    world.lose(lost.name)
    world.settle()
    assert set(world.alive()) == set(restored(folder).alive())
    assert stored(world) == stored(restored(folder))
    assert ready(world) == ready(restored(folder))


def ready(world: World) -> tuple[str, str]:
    """Status and reason."""
    said = world.condition("Ready")
    return said["status"], said["reason"]


def stored(world: World) -> list[str]:
    """Names of revisions."""
    return sorted(name for kind, name in world.children if kind == "ControllerRevision")
