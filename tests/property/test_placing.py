"""Whole services that race for nodes: passes of `sync`, the arbiter of the shell, and a scheduler that binds pod by pod."""

import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ome_operator import keys
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.occupancy import Occupancy
from ome_operator.controllers.inferenceservice.foreign_pods import ForeignPods
from ome_operator.controllers.inferenceservice.gangs import Gangs
from ome_operator.core.observed.objects import Deps, Node, Pod, Ref, Turn
from ome_operator.core.placement.demand import Demand
from ome_operator.core.placement.fit import Need
from ome_operator.core.placement.turns import Claim
from tests.support import parts
from tests.support.fake_api import FakeApi
from tests.support.live import LivePod
from tests.support.shapes import Shape
from tests.support.simulator import World

TIMEOUT = 60.0
ROOM = (("nvidia.com/gpu", 1), ("pods", 110))
LABELS = {"models.ome.io/clusterbasemodel.tiny": "Ready"}


def role(pod: LivePod) -> str:
    """Its component."""
    return pod.labels[keys.COMPONENT]


class Known:
    """What the arbiter reads of the cluster."""

    roles = ClusterCache.roles

    def __init__(self, race: "Race") -> None:
        self.race, self.children = race, {"ControllerRevision": self}
        self._seen: dict[str, Pod] = {}
        self._held = Occupancy()

    def deps(self) -> Deps:
        """Of any service."""
        return self.race.worlds["a"].deps

    @property
    def pods(self) -> list[Pod]:
        """Of all services, each in a namespace of its own."""
        found = []
        for name, world in self.race.worlds.items():
            found += [pod.facts(world.service)._replace(namespace=name) for pod in world.pods.values()]
        return found

    @property
    def occupancy(self) -> Occupancy:
        """Told of what has changed."""
        now = {f"{pod.namespace}/{pod.uid}": pod for pod in self.pods}
        for uid in self._seen.keys() | now.keys():
            self._held.pod(self._seen.get(uid), now.get(uid))
        self._seen = now
        return self._held

    def find(self, ref: Ref) -> None:
        """Nobody asks whether it serves."""

    def group(self, key: tuple[str, str]) -> list[Any]:
        """Children of a kind."""
        world = self.race.worlds[key[0]]
        return [child.facts(world.service) for child in world.children.values() if child.key[0] == "ControllerRevision"]


class Race:
    """Services that want the same nodes."""

    def __init__(self, shapes: dict[str, Shape], nodes: int, seed: int) -> None:
        self.chance = random.Random(seed)
        on = {f"n{at}": Node(f"n{at}", 1, LABELS, True, 1, room=ROOM) for at in range(nodes)}
        self.worlds = {
            name: World(shape.service(), replace(shape.deps(), nodes=on, gang_timeout=TIMEOUT), seed)
            for name, shape in shapes.items()
        }
        self.shapes, self.nodes = shapes, on
        self.woken: set[str] = set()
        known: Any = Known(self)
        self.gangs = Gangs(
            known, ForeignPods(FakeApi({}), lambda: 0.0, lambda _: False), lambda ref: self.woken.add(ref.name)
        )
        self.half: dict[str, float] = {}
        self.seconds = 0.0
        for name, world in self.worlds.items():
            world.healthy = partial(self.healthy, name)

    def healthy(self, name: str, pod: LivePod) -> bool:
        """Whether a pod may become ready: with all ranks of its group on nodes."""
        if role(pod) == keys.ROUTER:
            return True
        ranks = [other for other in self.worlds[name].pods.values() if (role(other), other.group) == (role(pod), pod.group)]
        placed = sum(bool(rank.node) and not rank.deleting for rank in ranks)
        return placed == self.shapes[name].size and self.chance.random() < 0.3

    def step(self) -> None:
        """A second: passes in any order, some pods are bound, and the controllers do something."""
        names = list(self.worlds)
        self.chance.shuffle(names)
        for name in names:
            world = self.worlds[name]
            for _ in range(self.chance.randint(1, 2)):  # a pass may come again before its status was written
                status = world.service.status
                world.turn = self.gangs.turn(Ref("InferenceService", name, name), status, world.now)
                plan = world.sync()
                claim = plan.claim and plan.claim._replace(key=name)
                self.gangs.tell(Ref("InferenceService", name, name), claim)
                served = self.serving(name)
                world.carry_out(plan)
                if self.chance.random() < 0.2:
                    world.service = replace(world.service, status=status)  # it could not be written
                assert not {pod for pod in served if self.worlds[name].pods[pod].deleting}, "a serving group is taken back"
            world.step()
            self.bind()
            world.now += timedelta(seconds=1)
        self.seconds += 1
        self.look()

    def bind(self) -> None:
        """The scheduler."""
        everybody = [pod for world in self.worlds.values() for pod in world.pods.values()]
        pending = [pod for pod in everybody if not pod.node and not pod.deleting and role(pod) != keys.ROUTER]
        self.chance.shuffle(pending)
        for pod in pending[: self.chance.randint(0, 3)]:
            free = [name for name in self.nodes if name not in {other.node for other in everybody}]
            pod.node = self.chance.choice(free) if free else ""

    def serving(self, name: str) -> set[str]:
        """Pods of groups that serve: whole groups, where there is such a group of every role."""
        pods = [pod for pod in self.worlds[name].pods.values() if role(pod) != keys.ROUTER]
        ready = Counter((role(pod), pod.group) for pod in pods if pod.ready and not pod.deleting)
        whole = {group for group, count in ready.items() if count == self.shapes[name].size}
        if len({component for component, _ in whole}) < 2:
            return set()
        return {pod.name for pod in pods if (role(pod), pod.group) in whole}

    def look(self) -> None:
        """Nobody holds half for more than one and a half timeouts."""
        for name, world in self.worlds.items():
            pods = [pod for pod in world.pods.values() if role(pod) != keys.ROUTER]
            mine = [pod for pod in pods if pod.name not in self.serving(name)]
            if any(pod.node for pod in mine) and any(not pod.node for pod in mine):
                self.half.setdefault(name, self.seconds)
                assert self.seconds - self.half[name] <= 1.5 * TIMEOUT, f"{name} holds half"
            else:
                self.half.pop(name, None)

    def whole(self) -> set[str]:
        """Services that are Ready."""
        return {name for name, world in self.worlds.items() if world.condition("Ready").get("status") == "True"}

    def delete(self, name: str) -> None:
        """A user deletes a service."""
        world = self.worlds[name]
        world.pods.clear()
        world.children.clear()
        world.service = replace(world.service, deleting=True)
        self.gangs.tell(Ref("InferenceService", name, name), None)
        self.gangs.freed()


@settings(max_examples=8)
@given(st.integers(1, 2), st.integers(0, 10_000), st.booleans())
def test_two_services_are_placed_as_a_whole_in_turn(size: int, seed: int, router: bool) -> None:
    """Each needs more than half of the nodes; the second is told what it waits for, and comes when the first is gone."""
    shape = Shape(size=size, engines=1, decoders=1, router=router)
    race = Race({"a": shape, "b": shape}, 3 * size, seed)
    while not race.whole() and race.seconds < 600:
        race.step()
    (first,) = race.whole()
    second = "ab".replace(first, "")
    for _ in range(150):
        race.step()
    assert race.whole() == {first}
    assert race.worlds[second].service.status["placement"]["first"]
    race.delete(first)
    while second not in race.whole() and race.seconds < 2000:
        race.step()
    assert second in race.whole()


def test_the_sentence_of_who_waits() -> None:
    shape = Shape(size=2, engines=1, decoders=1, router=False)
    race = Race({"a": shape, "b": shape}, 6, 1)
    said: set[str] = set()
    while race.seconds < 300:
        race.step()
        said |= {world.condition("EngineReady").get("message", "") for world in race.worlds.values()}
    assert any(text.startswith("prefill waits for 4 nodes with 1 free GPU: 2 are free, 4 are held by b/") for text in said)


@pytest.mark.parametrize("brake", ["", keys.FREEZE])
def test_who_waits_makes_nothing_and_a_freeze_keeps_what_is_stored(brake: str) -> None:
    shape = Shape(size=2, engines=1, decoders=1, router=False)
    world = World(shape.service(), replace(shape.deps(), nodes=Race({"a": shape}, 4, 1).nodes, gang_timeout=TIMEOUT), 1)
    world.healthy = lambda _: False
    world.run(5)
    assert len(world.alive()) == 4 and world.service.status["placement"]["trying"]
    for number, pod in enumerate(world.pods.values()):
        pod.node = f"n{number}" if number < 3 else ""
    if brake:
        world.edit(replace(world.service, annotations={brake: "me"}))
        before = world.service.status["placement"]
    world.now += timedelta(seconds=61)
    world.run(10)
    if brake:
        assert len(world.alive()) == 4 and world.service.status["placement"] == before
        return
    assert world.alive() == {} and world.service.status["placement"]["waiting"] == {"engine": 1, "decoder": 1}
    assert world.condition("Ready")["reason"] == "WaitingForRoom"


def alone(nodes: int, placed: int, size: int = 2) -> World:
    """A service without others; so many of its pods are on nodes."""
    shape = Shape(size=size, engines=1, decoders=1, router=False)
    world = World(shape.service(), replace(shape.deps(), nodes=Race({"a": shape}, nodes, 1).nodes, gang_timeout=TIMEOUT), 1)
    world.healthy = lambda _: False
    world.run(5)
    assert len(world.alive()) == 2 * size
    put(world, placed)
    return world


def put(world: World, placed: int) -> None:
    """So many pods are on nodes."""
    for number, pod in enumerate(world.pods.values()):
        pod.node = f"n{number}" if number < placed else ""


def later(world: World, seconds: float) -> None:
    """Time passes, with a pass every few seconds."""
    until = world.now + timedelta(seconds=seconds)
    while world.now < until:
        world.now += timedelta(seconds=5)
        world.run(1)


WAITS = Claim("ns/w", (Need(("engine",), "engine", Demand(requests=(("nvidia.com/gpu", 1),)), 9),), trying=False)


@pytest.mark.parametrize("rival", [None, WAITS, WAITS._replace(trying=True, serves=True), WAITS._replace(trying=True)])
def test_pods_on_no_node_are_taken_back_only_for_others(rival: Claim | None) -> None:
    """Who waits for the same nodes, or who serves and makes room: there the pods would take half of what becomes free."""
    world = alone(4, 0)
    before = world.alive()
    later(world, 3600)
    assert world.alive() == before
    world.turn = Turn(rivals=(rival,) if rival else ())
    world.run(10)
    makes_way = rival is not None and (rival.serves or not rival.trying)
    assert world.alive() == ({} if makes_way else before)


@pytest.mark.parametrize("placed", [0, 3])
def test_who_is_frozen_keeps_nobody_from_nodes(placed: int) -> None:
    """It can give nothing back for as long as that lasts: those that wait have their turn beside it."""
    world = alone(4, placed)
    claim = world.sync().claim
    assert claim is not None and claim.trying
    world.edit(replace(world.service, annotations={keys.FREEZE: "me"}))
    before = world.alive()
    later(world, 600)
    assert world.sync().claim is None and world.alive() == before
    world.edit(replace(world.service, annotations={}))
    assert world.sync().claim is not None


def test_nodes_that_come_after_an_hour_have_their_time_from_the_first_on() -> None:
    world = alone(4, 0)
    later(world, 3600)
    before = world.alive()
    put(world, 1)
    later(world, 50)
    assert world.alive() == before
    put(world, 4)
    later(world, 3600)
    assert world.alive() == before


@pytest.mark.parametrize("ranks", [0, 1])
def test_a_further_group_is_given_back_alone_and_only_where_it_holds_a_node(ranks: int) -> None:
    """As an autoscaler of pods asks for it: the groups that are there are placed, whether they have served or not."""
    shape = Shape(size=2, engines=2, decoders=1, router=False)
    world = World(shape.service(), replace(shape.deps(), nodes=Race({"a": shape}, 6, 1).nodes, gang_timeout=TIMEOUT), 1)
    world.healthy = lambda _: False
    world.run(5)
    further = [pod for pod in world.pods.values() if role(pod) == "engine" and pod.group == 1]
    for number, pod in enumerate(world.pods.values()):
        pod.node = "" if pod in further[ranks:] else f"n{number}"
    before = world.alive().keys()
    later(world, 600)
    gone = {pod.name for pod in further} if ranks else set()
    assert world.alive().keys() == before - gone


@pytest.mark.parametrize("beside", [(), (WAITS,)])
def test_an_upgrade_takes_nothing_from_what_serves(beside: tuple[Claim, ...]) -> None:
    """The default came with a new version: services that run have no record of it, and some have just lost a rank."""
    shape = Shape(size=2, engines=2, decoders=1, router=False)
    nodes = Race({"a": shape}, 6, 1).nodes
    world = World(shape.service(), replace(shape.deps(), nodes=nodes), 1)
    world.run(1)
    while world.condition("Ready").get("status") != "True":
        world.run(1)
        for number, pod in enumerate(world.pods.values()):
            pod.node = f"n{number}"
    assert "placement" not in world.service.status
    lost = next(pod for pod in world.pods.values() if role(pod) == "decoder")
    lost.node, lost.ready = "", False
    world.healthy = lambda pod: pod is not lost
    before = world.alive().keys() - {lost.name}
    world.turn = Turn(rivals=beside)
    world.edit(deps=replace(world.deps, gang_timeout=TIMEOUT))
    later(world, 3600)
    assert before <= world.alive().keys()


def test_who_waits_has_its_pods_again_when_gangs_are_switched_off() -> None:
    world = alone(4, 3)
    later(world, 70)
    assert world.alive() == {} and world.service.status["placement"]
    world.edit(deps=replace(world.deps, gang_timeout=0.0))
    world.run(5)
    assert len(world.alive()) == 4 and not world.service.status.get("placement")


def test_what_a_quota_said_is_told_while_it_waits() -> None:
    """The objects that were told so are gone."""
    world = alone(4, 2)
    key = next(key for key in world.children if key[0] == "StatefulSet")
    plain = world.observed
    world.observed = lambda: replace(plain(), failures={key: "exceeded quota: gpus"})  # type: ignore[method-assign]
    later(world, 70)
    assert world.alive() == {}
    said = world.condition("EngineReady")["message"]
    assert said.endswith("; in its last try pods could not be created: exceeded quota: gpus")


def test_what_is_off_changes_nothing() -> None:
    shape = Shape(size=2, engines=1, decoders=1)
    world = World(shape.service(), replace(shape.deps(), nodes=Race({"a": shape}, 3, 1).nodes), 1)
    world.run(20)
    assert "placement" not in world.service.status and world.sync().claim is None


def test_room_that_a_rollout_makes_is_promised_to_it() -> None:
    """The old group is on its way out: its nodes are not given to others that wait for as many."""
    shape = Shape(size=2, engines=1, decoders=1, router=False)
    race = Race({"a": shape}, 4, 1)
    world = race.worlds["a"]
    while not race.whole() and race.seconds < 300:
        race.step()
    assert race.whole() == {"a"} and world.sync().claim is None
    for pod in world.pods.values():
        pod.deleting |= role(pod) == "engine"
    claim = world.sync().claim
    assert claim is not None and claim.trying and claim.serves and sum(need.pods for need in claim.needs) == 2


def test_a_newcomer_of_a_better_priority_class_tries_at_once() -> None:
    """Preemption has to see its pods; of the class of those that wait it waits, too."""
    shape = Shape(size=2, engines=1, decoders=1, router=False)

    def first(mine: str, *rivals: Claim) -> bool:
        world = Race({"a": shape}, 3, 1).worlds["a"]
        part = {"minReplicas": 1, "priorityClassName": mine}
        world.service = parts.service(engine=part, decoder=part)
        world.turn = Turn(rivals=rivals)
        claim = world.sync().claim
        assert claim is not None and claim.priority_class == mine
        return claim.trying

    need = Need(("engine",), "engine", Demand(requests=(("nvidia.com/gpu", 1),)), 3)
    waits = Claim("ns/w", (need,), trying=False, priority=10, priority_class="low")
    assert not first("", waits)
    assert first("high", waits)
    assert not first("low", waits)
    tries = waits._replace(key="ns/x", trying=True)
    assert first("low", waits._replace(priority=5, priority_class="worse"), tries), "it is better than all that wait"
    assert first("", waits._replace(needs=(need._replace(pods=4),))), "who can never fit keeps nobody waiting"
