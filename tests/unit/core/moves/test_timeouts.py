"""Tests of moves without free nodes, and of nodes that are deleted before a move has ended, in the simulated cluster."""

from dataclasses import replace

import pytest

from ome_operator import keys
from tests.support.moving import PAIR, Movable, said, serving


@pytest.mark.parametrize(
    ("timeout", "used"),
    [("0s", "20s"), ("1ns", "20s"), ("19.9s", "20s"), ("721h", "720h"), ("100000000h", "720h"), ("9" * 60 + "h", "720h")],
)
def test_a_timeout_that_is_too_short_or_too_long_is_not_used(timeout: str, used: str) -> None:
    """A replacement gets the time that it needs, the message has a valid date, and `Advice` names the timeout that is used.
    `ome lint` reports the same sentences.
    """
    fleet = serving(replace(PAIR, moves=(("timeout", timeout),)), spare=2)
    gone = min(fleet.nodes_of("decoder", 0))
    fleet.taint(gone)
    sentence = f"spec.moves.timeout is {timeout}, so {used} is used: write a duration from 20s to 720h"
    fleet.run()
    assert sentence in fleet.world.condition("Advice")["message"]
    fleet.until("moved", lambda: gone not in fleet.nodes_of("decoder") and not fleet.moves(), passes=60, whole=True)


@pytest.mark.parametrize("timeout", ["20s", "720h", "30m"])
def test_a_timeout_within_its_bounds_is_used_as_it_is(timeout: str) -> None:
    fleet = serving(replace(PAIR, moves=(("timeout", timeout),)), spare=0)
    assert "spec.moves" not in fleet.world.condition("Advice").get("message", "")


@pytest.mark.parametrize("timeout", ["0s", "20s", "1m"])
def test_a_short_timeout_without_nodes_creates_few_replacements(timeout: str) -> None:
    fleet = serving(replace(PAIR, moves=(("timeout", timeout),)), spare=0)
    fleet.taint(min(fleet.nodes_of("decoder", 0)))
    phases = [""]
    for _ in range(120):  # 20 minutes
        fleet.run()
        assert fleet.whole()
        phases += [now] if (now := fleet.moves()["decoder"]["phase"]) != phases[-1] else []
    assert phases.count("Replacing") in (3, 4)


def test_message_about_one_gpu_uses_the_singular() -> None:
    fleet = serving(Movable(size=1, engines=1, decoders=1), spare=0)
    fleet.taint(min(fleet.nodes_of("decoder", 0)))
    fleet.until("waits", lambda: said(fleet)[0] == "NoSpareNodes")
    assert "waits for free nodes with 1 GPU; at " in said(fleet)[1]


@pytest.mark.parametrize("passes", [0, 3])
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("phase", ["Replacing", "Leaving"])
def test_deletion_of_the_node_during_a_move_creates_no_second_replacement(phase: str, size: int, passes: int) -> None:
    """During a move, a managed upgrade deletes the Node object, and its pods at once or some passes later. Only the group of
    the node is lost. There is never a second replacement, and no object of the old group is left.
    """
    fleet = serving(Movable(size=size, engines=1, decoders=1), spare=2 * size)
    others = {pod.uid for pod in fleet.world.pods.values() if pod.labels[keys.COMPONENT] != "decoder"}
    gone = min(fleet.nodes_of("decoder", 0))
    fleet.taint(gone)
    fleet.until("reached", lambda: fleet.moves().get("decoder", {}).get("phase") == phase, whole=True)
    fleet.delete_node(gone, passes)
    seen = set[int]()

    def quiet() -> bool:
        seen.update(number for _, number in fleet.groups("decoder"))
        return not fleet.moves() and fleet.whole() and len(fleet.groups("decoder")) == 1

    fleet.until("whole again", quiet, whole=phase == "Leaving")
    fleet.run(40)
    assert quiet()
    assert seen <= {0, 1}
    assert phase != "Leaving" or fleet.groups("decoder").pop()[1] == 1
    assert others <= {pod.uid for pod in fleet.world.pods.values()}, "other roles lose no pod"
    sets = {one.key[1] for one in fleet.world.children.values() if one.key[0] == "StatefulSet" and "-decoder-" in one.key[1]}
    assert len(sets) == (1 if size == 1 else 2), sets
    assert not any(pod.draining for pod in fleet.world.pods.values())
