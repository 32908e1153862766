"""Tests of which groups have lost a node, do not serve, and may release their remaining nodes."""

from datetime import timedelta

import pytest

from ome_operator.core.placement.claims import IdleNodes
from ome_operator.core.placement.demand import Demand
from ome_operator.core.placement.gangs import PLACED, served_first
from ome_operator.core.placement.need import Need
from ome_operator.core.placement.partial_gangs import expected, lost_since
from tests.support.live import LivePod
from tests.support.parts import change_deps
from tests.support.placing import TIMEOUT, Race, ready_world, role
from tests.support.shapes import Shape
from tests.support.simulator import World


def serving(engines: int, decoders: int = 0, size: int = 2) -> World:
    """Return a service whose pods are all ready, each on its own node."""
    world = ready_world(Shape(size=size, engines=engines, decoders=decoders, router=False))
    world.edit(deps=change_deps(world.deps, gang_timeout=TIMEOUT))
    world.run(3)
    return world


def rank(world: World, component: str, group: int, number: int) -> LivePod:
    return next(pod for pod in world.pods.values() if (role(pod), pod.group, pod.rank) == (component, group, number))


def lose(world: World, component: str, group: int, number: int = 1) -> None:
    """Remove a rank. Its group is recycled, and the new pod of this rank finds no node."""
    del world.pods[rank(world, component, group, number).name]
    world.healthy = lambda _: False
    before = {pod.uid for pod in world.pods.values()}
    while True:
        world.run(1)
        new = [pod for pod in world.pods.values() if (role(pod), pod.group) == (component, group) and pod.uid not in before]
        if len(new) == 2:
            break
    for pod in new:
        pod.node = "" if pod.rank == number else f"{component}{group}-{pod.rank}"
    world.run(1)


def asks(world: World) -> IdleNodes | None:
    claim = world.sync().claim
    return claim.idle if claim is not None else None


def numbers(found: IdleNodes) -> tuple[list[int], list[int]]:
    """Return the numbers of pods in `missing` (those without a node) and in `units` (all pods of the same groups)."""
    return [sum(need.pods for need in part) for part in found.missing], [
        sum(need.pods for need in part) for part in found.units
    ]


def later(world: World, seconds: float = TIMEOUT) -> World:
    world.now += timedelta(seconds=seconds)
    return world


def test_group_with_a_lost_rank_may_be_released_after_the_timeout() -> None:
    world = serving(2, 1)
    assert lost_since(world.service.status, world.now) is None
    lose(world, "engine", 1)
    began = lost_since(world.service.status, world.now)
    assert began is not None and asks(world) is None
    plan = world.sync()
    assert plan.requeue_after is not None and plan.requeue_after <= TIMEOUT
    found = asks(later(world))
    assert found is not None and found.goes == {("engine", 1)} and found.since == began.timestamp()
    assert [node for node, _ in found.holds] == [rank(world, "engine", 1, 0).node]
    assert numbers(found) == ([1], []), "a single group keeps no other group of the service from being complete"


def test_several_lost_groups_request_capacity_for_one_complete_group() -> None:
    world = serving(3, 2)
    lose(world, "engine", 0)
    lose(world, "engine", 2)
    lose(world, "decoder", 1)
    found = asks(later(world))
    assert found is not None and found.goes == {("engine", 0), ("engine", 2), ("decoder", 1)}
    assert numbers(found) == ([1, 1], [2, 2]), "of each role"


def test_all_groups_are_released_if_a_role_has_no_complete_group() -> None:
    world = serving(2, 1)
    lose(world, "decoder", 0)
    found = asks(later(world))
    assert found is not None and found.goes == {("engine", 0), ("engine", 1), ("decoder", 0)}
    assert len(found.holds) == 5 and numbers(found) == ([1], [4])


def test_group_is_not_lost_if_its_original_leader_is_ready() -> None:
    """A group that has lost a rank does not count as lost if its leader has served and is ready, which shows that the group
    serves with its remaining ranks.
    """
    world = serving(2, 1)
    lose(world, "engine", 1)
    leader = rank(world, "engine", 1, 0)
    noted = next(one for one in world.service.status["groups"] if (one["component"], one["index"]) == ("engine", 1))
    leader.ready, leader.uid = True, noted["members"]["0"].partition(".")[0]
    assert asks(later(world)) is None
    leader.deleting = True
    assert asks(world) is not None


def test_group_is_lost_if_only_its_new_leader_is_ready() -> None:
    """A group counts as lost if only its new leader is ready. The leader has no probe, or one that does not check the other
    ranks, as on simulated nodes.
    """
    world = serving(2, 1)
    lose(world, "engine", 1)
    rank(world, "engine", 1, 0).ready = True
    assert asks(later(world)) is not None


def test_terminating_rank_does_not_count_as_present() -> None:
    world = serving(2, 1)
    lose(world, "engine", 1)
    stuck = rank(world, "engine", 1, 1)
    stuck.node, stuck.deleting = "n99", True
    found = asks(later(world))
    assert found is not None and numbers(found)[0] == [1] and "n99" in dict(found.holds)


@pytest.mark.parametrize(
    "group",
    [
        {"incarnation": 1, "phase": "Pending"},
        {"incarnation": 1, "phase": "Pending", "since": "yesterday", "component": 7, "revision": None, "index": None},
    ],
)
def test_malformed_group_status_causes_no_error(group: dict[str, object]) -> None:
    world = serving(1, 1)
    status = {**world.service.status, "groups": [group]}
    assert lost_since(status, world.now) == world.now


@pytest.mark.parametrize(
    ("served", "placed", "order"),
    [((), (), (0, 1, 2)), ((2,), (2,), (2, 0, 1)), ((1,), (1, 2), (1, 2, 0)), ((0, 1, 2), (0, 1, 2), (0, 1, 2))],
)
def test_groups_that_serve_are_kept_first_whatever_their_number(
    served: tuple[int, ...], placed: tuple[int, ...], order: tuple[int, ...]
) -> None:
    told = PLACED._replace(served={"engine": frozenset(served)}, placed_groups={"engine": frozenset(placed)})
    assert served_first(told, "engine", (0, 1, 2)) == order


def test_groups_named_by_the_plan_are_the_ones_removed() -> None:
    """The groups that the plan names are those that are removed. Here the first group has lost a rank. By its number alone,
    it would be the group that stays.
    """
    world = serving(2, 1)
    lose(world, "engine", 0)
    found = asks(later(world))
    assert found is not None
    stay = {pod.uid for pod in world.pods.values() if (role(pod), pod.group) != ("engine", 0)}
    world.turn = world.turn._replace(gives_way=frozenset({("engine", 1)}))
    world.run(2)
    assert len(world.living_pods()) == 6, "a decision about other groups has no effect"
    world.turn = world.turn._replace(gives_way=found.goes)
    world.run(4)
    assert {*world.living_pods().values()} == stay and world.service.status["placement"]["waiting"] == {"engine": 1}
    assert not world.service.status["placement"]["anew"]


def test_serving_service_requests_at_most_the_nodes_that_its_pods_had() -> None:
    """A service that serves requests at most as many nodes as its existing pods had. In this test, its next revision has
    groups of 16 pods, and its single pod, which is on one node, is being deleted.
    """
    template = Demand(requests=(("nvidia.com/gpu", 8),))
    needs = (Need(("engine",), "engine", template, 1), Need(("engine",), "engine", template, 15))
    world = Race({"a": Shape(size=1, router=False)}, 4, 1).worlds["a"]
    world.run(3)
    (pod,) = world.observed().pods
    going = pod._replace(node="n0", deleting=True)
    assert [need.pods for need in expected(needs, [going])] == [1, 0]
    assert [need.pods for need in expected(needs, [pod._replace(node="", deleting=False)] * 3)] == [1, 2]
    assert [need.pods for need in expected(needs, [pod._replace(node="n0", deleting=False)])] == [0, 0]
