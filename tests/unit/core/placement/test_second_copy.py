"""Tests that a rollout which interrupts a service names the strategy that would not, if the nodes hold a second copy."""

from dataclasses import replace

import pytest

from ome_operator.core.placement.fit import Needs
from ome_operator.core.placement.second_copy import SENTENCE
from tests.support.parts import change_deps
from tests.support.scheduler import Scheduler
from tests.support.shapes import Shape
from tests.support.simulator import World
from tests.unit.core.placement.test_capacity_check import deps, nodes, serving

SINGLE = Shape(size=2, engines=1, decoders=1)
"""A service whose default strategy ends each role's only group first."""


def rolling(shape: Shape = SINGLE, answer: str = "") -> tuple[World, list[Needs]]:
    """Return a service that serves and whose image has been edited, and the list of checks for a second copy."""
    world, asked = serving(shape), list[Needs]()
    world.beside = lambda needs: asked.append(needs) or answer  # type: ignore[func-returns-value]
    world.edit(deps=deps(replace(shape, image="b")))
    return world, asked


def advice(world: World) -> str:
    return next((one["message"] for one in world.service.status["conditions"] if one["type"] == "Advice"), "")


def test_second_copy_advice_exists_only_during_the_rollout() -> None:
    world, asked = rolling()
    before = world.service.status["revision"]
    world.run(3)
    revision = world.service.status["revision"][-8:]
    assert revision != before and SENTENCE.format(revision) in advice(world)
    assert [(need.title, need.pods) for need in asked[0]] == [("prefill", 1), ("prefill", 1), ("decode", 1), ("decode", 1)]
    world.settle()
    assert world.condition("RolledOut")["status"] == "True"
    assert len(asked) == 1 and "blueGreen" not in advice(world)


def test_no_second_copy_advice_without_capacity() -> None:
    world, asked = rolling(answer="decode needs 2 nodes: 0 are free")
    world.run(3)
    assert asked and "blueGreen" not in advice(world)
    world.settle()
    assert world.condition("RolledOut")["status"] == "True" and len(asked) == 1


@pytest.mark.parametrize(
    "shape",
    [
        replace(SINGLE, strategy="surge"),
        replace(SINGLE, strategy="blueGreen"),
        replace(SINGLE, paused=True),
        Shape(size=2, engines=2, decoders=2),
    ],
)
def test_a_strategy_that_does_not_interrupt_needs_no_advice(shape: Shape) -> None:
    world, asked = rolling(shape)
    world.run(20)
    assert not asked


def test_a_service_that_does_not_serve_needs_no_advice() -> None:
    world = World(SINGLE.service(), deps(SINGLE), 3)
    Scheduler(world)
    world.healthy = lambda _: False
    world.run(20)
    asked = list[Needs]()
    world.beside = lambda needs: asked.append(needs) or ""  # type: ignore[func-returns-value]
    world.edit(deps=deps(replace(SINGLE, image="b")))
    world.run(20)
    assert not asked


@pytest.mark.parametrize("how", ["no nodes are read", "no node is known"])
def test_no_second_copy_check_is_made_if_nodes_are_unknown(how: str) -> None:
    world, asked = rolling()
    b = deps(replace(SINGLE, image="b"), found={} if how == "no node is known" else nodes(8))
    world.edit(deps=change_deps(b, sees_cluster=how == "no node is known"))
    world.run(20)
    assert not asked
