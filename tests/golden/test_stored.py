"""An upgrade of the operator under services that an earlier version made: no pod goes, nothing new is rolled out."""

from dataclasses import replace
from pathlib import Path

import pytest

from ome_operator.core.observed.validation import Asked, Objection, Verdict
from ome_operator.lint.validator import Validator
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


def refuses_everything(asked: Asked) -> Verdict:
    """A rule of an operator to come, by which nothing that there is may start."""
    said = f"{asked.parts[0].title} is not what it was"
    return Verdict((f"new-rule: {said}",), (Objection("new-rule", said, f"new-rule: {said}; write another"),))


def test_a_rule_that_comes_with_an_upgrade_is_advice_for_them(folder: Path) -> None:
    world = restored(folder)
    before, revisions, said = world.alive(), stored(world), ready(world)
    world.edit(deps=replace(world.deps, judge=refuses_everything))
    world.settle()
    assert (world.alive(), stored(world), ready(world)) == (before, revisions, said)
    assert world.condition("RolledOut")["reason"] != "ConfigurationRefused"
    assert "new-rule: " in world.condition("Advice")["message"]
    lost = next(iter(world.pods.values()))
    world.lose(lost.name)
    world.settle()
    assert set(world.alive()) == set(before)


def test_todays_operator_refuses_nothing_of_them(folder: Path) -> None:
    world, judged = restored(folder), restored(folder)
    judged.edit(deps=replace(judged.deps, judge=Validator()))
    for each in (world, judged):
        each.settle()
    assert stored(judged) == stored(world) and judged.alive() == world.alive()
    assert judged.condition("RolledOut") == world.condition("RolledOut")


def ready(world: World) -> tuple[str, str]:
    """Status and reason."""
    said = world.condition("Ready")
    return said["status"], said["reason"]


def stored(world: World) -> list[str]:
    """Names of revisions."""
    return sorted(name for kind, name in world.children if kind == "ControllerRevision")
