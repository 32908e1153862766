"""Tests of the nodes on which no new group is placed for some time because `ome move` has named them, in the simulated
cluster: when they are used nevertheless, and when the exclusion ends.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from ome_operator import keys
from ome_operator.core.observed.exclusions import MOST
from ome_operator.core.observed.move_requests import NamedNode, named_nodes
from tests.support.moving import Fleet, Movable, node, serving

ONE = Movable(size=1, engines=1, decoders=1, moves=(("timeout", "30m"),))
NOW = datetime(2026, 11, 29, tzinfo=UTC)
TIMEOUT = timedelta(minutes=30)


def named(fleet: Fleet, word: str = "") -> str:
    """Name the node of decode group 0 by `ome move`, with the present time, and return it."""
    fleet.run(3)
    gone = min(fleet.nodes_of(keys.DECODER, 0))
    fleet.change(gone, move=f"{fleet.world.now.isoformat()}{word}")
    return gone


def exclusions(fleet: Fleet) -> set[str]:
    """Return the nodes that the decode groups exclude."""
    found = set()
    for child in fleet.world.children.values():
        if child.key[0] == "StatefulSet" and child.labels[keys.COMPONENT] == keys.DECODER:
            found.add((child.manifest["metadata"].get("annotations") or {}).get(keys.EXCLUDED_NODES, ""))
    return found


def scaled(fleet: Fleet, decoders: int) -> None:
    """Change the number of decode groups."""
    fleet.shape = replace(fleet.shape, decoders=decoders)
    fleet.world.edit(fleet.shape.service())


def rolled_out(fleet: Fleet) -> tuple[int, int]:
    """Change the image, and run passes until the new revision is complete. Return the number of passes, and in how many of
    them the service was not complete.
    """
    fleet.shape = replace(fleet.shape, image="b")
    deps = replace(fleet.shape.deps(), nodes=fleet.world.deps.nodes, policy=fleet.world.deps.policy)
    fleet.world.edit(fleet.shape.service(), deps)
    before, down = fleet.groups(keys.DECODER) | fleet.groups(keys.ENGINE), 0
    for count in range(60):
        present = fleet.groups(keys.DECODER) | fleet.groups(keys.ENGINE)
        if fleet.whole() and before.isdisjoint(present):
            return count, down
        fleet.run()
        down += not all(map(fleet.serving, (keys.ENGINE, keys.DECODER)))
    raise AssertionError(f"never rolled out: {fleet.world.service.status.get('conditions')}")


@pytest.mark.parametrize(
    ("text", "ready", "left"),
    [
        ("2026-11-28T23:59:01Z", True, 1.0),
        ("2026-11-28T23:59:01Z", False, 1.0),
        ("2026-11-28T23:59:01Z now", True, 1.0),
        ("2026-11-28T23:59:01Z now", False, None),
        ("2026-11-28T23:59:00Z", True, None),
        ("2026-11-29T00:00:01Z", True, None),
        ("yesterday", True, None),
        ("", True, None),
    ],
)
def test_a_node_is_named_until_the_timeout_after_the_command(text: str, ready: bool, left: float | None) -> None:
    found = named_nodes([node("n0")._replace(move=text, ready=ready)], 60.0, NOW)
    assert found == ({} if left is None else {"n0": NamedNode(left, text.endswith("now"))})


@pytest.mark.parametrize("strategy", ["", "recreate"])
@pytest.mark.parametrize("word", ["", " now"])
@pytest.mark.parametrize("size", [1, 2])
def test_rollout_uses_a_named_node_if_its_groups_fit_on_no_other(word: str, strategy: str, size: int) -> None:
    """A rollout uses a node that `ome move` has named if its groups fit on no other node; there is no spare node here. If
    the new groups excluded that node, the rollout would remove the old groups and then wait until the timeout of the
    exclusion. The rollout takes about as long as without `ome move`. With `--now`, the service may be incomplete for
    longer, because `--now` removes a group at once.
    """
    shape = replace(ONE, size=size, strategy=strategy)
    (plain := serving(shape, spare=0)).run(3)
    fleet = serving(shape, spare=0)
    named(fleet, word)
    (passes, down), (usual, least) = rolled_out(fleet), rolled_out(plain)
    assert passes <= usual + 5 and (word or down <= least + 5)
    assert fleet.nodes_of(keys.DECODER) | fleet.nodes_of(keys.ENGINE) == fleet.world.deps.nodes.keys()


def test_rollout_avoids_a_named_node_if_other_nodes_are_free() -> None:
    fleet = serving(ONE, spare=2)
    gone = named(fleet)
    rolled_out(fleet)
    assert gone not in fleet.nodes_of(keys.DECODER) | fleet.nodes_of(keys.ENGINE)
    assert exclusions(fleet) == {gone}


@pytest.mark.parametrize(("spare", "word", "used"), [(1, "", True), (1, " now", False), (2, "", False), (2, " now", False)])
def test_added_group_uses_a_named_node_only_if_no_other_is_free(spare: int, word: str, used: bool) -> None:
    """A group has left the node that `ome move` has named, and then another group is added. The added group uses the named
    node only if no other node is free and the move was requested without `--now`. With `--now`, it waits until the
    exclusion of the node ends.
    """
    fleet = serving(ONE, spare=spare)
    gone = named(fleet, word)
    until = fleet.world.now + TIMEOUT
    fleet.until("moved", lambda: not fleet.moves() and fleet.whole() and gone not in fleet.nodes_of(keys.DECODER))
    scaled(fleet, 2)
    fleet.run(60)
    assert (gone in fleet.nodes_of(keys.DECODER)) is used and fleet.world.now < until
    assert fleet.serving(keys.DECODER) == (1 if spare == 1 and not used else 2)
    fleet.until("added", lambda: fleet.serving(keys.DECODER) == 2, passes=180)


def test_avoided_node_is_used_if_the_only_other_node_is_named_by_ome_move() -> None:
    """A node that may be bad is better than none. So a group uses an avoided node if it fits on no other node than this one
    and the node that `ome move --now` has named.
    """
    fleet = serving(ONE, spare=1)
    fleet.run(3)
    spare = min(fleet.world.deps.nodes.keys() - fleet.nodes_of(keys.DECODER) - fleet.nodes_of(keys.ENGINE))
    fleet.world.avoided = {spare: "decoder of team/svc failed there 3 times"}
    gone = min(fleet.nodes_of(keys.DECODER, 0))
    scaled(fleet, 2)
    fleet.change(gone, move=f"{fleet.world.now.isoformat()} now")
    fleet.run(60)
    assert fleet.nodes_of(keys.DECODER) == {spare} and fleet.serving(keys.DECODER) == 1


def test_avoided_nodes_are_excluded_before_the_named_ones() -> None:
    """A group excludes at most MOST nodes. If there are more, avoided nodes are excluded before nodes that `ome move` has
    named.
    """
    fleet = serving(ONE, spare=MOST + 10)
    fleet.run(3)
    *named, bad = sorted(fleet.world.deps.nodes.keys() - fleet.nodes_of(keys.DECODER) - fleet.nodes_of(keys.ENGINE))
    fleet.world.avoided = {bad: "decoder of team/svc failed there 3 times"}
    for name in named:
        fleet.change(name, move=fleet.world.now.isoformat())
    scaled(fleet, 2)
    fleet.run(2)
    (excluded,) = exclusions(fleet) - {""}
    assert bad in excluded.split(",") and len(excluded.split(",")) == MOST


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("ends", ["the timeout", "the annotation"])
def test_group_that_left_without_replacement_returns_when_exclusion_ends(size: int, ends: str) -> None:
    """`ome move --now` names a node, and the group leaves it without a replacement. The node is not cordoned, and no other
    node is free. The new group is placed on the node when the exclusion of the node ends, and not before.
    """
    fleet = serving(replace(ONE, size=size), spare=0)
    gone = named(fleet, " now")
    until = fleet.world.now + TIMEOUT
    fleet.until("gone", lambda: gone not in fleet.nodes_of(keys.DECODER), passes=5)
    if ends == "the annotation":
        fleet.run(60)
        until = fleet.world.now
        fleet.change(gone, move="")
    while fleet.world.now < until:
        assert gone not in fleet.nodes_of(keys.DECODER)
        fleet.run()
    fleet.until("back", lambda: fleet.whole() and gone in fleet.nodes_of(keys.DECODER), passes=40)
    assert exclusions(fleet) == {""} and len(fleet.groups(keys.DECODER)) == 1


@pytest.mark.parametrize("spare", [0, 1])
def test_a_replacement_never_uses_the_node_that_its_group_leaves(spare: int) -> None:
    """A replacement never uses the node that its group leaves. The role needs no more nodes because of the move, so the
    rule for groups that fit on no other nodes does not apply.
    """
    fleet = serving(replace(ONE, decoders=2), spare=spare)
    gone, until = named(fleet), fleet.world.now + TIMEOUT
    stays = {pod.uid for pod in fleet.world.pods.values() if pod.node == gone}
    while fleet.world.now < until:
        fleet.run()
        assert fleet.whole()
        assert {pod.uid for pod in fleet.world.pods.values() if pod.node == gone} <= stays
    assert (gone in fleet.nodes_of(keys.DECODER)) is (spare == 0)


def test_a_group_that_loses_its_node_uses_a_named_node_if_there_is_no_other() -> None:
    """A group that loses its node uses a named node if there is no other node. The group has moved away from the named
    node, and then its new node is deleted for a reason that has nothing to do with the move.
    """
    fleet = serving(ONE, spare=1)
    gone = named(fleet)
    until = fleet.world.now + TIMEOUT
    fleet.until("moved", lambda: not fleet.moves() and gone not in fleet.nodes_of(keys.DECODER), whole=True)
    fleet.delete_node(min(fleet.nodes_of(keys.DECODER)))
    fleet.until("back", lambda: fleet.whole() and gone in fleet.nodes_of(keys.DECODER), passes=60)
    assert fleet.world.now < until


def test_named_nodes_are_used_before_nodes_that_may_be_bad() -> None:
    """Named nodes are used before nodes that may be bad. In this test a group is added that fits only on a named node or
    on an avoided node.
    """
    fleet = serving(ONE, spare=2)
    gone = named(fleet)
    fleet.until("moved", lambda: not fleet.moves() and gone not in fleet.nodes_of(keys.DECODER), whole=True)
    (bad,) = fleet.world.deps.nodes.keys() - fleet.nodes_of(keys.DECODER) - fleet.nodes_of(keys.ENGINE) - {gone}
    fleet.world.avoided = {bad: "decoder of team/svc failed there 3 times"}
    scaled(fleet, 2)
    fleet.until("added", lambda: fleet.serving(keys.DECODER) == 2)
    assert gone in fleet.nodes_of(keys.DECODER) and bad not in fleet.nodes_of(keys.DECODER)
    scaled(fleet, 3)
    fleet.until("all", lambda: fleet.serving(keys.DECODER) == 3)


def test_reconciliation_is_scheduled_for_the_end_of_the_exclusion() -> None:
    fleet = serving(ONE, spare=1)
    gone = named(fleet)
    until = fleet.world.now + TIMEOUT
    fleet.until("moved", lambda: not fleet.moves() and gone not in fleet.nodes_of(keys.DECODER), whole=True)
    fleet.run(20)
    assert fleet.world.sync().requeue_after == (until - fleet.world.now).total_seconds()
