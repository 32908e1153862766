"""Rollouts keep their bounds at every step, whatever happens, and come to their end (decisions 6, 9, 11 and 12)."""

import os
import random
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ome_operator import keys
from ome_operator.core.observed.admission import GangAdmission
from ome_operator.core.observed.objects import Node
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.rollout.planner import Bounds, GroupCounts, keep_groups, routers, step
from tests.conftest import SOAK
from tests.support import parts, rollouts
from tests.support.parts import change_deps
from tests.support.scheduler import Scheduler
from tests.support.shapes import Shape, seeds, shapes
from tests.support.simulator import World

STORIES = 100_000 if SOAK else 250
"""Number of stories. Each is a service with one to four edits, most of them during the rollout of the previous edit."""
SEED = int(os.environ.get("OME_SEED", "6"))


def test_rollout_planner_keeps_its_bounds_and_ends() -> None:
    """The planner of rollouts keeps its bounds and comes to an end; `tests.support.rollouts` checks the bounds in every
    step.
    """
    edits = longest = gave_way = 0
    for number in range(STORIES):
        done, steps, broken = rollouts.story(random.Random(f"{SEED}.{number}"))
        edits, longest, gave_way = edits + done, max(longest, steps), gave_way + bool(broken)
    print(f"{STORIES} services, {edits} edits, at most {longest} steps after the last; seed {SEED}; ", end="")
    print(f"{gave_way} times three revisions were in each other's way and a bound gave way")
    assert gave_way < STORIES / 100


def some(*ready: bool) -> GroupCounts:
    """Return groups of which none is being removed."""
    return GroupCounts(len(ready), ready, len(ready))


ONE = Bounds({}, {"engine": 1, "decoder": 1})


def test_prefill_and_decode_are_replaced_in_proportion() -> None:
    """One of two prefill groups is replaced together with two of four decode groups. With fewer decode groups, the old
    prefill group would be partly idle.
    """
    wanted = {"engine": 2, "decoder": 4}
    old = {"engine": some(True, True), "decoder": some(True, True, True, True)}
    assert step(wanted, "new", {"old": old}, ONE) == {
        "old": {"engine": 1, "decoder": 2},
        "new": {"engine": 0, "decoder": 0},
    }
    old = {"engine": some(True), "decoder": some(True, True)}
    assert step(wanted, "new", {"old": old}, ONE)["new"] == {"engine": 1, "decoder": 2}


def test_failed_group_is_removed_before_a_serving_one() -> None:
    """One of three groups of the old slice is broken, and the strategy permits that one group is missing. The broken
    group is removed, whatever its number.
    """
    assert step({"engine": 3}, "new", {"old": {"engine": some(True, True, False)}}, ONE)["old"] == {"engine": 2}


def test_terminating_groups_count_as_existing_during_a_rollout() -> None:
    """While another slice exists, a group of the target that a user has deleted counts as existing until it is gone, because
    it still holds its accelerators.
    """
    seen = {"old": {"engine": some(True)}, "new": {"engine": GroupCounts(1, (True,), 2)}}
    assert step({"engine": 3}, "new", seen, Bounds({}, {"engine": 1}))["new"] == {"engine": 1}


def test_lost_readiness_removes_no_more_groups_than_the_bound() -> None:
    assert step({"engine": 4}, "new", {"old": {"engine": some(*[False] * 4)}}, ONE)["old"] == {"engine": 3}


def test_group_that_does_not_serve_is_removed_first() -> None:
    seen = {"a": {"engine": some(True, True, True)}, "b": {"engine": some(False)}}
    assert step({"engine": 4}, "c", seen, ONE) == {"a": {"engine": 3}, "b": {"engine": 0}, "c": {"engine": 0}}


def test_pause_keeps_existing_groups_and_replaces_missing_ones() -> None:
    seen = {"old": {"engine": some(True, True)}, "new": {"engine": some(True)}}
    assert keep_groups({"engine": 4}, "new", seen) == {"old": {"engine": 2}, "new": {"engine": 2}}


def test_routers_are_divided_in_proportion_to_capacity() -> None:
    wanted = {"engine": 4}
    four, three, one = some(True, True, True, True), some(True, True, True), some(True)
    assert routers(2, wanted, {"new": {"engine": four}}) == {"new": 2}
    assert routers(1, wanted, {"old": {"engine": three}, "new": {"engine": one}}) == {"old": 3, "new": 1}
    assert routers(2, wanted, {"old": {"engine": three}, "new": {"engine": some(False)}}) == {"old": 2, "new": 1}


class Capacity:
    """Checks that the share of groups that the strategy guarantees serves at any time. A group serves if a router of its own
    revision can send requests to it.
    """

    def __init__(self, world: World, shape: Shape) -> None:
        self.world, self.shape, self.lowest = world, shape, 1.0
        world.watcher = self.look

    def look(self, _: Plan) -> None:
        """Called with every plan before it is carried out: record the smallest share of the desired groups that could serve
        at any time so far.
        """
        self.lowest = min(self.lowest, self.now())

    def now(self) -> float:
        """Return the share of the desired groups that can serve now."""
        pods = [pod for pod in self.world.pods.values() if pod.ready and not pod.deleting and not pod.draining]
        total = 0.0
        for revision in {pod.labels[keys.REVISION] for pod in pods}:
            mine = [pod for pod in pods if pod.labels[keys.REVISION] == revision]
            if not any(pod.labels[keys.COMPONENT] == keys.ROUTER for pod in mine):
                continue
            total += min(
                self.groups([pod.group for pod in mine if pod.labels[keys.COMPONENT] == role]) / wanted
                for role, wanted in ((keys.ENGINE, self.shape.engines), (keys.DECODER, self.shape.decoders))
            )
        return total

    def groups(self, pods: list[int]) -> int:
        """Return the number of complete groups."""
        return sum(pods.count(group) == self.shape.size for group in set(pods))

    @property
    def least(self) -> float:
        """Return the share of the desired groups that serve at any time, as the strategy guarantees."""
        missing = {"": 1, "recreate": 9, "faster": 2}.get(self.shape.strategy, 0)
        return min(max(0, count - missing) / count for count in (self.shape.engines, self.shape.decoders))


def suitable(number: int, fit: int) -> dict[str, Node]:
    """Return this number of nodes with a GPU that hold the model. The first `fit` of them also suit the new slice."""
    room = (("nvidia.com/gpu", 1), ("pods", 110))
    label = {"models.ome.io/clusterbasemodel.tiny": "Ready"}
    return {
        f"n{at}": Node(f"n{at}", 1, {**label, **({"gpu": "new"} if at < fit else {})}, True, 1, room=room)
        for at in range(number)
    }


class Keeper:
    """Checks that nothing of an old slice is removed while no node suits the new slice, unless the new slice already has its
    nodes.
    """

    def __init__(self, world: World, pods: int) -> None:
        self.world, self.suits, self.old, self.pods = world, True, str(world.service.status["revision"]), pods
        self.capacity_watcher = world.watcher
        world.watcher = self.look

    def look(self, plan: Plan) -> None:
        """Check that the plan removes nothing of an old slice while no node suits the new slice."""
        self.capacity_watcher(plan)
        new = [pod for pod in self.world.pods.values() if pod.node and pod.labels[keys.REVISION] != self.old]
        for delete in () if self.suits or len(new) == self.pods else plan.delete:
            found = self.world.children.get((delete.kind, delete.name))
            leads = delete.kind == "Deployment" or (delete.kind == "StatefulSet" and not delete.name.endswith("-w"))
            assert not (found and leads and found.labels[keys.REVISION] == self.old), f"{delete.name} is removed for nothing"


BIG = shapes(size=st.integers(1, 2), engines=st.integers(1, 3), decoders=st.integers(1, 3), router=True, scaled=False)


@settings(max_examples=300 if SOAK else 16)
@given(
    BIG,
    seeds,
    st.lists(st.tuples(st.sampled_from([0, 0, 1, 99]), st.integers(0, 15), st.booleans()), max_size=6),
    st.sampled_from([0.0, 60.0]),
)
def test_no_old_pod_is_removed_for_a_slice_without_nodes(
    shape: Shape, seed: int, events: list[tuple[int, int, bool]], gangs: float
) -> None:
    """No pod of an old slice is removed for a new slice that has no suitable nodes. Nodes are added and removed, and the
    operator restarts at any time. In the end, there are enough nodes, and the rollout completes. The test includes gangs
    that release their nodes; this service is always admitted.
    """
    pods = (shape.engines + shape.decoders) * shape.size
    number = 3 * pods + 2 * shape.size  # enough for both slices and a surge
    world = World(shape.service(), change_deps(shape.deps(), nodes=suitable(number, 0), gang_timeout=gangs), seed)
    world.turn = GangAdmission(sure=True)
    Scheduler(world)
    world.settle()
    before = world.living_pods()
    capacity, keeper = Capacity(world, shape), Keeper(world, pods)
    wanted = change_deps(replace(shape, image="b").deps(), gang_timeout=gangs)
    asked = {ref: parts.simple(shape.size, decoder=True, image="b", nodeSelector={"gpu": "new"}) for ref in wanted.runtimes}
    never = True
    for fit, passes, restart in events:
        keeper.suits, never = fit > 0, never and fit == 0
        world.edit(deps=replace(wanted, runtimes=asked, nodes=suitable(number, fit)))
        world.run(passes)
        if never:
            assert world.living_pods() == before
        if restart:
            world.restart()
    keeper.suits = True
    world.edit(deps=replace(wanted, runtimes=asked, nodes=suitable(number, number)))
    world.settle()
    assert capacity.lowest >= capacity.least - 1e-9
    assert world.condition("RolledOut")["status"] == "True"
    assert len(world.living_pods()) == shape.pods


def test_new_slice_that_loses_all_leaders_starts_again() -> None:
    """A slice that is being created loses all its leaders. The remaining pods of its groups hold nodes, and are removed.
    Then the slice starts again.
    """
    shape = Shape(size=2, decoders=1, strategy="blueGreen")
    world = World(shape.service(), shape.deps(), 1)
    world.settle()
    world.healthy = lambda _: False
    world.edit(deps=replace(shape, image="b").deps())
    while sum(key[0] == "StatefulSet" for key in world.children) < 8:
        world.run(1)
    new = str(world.service.status["revision"]).rpartition("→")[2]
    for child in [
        child for child in world.children.values() if child.key[0] == "StatefulSet" and not child.key[1].endswith("-w")
    ]:
        if child.labels[keys.REVISION] == new:
            del world.children[child.key]
    world.healthy = lambda _: True
    world.settle()
    assert world.condition("RolledOut")["status"] == "True"


@settings(max_examples=300 if SOAK else 12)
@given(BIG, seeds, st.lists(st.integers(0, 12), max_size=2))
def test_service_keeps_its_capacity_during_a_rollout(shape: Shape, seed: int, kills: list[int]) -> None:
    """During a rollout, the service always has the capacity that its strategy guarantees, even if the operator restarts.
    The simulated world checks order, draining and surge.
    """
    world = World(shape.service(), shape.deps(), seed)
    world.settle()
    capacity = Capacity(world, shape)
    assert capacity.now() == 1.0
    world.edit(deps=replace(shape, image="b").deps())
    for passes in kills:
        world.run(passes)
        world.restart()
    world.settle()
    assert capacity.lowest >= capacity.least - 1e-9
    assert {one.labels[keys.REVISION] for one in world.pods.values()} == {world.service.status["revision"]}
    assert len(world.living_pods()) == shape.pods


@settings(max_examples=300 if SOAK else 10)
@given(BIG, seeds, st.integers(0, 25))
@example(Shape(size=1, engines=1, decoders=2), 0, 10)
@example(Shape(size=1, engines=2, decoders=3), 0, 12)
@example(Shape(size=1, engines=1, decoders=2, strategy="faster", gateway=True), 2, 2)
def test_paused_rollout_replaces_no_pod_and_keeps_serving(shape: Shape, seed: int, passes: int) -> None:
    """A rollout is paused in the middle. No pod is replaced during the pause, the service keeps its capacity, and missing
    groups are created. The role with the smaller share of ready groups limits the capacity of a slice: 1 of 2 groups
    together with 1 of 3 have a third of the capacity.
    """
    world = World(shape.service(), shape.deps(), seed)
    world.settle()
    paused = replace(shape, image="b", paused=True)
    world.edit(deps=paused.deps())
    world.run(passes)
    world.edit(paused.service())
    world.settle()
    capacity, slices = Capacity(world, shape), {pod.labels[keys.REVISION] for pod in world.pods.values()}
    assert capacity.now() >= (1.0 if len(slices) == 1 else capacity.least) - 1e-9
    for role, count in ((keys.ENGINE, shape.engines), (keys.DECODER, shape.decoders)):
        assert sum(pod.ready for pod in world.pods.values() if pod.labels[keys.COMPONENT] == role) >= count * shape.size
    assert world.condition("Ready")["status"] == "True"
    before = world.living_pods()
    world.run(10)
    assert world.living_pods() == before
    world.edit(replace(paused, paused=False).service())
    world.settle()
    assert world.condition("RolledOut")["status"] == "True"
