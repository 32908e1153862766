"""Tests of moves that people request, in the simulated cluster: in which order groups leave, and from when on."""

from dataclasses import replace
from datetime import timedelta

import pytest

from ome_operator import keys
from tests.support.moving import PAIR, Movable, node, said, serving


@pytest.mark.parametrize("size", [1, 2])
def test_new_group_is_placed_on_its_former_node_after_the_node_returns(size: int) -> None:
    """A group has left its node because of `ome move --now`, and no other node is free. When the node is back after an
    upgrade, the new group, which has waited, is placed there, because it does not exclude the node.
    """
    fleet = serving(Movable(size=size, engines=1, decoders=1), spare=0)
    gone = min(fleet.nodes_of("decoder", 0))
    fleet.change(gone, ready=False, move=f"{fleet.world.now.isoformat()} now")
    fleet.until("gone", lambda: gone not in fleet.nodes_of("decoder"))
    fleet.run(30)
    assert fleet.serving("decoder") == 0
    fleet.change(gone, ready=True)
    fleet.until("back", lambda: gone in fleet.nodes_of("decoder") and fleet.whole() and not fleet.moves())


@pytest.mark.parametrize("size", [1, 2])
def test_uncordoned_node_is_used_again_after_exclusion_if_no_other_is_free(size: int) -> None:
    """A group leaves its node without a replacement, and nobody cordons the node. The new group waits for other nodes until
    the exclusion of the node ends.
    """
    fleet = serving(Movable(size=size, engines=1, decoders=1, moves=(("timeout", "3m"),)), spare=0)
    gone = min(fleet.nodes_of("decoder", 0))
    fleet.change(gone, move=f"{fleet.world.now.isoformat()} now")
    fleet.until("gone", lambda: gone not in fleet.nodes_of("decoder"))
    fleet.run(8)
    assert gone not in fleet.nodes_of("decoder")
    fleet.until("back", lambda: gone in fleet.nodes_of("decoder") and fleet.whole() and not fleet.moves(), passes=100)


@pytest.mark.parametrize("phase", ["Settling", "Replacing", "Staying", "Returned"])
def test_now_does_not_wait_for_the_move_of_another_group(phase: str) -> None:
    """Group 0 moves because of a taint, and no node is free. `ome move --now` of the node of group 1 moves it at once, and
    group 0 continues to serve.
    """
    fleet = serving(Movable(size=1, engines=1, decoders=2, moves=(("timeout", "1m"),)), spare=0)
    fleet.run(3)
    waits, gone = (min(fleet.nodes_of("decoder", number)) for number in (0, 1))
    fleet.taint(waits)
    begun = "Replacing" if phase == "Returned" else phase
    fleet.until("begun", lambda: fleet.moves().get("decoder", {}).get("phase") == begun)
    if phase == "Returned":
        fleet.untaint(waits)
        fleet.until("returned", lambda: fleet.moves()["decoder"]["phase"] == phase)
    fleet.change(gone, ready=False, move=f"{fleet.world.now.isoformat()} now")
    fleet.run()
    found = fleet.moves()["decoder"]
    assert (found["group"], found["phase"], found["withoutReplacement"]) == (1, "Leaving", True)
    fleet.until("gone", lambda: gone not in fleet.nodes_of("decoder"), passes=12)
    assert waits in fleet.nodes_of("decoder", 0)
    fleet.world.deps = replace(fleet.world.deps, nodes={**fleet.world.deps.nodes, "new": node("new")})
    fleet.untaint(waits)
    fleet.until("whole again", lambda: fleet.whole() and not fleet.moves())
    assert len(fleet.groups("decoder")) == 2


def test_a_moving_group_that_fails_has_one_replacement() -> None:
    """The replacement of a group waits for nodes, and the group has been recycled on the node that it leaves. A group that
    fails on a node that new groups exclude is replaced under another number, unless it has a replacement already.
    """
    fleet = serving(Movable(size=2, engines=1, decoders=2), spare=1)
    fleet.change(min(fleet.nodes_of("decoder", 0)), move=fleet.world.now.isoformat())
    fleet.until("begun", lambda: len(fleet.groups("decoder")) == 3)
    status = fleet.world.service.status
    recycled = {"recycles": 1, "recyclesInARow": 1}
    groups = [{**one, **(recycled if one["name"].endswith("-0-0") else {})} for one in status["groups"]]
    fleet.world.service = replace(fleet.world.service, status={**status, "groups": groups})
    for pod in fleet.world.pods.values():
        pod.ready = pod.ready and (pod.labels[keys.COMPONENT], pod.group, pod.rank) != ("decoder", 0, 0)
    assert [apply.manifest["metadata"]["name"] for apply in fleet.world.sync().apply if apply.kind == "StatefulSet"] == []


def test_every_group_that_ome_move_named_moves_in_turn() -> None:
    """If the annotation contains the requests of several commands, the groups move one after the other: while the first
    moves, the others wait.
    """
    fleet = serving(Movable(size=1, engines=1, decoders=3), spare=1)
    fleet.run(3)
    before = {pod.uid for pod in fleet.world.pods.values() if pod.labels[keys.COMPONENT] == "decoder" and pod.group != 1}
    asked = ", ".join(f"decoder/{number} {fleet.world.now.isoformat()}" for number in (2, 0))
    fleet.world.service = replace(fleet.world.service, annotations={keys.MOVE: asked})
    fleet.run()
    assert said(fleet)[1].endswith("; 1 other group of the role will be moved afterwards")
    fleet.until(
        "moved", lambda: not fleet.moves() and before.isdisjoint(pod.uid for pod in fleet.world.pods.values()), whole=True
    )
    assert len(fleet.groups("decoder")) == 3


@pytest.mark.parametrize("clock", [timedelta(seconds=7), timedelta(hours=2)])
def test_move_request_with_future_timestamp_is_handled_at_that_time(clock: timedelta) -> None:
    fleet = serving(PAIR, spare=2)
    fleet.world.settle()
    note = {keys.MOVE: f"engine/0 {(fleet.world.now + clock).isoformat()}"}
    fleet.world.service = replace(fleet.world.service, annotations=note)
    plan = fleet.world.sync()
    assert "moves" not in plan.status
    assert plan.requeue_after == clock.total_seconds()
