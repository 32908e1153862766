"""Nodes of serving services are lost permanently. Only the affected groups move, and no service holds nodes that it cannot
use and others can.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ome_operator.api import InferenceService
from tests.conftest import SOAK
from tests.support import parts
from tests.support.live import LivePod
from tests.support.placing import TIMEOUT, Race, role
from tests.support.shapes import Shape
from tests.support.simulator import World

STORIES = 300 if SOAK else 8
LONG = 300 if SOAK else 130
"""Number of steps of 11 seconds to wait before a test concludes that nothing happens: longer than
`timing.RECOVERY_EXPECTED`.
"""
PATIENCE = 15 * TIMEOUT
"""Seconds within which everything has to be placed again. An attempt that seemed to fit and failed adds a pause of
minutes.
"""


SMALL = Shape(size=1, engines=1, router=False)
"""A service of a single node, without decode."""


@dataclass(frozen=True)
class Engines(Shape):
    """A service without decode whose groups have their own recovery policy."""

    lifecycle: tuple[tuple[str, Any], ...] = ()

    def service(self) -> InferenceService:
        return parts.service(engine={"minReplicas": self.engines, "lifecycle": dict(self.lifecycle)})


def until(race: Race, what: str, done: Callable[[], bool], each: Callable[[], None] = lambda: None) -> None:
    """Simulate steps, and call `each` after each of them, until `done` returns True. Fail with the description `what` after
    PATIENCE seconds of the simulation.
    """
    end = race.seconds + PATIENCE
    while not done():
        assert race.seconds < end, f"never {what}: {race.ready_services()} {[race.groups(name) for name in race.worlds]}"
        race.step()
        each()


def serving(shapes: dict[str, Shape], nodes: int, seed: int) -> Race:
    """Return a race in which all of the services serve."""
    race = Race(shapes, nodes, seed)
    until(race, "ready", lambda: race.ready_services() == shapes.keys())
    return race


def take(race: Race, names: list[str], count: int) -> None:
    """Remove `count` of the nodes in `names` from the cluster."""
    gone = random.Random(count).sample(names, count)
    race.replace_nodes({name: node for name, node in race.nodes.items() if name not in gone})


def used(race: Race, name: str) -> list[str]:
    """Return the node of each pod of a service that is on a node and not terminating, in alphabetical order."""
    return sorted(pod.node for pod in race.worlds[name].pods.values() if pod.node and not pod.deleting)


@settings(max_examples=STORIES)
@example(size=3, engines=3, decoders=2, spare=2, lost=5, seed=1065)  # a new leader is ready, and its workers have no node
@example(size=3, engines=3, decoders=2, spare=2, lost=5, seed=18)  # a group gets the number of a released group
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.integers(0, 2), st.integers(1, 6), st.integers(0, 10_000))
def test_only_groups_of_lost_nodes_move_and_remaining_nodes_are_used(
    size: int, engines: int, decoders: int, spare: int, lost: int, seed: int
) -> None:
    shape = Shape(size=size, engines=engines, decoders=decoders, router=False)
    race = serving({"a": shape}, shape.pods + spare, seed)
    nodes, before = race.nodes, race.groups("a")
    take(race, used(race, "a"), min(lost, shape.pods - 1))
    there = race.groups("a")
    stay = {group: uids for group, uids in before.items() if there.get(group) == uids}
    founded = {component for component, _ in stay} == {"engine", "decoder"}

    def look() -> None:
        now = race.groups("a")
        assert not founded or all(now.get(group) == uids for group, uids in stay.items()), "an unaffected group moved"

    room = len(race.nodes) // size
    if room < 2:  # No node is left for a group of the second role, so nothing is released: that would help no service.
        for _ in range(20):
            race.step()  # the pods of recycled groups terminate
        held = used(race, "a")
        for _ in range(LONG):
            race.step()
        assert {*held} <= {*used(race, "a")}
    else:
        until(race, "placed", lambda: len(race.groups("a")) == min(room, engines + decoders), look)
        until(race, "serving", lambda: bool(race.serving_pods("a")), look)
    race.replace_nodes(nodes)
    until(race, "whole again", lambda: len(race.groups("a")) == engines + decoders and "a" in race.ready_services(), look)


@settings(max_examples=STORIES // 2)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 10_000))
def test_of_two_services_that_have_lost_ranks_one_serves_again(size: int, lost: int, seed: int) -> None:
    """Two services with one group of each role both lose nodes, and the remaining nodes are enough for one of them. One of
    the two serves again and stays serving, and both serve when the nodes are back.
    """
    shape = Shape(size=size, engines=1, decoders=1, router=False)
    race = serving({"a": shape, "b": shape}, 4 * size, seed)
    nodes = race.nodes
    gone = {name for service in "ab" for name in random.Random(seed).sample(used(race, service), min(lost, size))}
    race.replace_nodes({name: node for name, node in nodes.items() if name not in gone})
    for _ in range(3):
        race.step()
    until(race, "serving", lambda: any(map(race.serving_pods, race.worlds)))
    for _ in range(LONG):
        race.step()
    assert any(map(race.serving_pods, race.worlds)), "the service continues to serve"
    race.replace_nodes(nodes)
    until(race, "both serve", lambda: len(race.ready_services()) == 2)


@pytest.mark.parametrize("seed", range(3))
def test_service_that_cannot_serve_releases_its_nodes_to_a_waiting_one(seed: int) -> None:
    """A service has 4 of 5 nodes. Two of its nodes are lost, so it holds the other two without serving. When another
    service is created, it releases these two nodes. When the lost nodes are back, it waits for admission like any other
    service.
    """
    small = Shape(size=1, engines=1, decoders=1, router=False)
    race = Race({"a": Shape(size=2, engines=1, decoders=1, router=False), "b": small}, 5, seed)
    later = race.worlds.pop("b")
    until(race, "ready", lambda: race.ready_services() == {"a"})
    nodes = race.nodes
    take(race, used(race, "a"), 2)
    until(race, "it holds all", lambda: len(used(race, "a")) == 3)
    race.worlds["b"] = later
    later.edit(deps=replace(later.deps, nodes=race.nodes))
    later.now = race.worlds["a"].now
    until(race, "the other serves", lambda: race.ready_services() == {"b"})
    assert used(race, "a") == []
    race.replace_nodes(nodes)
    for _ in range(20):
        race.step()
    assert race.worlds["a"].service.status["placement"], "the service waits for its admission, or tries to get nodes"
    race.delete("b")
    until(race, "it serves again", lambda: "a" in race.ready_services())


def test_pods_of_a_lost_group_stay_if_no_service_waits() -> None:
    """The pods of a group that has lost a rank stay on their nodes if no other service waits for them, because a node
    autoscaler has to see the pods.
    """
    shape = Shape(size=2, engines=2, decoders=1, router=False)
    race = serving({"a": shape}, 6, 1)
    take(race, used(race, "a"), 1)
    for _ in range(60):
        race.step()
    before = race.worlds["a"].living_pods()
    for _ in range(LONG):
        race.step()
    assert race.worlds["a"].living_pods() == before and len(before) == 6
    assert "placement" not in race.worlds["a"].service.status


def beside(shape: Shape, nodes: int, seed: int) -> tuple[Race, World, Callable[[], None]]:
    """Return a race with a serving service, its world, and a function that creates another service, which needs a single
    node.
    """
    race = Race({"a": shape, "b": SMALL}, nodes, seed)
    later, world = race.worlds.pop("b"), race.worlds["a"]
    until(race, "ready", lambda: race.ready_services() == {"a"})

    def comes() -> None:
        race.worlds["b"] = later
        later.edit(deps=replace(later.deps, nodes=race.nodes))
        later.now = world.now

    return race, world, comes


def of(world: World, group: int, rank: int) -> LivePod:
    return next(pod for pod in world.pods.values() if (pod.group, pod.rank) == (group, rank))


@pytest.mark.parametrize("seed", range(3))
def test_group_that_serves_without_a_rank_keeps_its_nodes(seed: int) -> None:
    """A group that serves although it has lost a rank stays on its nodes, because its engine tolerates the loss. Another
    group, which has lost its leader, is released instead.
    """
    shape = Engines(size=3, engines=2, router=False, lifecycle=(("toleratedLostRanks", 1),))
    race, world, comes = beside(shape, 6, seed)
    leader, gone = of(world, 1, 0).uid, {of(world, 0, 0).node, of(world, 1, 2).node}
    race.replace_nodes({name: node for name, node in race.nodes.items() if name not in gone})
    comes()
    until(race, "the other serves", lambda: "b" in race.ready_services())
    for _ in range(LONG):
        race.step()
        assert of(world, 1, 0).uid == leader and not of(world, 1, 0).deleting


def test_group_with_a_ready_leader_keeps_its_nodes() -> None:
    """A group whose leader is ready stays on its nodes. The recovery policy of this group recycles nothing. The group is
    Pending, because one of its pods cannot terminate on a node that does not report.
    """
    shape = Engines(size=3, engines=1, router=False, lifecycle=(("restartPolicy", "None"),))
    race, world, comes = beside(shape, 3, 1)
    worker, before = of(world, 0, 2), of(world, 0, 0).uid
    race.replace_nodes({name: node._replace(ready=name != worker.node) for name, node in race.nodes.items()})
    worker.deleting, worker.ready, worker.left = True, False, 10**9
    comes()
    for _ in range(LONG):
        race.step()
        assert of(world, 0, 0).uid == before and not of(world, 0, 0).deleting
    assert [group["phase"] for group in world.service.status["groups"]] == ["Pending"]


def test_fully_released_service_serves_only_with_a_group_of_every_role() -> None:
    """A service that has released all its nodes serves again only when a group of every role is ready. In its next attempt,
    only decode gets a node and becomes ready, so the gang is still incomplete.
    """
    shape = Shape(size=1, engines=1, decoders=1, router=False)
    race, world, _ = beside(shape, 2, 1)
    take(race, used(race, "a"), 1)
    for _ in range(20):
        race.step()
    asks = world.sync().claim
    assert asks is not None and asks.idle is not None and len(asks.idle.goes) == 2
    world.turn = world.turn._replace(gives_way=asks.idle.goes)
    for _ in range(10):
        world.run(1)
    assert not world.living_pods() and world.service.status["placement"]["anew"]
    world.turn = world.turn._replace(gives_way=None, sure=True)
    world.run(1)
    world.turn = world.turn._replace(sure=None)
    world.healthy = lambda pod: role(pod) == "decoder"
    for _ in range(5):
        world.run(1)
        for pod in world.pods.values():
            pod.node = "n0" if role(pod) == "decoder" else ""
    assert {role(pod): pod.ready for pod in world.pods.values()} == {"engine": False, "decoder": True}
    world.now += timedelta(seconds=TIMEOUT)
    world.run(5)
    assert not world.living_pods()
