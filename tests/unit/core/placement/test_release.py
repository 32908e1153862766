"""Tests of when a group that does not serve releases its nodes: only if this admits a service that is not admitted now."""

import pytest

from ome_operator.core.observed.objects import Node
from ome_operator.core.placement.claims import Claim, IdleNodes
from ome_operator.core.placement.demand import Demand, Expression
from ome_operator.core.placement.fit import Needs, Nodes
from ome_operator.core.placement.need import Need
from ome_operator.core.placement.release import MOST, giving_way

NOW = 1000.0
GPU = "nvidia.com/gpu"


def needs(pods: int, pool: str = "", gpus: int = 8) -> Needs:
    selector = (Expression("pool", "In", (pool,)),) if pool else ()
    return (Need(("engine",), "engine", Demand(selector=selector, requests=((GPU, gpus),)), pods),)


def lost(key: str, holds: list[str], missing: int, *, units: int = 0, since: float = 500.0, pool: str = "") -> Claim:
    """Return the claim of a service that holds nodes without serving, because its group lacks this number of pods. If
    several of its groups hold nodes, `units` is the number of all pods of a group.
    """
    idle = IdleNodes(
        frozenset({("engine", 0)}),
        tuple((name, ((GPU, 8),)) for name in holds),
        (needs(missing, pool),),
        (needs(units, pool),) if units else (),
        since,
    )
    return Claim(key, needs(missing + len(holds), pool), trying=True, serves=True, idle=idle)


def waits(key: str, pods: int, since: float = 900.0, *, trying: bool = False, pool: str = "") -> Claim:
    return Claim(key, needs(pods, pool), trying=trying, since=since, first=since)


def nodes(*free: str, held: str = "", pool: str = "x") -> Nodes:
    """Return free nodes, and nodes of which everything is in use."""
    names = {**dict.fromkeys(held.split(), 0), **dict.fromkeys(free, 8)}
    return {name: Node(name, 1, {"pool": pool}, True, 8, room=((GPU, left),)) for name, left in names.items()}


def asked(claims: list[Claim], room: Nodes, now: float = NOW) -> set[str]:
    return {*giving_way(claims, room, now, 60.0)}


def test_no_nodes_are_released_if_no_other_service_waits() -> None:
    assert asked([lost("a", ["n1"], 1)], nodes(held="n1 n2")) == set()
    assert asked([waits("w", 1)], nodes(held="n1 n2")) == set()


@pytest.mark.parametrize(
    ("waiting", "free", "given"),
    [
        (waits("w", 1), (), True),
        (waits("w", 2), (), False),  # the service holds a single node, which is not enough
        (waits("w", 2), ("n3",), True),
        (waits("w", 1), ("n3",), False),  # the waiting service fits without that node
        (waits("w", 1, NOW - 59), (), False),  # the other service has just begun to wait
        (waits("w", 1, NOW + 9999), (), True),  # the clock was ahead
        (waits("w", 1, trying=True), (), False),
        (waits("w", 1, 0.0, trying=True), (), True),  # its pods have had no node for longer than an attempt lasts
        (waits("w", 1)._replace(priority=-1), (), False),
        (waits("w", 1)._replace(priority=1), (), True),
        (waits("w", 1, pool="y"), (), False),  # it cannot use these nodes
    ],
)
def test_nodes_are_released_only_if_a_waiting_service_then_fits(waiting: Claim, free: tuple[str, ...], given: bool) -> None:
    """A group of three pods holds one node without serving. It releases the node only if a waiting service then fits."""
    assert asked([lost("a", ["n1"], 2), waiting], nodes(*free, held="n1 n2")) == ({"a"} if given else set())


def test_no_nodes_are_released_if_the_lost_rank_has_a_free_node() -> None:
    """A group releases nothing if there is a free node for its lost rank, because the scheduler can bind the pod of this
    rank to the node.
    """
    assert asked([lost("a", ["n1"], 1), waits("w", 2)], nodes("n3", held="n1")) == set()
    assert asked([lost("a", ["n1", "n2"], 1, units=2)], nodes("n3", held="n1 n2")) == set()


def test_unused_free_node_prevents_a_release_for_twenty_minutes() -> None:
    """If a free node exists for the lost rank but the pod is not bound to it, the group keeps its nodes for twenty minutes.
    Something that the operator does not know keeps the pod from the node.
    """
    claims = [lost("a", ["n1"], 1, since=NOW), waits("w", 2)]
    assert asked(claims, nodes("n3", held="n1"), NOW + 1199) == set()
    assert asked(claims, nodes("n3", held="n1"), NOW + 1200) == {"a"}


def test_promised_node_does_not_count_as_free_for_a_lost_rank() -> None:
    """A node that is promised to another gang does not count as free for the lost rank. The other gang is being admitted and
    will use the only free node.
    """
    tries = waits("t", 1, since=990.0, trying=True)
    assert asked([lost("a", ["n1"], 1), waits("w", 1)], nodes("n3", held="n1")) == set()
    assert asked([lost("a", ["n1"], 1), waits("w", 1), tries], nodes("n3", held="n1")) == {"a"}
    late = tries._replace(since=900.0)
    assert asked([lost("a", ["n1"], 1), waits("w", 1), late], nodes("n3", held="n1")) == set(), "the promise has expired"


@pytest.mark.parametrize(("units", "given"), [(2, True), (0, False), (3, False)])
def test_one_of_two_partial_groups_of_a_service_releases_its_nodes(units: int, given: bool) -> None:
    """Two groups of the same service that have lost a rank hold one node each: one of them releases its node, and the other
    becomes complete. With groups of three pods, this would complete neither.
    """
    assert asked([lost("a", ["n1", "n2"], max(1, units - 1), units=units)], nodes(held="n1 n2 n3")) == (
        {"a"} if given else set()
    )


def test_of_two_partial_gangs_the_later_one_releases_its_nodes() -> None:
    first, second = lost("a", ["n1"], 1, since=100.0), lost("b", ["n2"], 1, since=200.0)
    room = nodes(held="n1 n2")
    assert asked([second, first], room) == {"b"}
    assert asked([first, second._replace(priority=5)], room) == {"a"}, "the service with the lower priority"


def test_first_partial_gang_releases_its_nodes_if_the_second_could_not_help() -> None:
    """The first group lacks six nodes, which the cluster does not have even with the nodes of the second group. So the first
    group releases its nodes.
    """
    first, second = lost("a", ["n1", "n2"], 6, since=100.0), lost("b", ["n3", "n4"], 1, since=200.0)
    assert asked([first, second], nodes(held="n1 n2 n3 n4")) == {"a"}


def test_as_many_partial_gangs_release_nodes_as_the_waiting_one_needs() -> None:
    few = [lost(f"s{at}", [f"n{at}"], 50, since=float(at)) for at in range(4)]
    room = nodes(held="n0 n1 n2 n3")
    assert asked([*few, waits("w", 4)], room) == {"s0", "s1", "s2", "s3"}
    assert asked([*few, waits("w", 2)], room) == {"s2", "s3"}, "the services that lost their ranks last"
    assert asked([*few, waits("w", 5)], room) == set()
    large = lost("s9", ["n9", "m9"], 50, since=0.0)
    assert asked([*few, large, waits("w", 2)], {**room, **nodes(held="n9 m9")}) == {"s2", "s3"}


def test_node_shared_with_other_pods_is_not_released_if_the_rest_is_too_small() -> None:
    """A node on which other pods of the service stay is not released if the rest of it is too small for the waiting service.
    Two other pods with one GPU each stay on the node where the lost group has six GPUs, and the waiting pod needs all eight.
    """
    idle = IdleNodes(frozenset({("engine", 0)}), (("n1", ((GPU, 6),)),), (needs(1),), (), 500.0)
    mine = Claim("a", needs(2), trying=True, serves=True, idle=idle)
    assert asked([mine, waits("w", 1)], nodes(held="n1")) == set()
    small = waits("w", 1)._replace(needs=needs(1, gpus=6))
    assert asked([mine, small], nodes(held="n1")) == {"a"}


def test_every_waiting_service_is_considered_in_turn() -> None:
    """Many services wait for more nodes than exist, and one waits for a single node. Within some minutes, each of them is
    considered, so that the last one gets its node.
    """
    many = [waits(f"w{at}", 50, since=float(at)) for at in range(3 * MOST)]
    claims = [lost("a", ["n1"], 1), *many, waits("z", 1)]
    found = [asked(claims, nodes(held="n1 n2"), NOW + 60 * minute) for minute in range(4)]
    assert found.count({"a"}) == 1 and found.count(set()) == 3


def test_every_pair_of_partial_and_waiting_gangs_is_considered() -> None:
    """Every pair of a service that has lost a rank and a service that waits is considered after a while. Of forty services
    that have lost a rank, only the first can help one of forty that wait: the last one.
    """
    stranded = [lost(f"s{at:02}", [f"n{at}"], 99, since=float(at), pool="x") for at in range(40)]
    others = [waits(f"w{at:02}", 50, since=float(at)) for at in range(39)]
    room = {
        **nodes(held="n0", pool="small"),
        **nodes(held=" ".join(f"n{at}" for at in range(1, 40)), pool="x"),
    }
    claims = [*stranded, *others, waits("z", 1, pool="small")]
    assert {"s00"} in [asked(claims, room, NOW + 60 * minute) for minute in range(4)]
