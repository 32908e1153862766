"""When what serves nobody is given back: only where somebody is placed then who is not placed now."""

from collections.abc import Collection

import pytest

from ome_operator.core.observed.objects import Node
from ome_operator.core.placement.demand import Demand
from ome_operator.core.placement.fit import Need, Needs, Nodes
from ome_operator.core.placement.giving_way import Free, gives_way
from ome_operator.core.placement.turns import Claim, Idle

NOW = 1000.0
GPUS = Demand(requests=(("nvidia.com/gpu", 8),))


def needs(pods: int) -> Needs:
    return (Need(("engine",), "engine", GPUS, pods),)


def lost(key: str, keeps: int, size: int, *, groups: int = 1, several: bool = False, since: float = 500.0) -> Claim:
    """A service with so many whole nodes in groups that stay, and groups that have lost a rank."""
    idle = Idle(needs(keeps), needs(groups * size), needs(size), several, since)
    return Claim(key, needs(groups * size), trying=True, serves=True, idle=idle)


def waits(key: str, pods: int, since: float = 900.0, *, trying: bool = False) -> Claim:
    return Claim(key, needs(pods), trying=trying, since=since, first=since)


def free(left: int, **held: int) -> Free:
    """So many nodes are left; so many more without the pods of each of these services."""

    def nodes(but: Collection[str]) -> Nodes:
        count = left + sum(held[key] for key in but)
        return {f"n{at}": Node(f"n{at}", 1, {}, True, 8, room=(("nvidia.com/gpu", 8),)) for at in range(count)}

    return nodes


def asked(mine: Claim, others: list[Claim], room: Free, patience: float = 60.0) -> bool:
    return gives_way(mine, [mine, *others], room, NOW, patience)


def test_nobody_else_nothing_is_given_back() -> None:
    assert not asked(lost("a", 4, 2), [], free(0, a=5))


@pytest.mark.parametrize(
    ("waiting", "left", "given"),
    [
        (waits("w", 1), 0, True),
        (waits("w", 2), 0, False),  # it holds a single node, which is not enough
        (waits("w", 2), 1, True),
        (waits("w", 1), 1, False),  # the other is placed without it
        (waits("w", 1, NOW - 59), 0, False),  # it has just begun to wait
        (waits("w", 1, trying=True), 0, False),
        (waits("w", 1, 0.0, trying=True), 0, True),  # its pods have been on no node for longer than a try lasts
    ],
)
def test_for_who_waits_and_is_placed_then(waiting: Claim, left: int, given: bool) -> None:
    """It keeps four nodes, and holds a node for a group of three."""
    assert asked(lost("a", 4, 3), [waiting], free(left, a=5)) is given


def test_who_finds_its_own_node_gives_nothing_back() -> None:
    """The scheduler is late, and the node of the lost rank is there."""
    assert not asked(lost("a", 4, 2), [waits("w", 2)], free(1, a=5))
    assert not asked(lost("a", 4, 2, groups=2, several=True), [], free(2, a=6))


@pytest.mark.parametrize(("several", "held", "given"), [(True, 6, True), (False, 6, False), (True, 5, False)])
def test_its_own_groups_keep_each_other_from_being_whole(several: bool, held: int, given: bool) -> None:
    """Two groups of two: a node each is enough for a single one."""
    assert asked(lost("a", 4, 2, groups=2, several=several), [], free(0, a=held)) is given


def test_of_two_that_have_lost_a_rank_the_later_one_gives_way() -> None:
    first, second = lost("a", 0, 6, since=100.0), lost("b", 0, 6, since=200.0)
    room = free(0, a=5, b=5)
    assert asked(second, [first], room) and not asked(first, [second], room)
    better = second._replace(priority=5)
    assert asked(first, [better], room) and not asked(better, [first], room), "or that of the lower priority"
    assert not asked(second, [first], free(1, a=5, b=5)), "the first finds its node without it"
    assert not asked(second, [first], free(0, a=3, b=2)), "it would help nobody"


def test_when_the_later_one_has_given_back_the_first_does_not_do_so_for_it() -> None:
    """Its pods still end, so the node for the first is not free yet."""
    first = lost("a", 0, 6, since=100.0)
    assert not asked(first, [waits("b", 6, NOW - 2)], free(0, a=5))


def test_only_a_few_others_are_asked_about() -> None:
    looks = list[tuple[str, ...]]()

    def counted(but: Collection[str]) -> Nodes:
        looks.append(tuple(but))
        return free(0, **{f"s{at}": 1 for at in range(100)}, a=1)(but)

    others = [lost(f"s{at}", at, 100 + at, since=1.0) for at in range(50)]
    waiting = [waits(f"w{at}", 10 + at) for at in range(50)]
    assert not gives_way(lost("a", 0, 2), [*others, *waiting], counted, NOW, 60.0)
    assert len(looks) < 10
