"""Tests of moves that are impossible, unwanted or interrupted, on a real control plane with simulated nodes: a message says
why, nothing that serves is deleted, and every move ends (docs/moves.md).

All cases run at the same time, each with nodes of its own.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from ome_local import stages
from ome_local.stages import START_DELAY
from ome_operator import keys
from tests.support import drains
from tests.support.drains import NAME
from tests.support.rig import Manifest, Rig

pytestmark = pytest.mark.timeout(900)  # the first test waits for all stories
LASTS = 25.0
"""Seconds to wait before a test concludes that no move begins: longer than a cause has to last."""
SHORT = {"timeout": "20s"}
SLOWLY = {"test-ends": "slowly"}
"""Labels of pods that take ten seconds to terminate."""


def namespace(name: str) -> str:
    return f"bounded-{name}"


def served(
    rig: Rig, name: str, nodes: int, moves: Manifest | None = None, *, size: int = 1, half: bool = False, **engine: Manifest
) -> str:
    """Create a service with one engine group on nodes of its own, and wait until it is ready. Return its namespace. `engine`
    contains further fields of its engine.
    """
    where = namespace(name)
    drains.pool(rig, name, nodes)
    rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": where}})
    body = drains.movable(where, name, size, moves or {}, engine=1)
    if half:
        body["spec"]["runtime"] = {"name": "moves-half"}
    body["spec"]["engine"] |= engine
    rig.create(body)
    rig.ready(where, NAME, 90)
    return where


def nothing_moves(rig: Rig, where: str, meanwhile: Callable[[int], None] = lambda _: None) -> None:
    """Check for LASTS seconds that no move gets beyond its first phase, and that no group is created or removed. `meanwhile`
    is called every second.
    """
    before, began = drains.uids(rig, where), time.monotonic()
    while time.monotonic() - began < LASTS:
        assert drains.phase(rig, where, "engine") in ("", "Settling")
        assert drains.uids(rig, where) == before and drains.numbers(rig, where, "engine") == {0}
        meanwhile(int(time.monotonic() - began))
        time.sleep(1.0)


def cordon(rig: Rig, name: str) -> None:
    """A cordon alone moves no group, because people also cordon nodes only to look at them."""
    where = served(rig, name, 2)
    (node,) = drains.nodes_of(rig, where, "engine")
    rig.cluster.kubectl("cordon", node)
    nothing_moves(rig, where)
    assert not rig.condition(where, NAME, "Moved")


def flapping(rig: Rig, name: str) -> None:
    """A taint that is added and removed every five seconds moves no group."""
    where = served(rig, name, 2)
    (node,) = drains.nodes_of(rig, where, "engine")
    nothing_moves(rig, where, lambda at: (drains.untaint if at // 5 % 2 else drains.taint)(rig, node))
    drains.untaint(rig, node)
    rig.wait("no move", lambda: not drains.moves_of(rig, where))


def frozen(rig: Rig, name: str) -> None:
    """While a service is frozen, `ome move` says so, and a taint moves no group until the service is thawed."""
    where = served(rig, name, 2)
    (node,) = drains.nodes_of(rig, where, "engine")
    drains.ome(rig, "freeze", f"{where}/{NAME}", "--why", "look")
    rig.wait("it is frozen", lambda: rig.condition(where, NAME, "Frozen").get("status") == "True")
    refused = drains.ome(rig, "move", NAME, "engine/0", "-n", where)
    assert "the service is frozen, so nothing moves: end the freeze with `ome thaw` first" in refused
    assert f"{where}/{NAME} is frozen: it moves after `ome thaw {NAME} -n {where}`" in drains.ome(rig, "move", node)
    drains.taint(rig, node)
    nothing_moves(rig, where)
    drains.ome(rig, "thaw", f"{where}/{NAME}")
    rig.wait("it moves", lambda: drains.numbers(rig, where, "engine") == {1} and not drains.moves_of(rig, where), 120)


def returned(rig: Rig, name: str) -> None:
    """The taint is removed while the replacement starts: the replacement is removed, and the group stays."""
    where = served(rig, name, 2, annotations={START_DELAY: "30s"})
    (node,) = drains.nodes_of(rig, where, "engine")
    before = drains.uids(rig, where)
    drains.taint(rig, node)
    rig.wait("a replacement exists", lambda: drains.numbers(rig, where, "engine") == {0, 1}, 60)
    drains.untaint(rig, node)
    rig.wait("it returned", lambda: drains.phase(rig, where, "engine") == "Returned", 60)
    rig.wait("the replacement is gone", lambda: drains.uids(rig, where) == before, 60)
    assert not rig.condition(where, NAME, "Moved")


def recycled(rig: Rig, name: str) -> None:
    """A group that is being recycled does not move: its nodes are tainted, so its new pods are placed on other nodes
    anyway.
    """
    where = served(rig, name, 4, size=2, labels=SLOWLY)
    first, last = drains.nodes_of(rig, where, "engine")
    lost = drains.pods_of(rig, where, "engine", 0)[1]["metadata"]["name"]
    rig.delete("Pod", where, lost)
    rig.wait("it is recycled", lambda: recycling(rig, where), often=True)
    for node in (first, last):
        drains.taint(rig, node)
    rig.wait("it is whole again", lambda: not recycling(rig, where) and rig.ready(where, NAME), 60)
    assert drains.numbers(rig, where, "engine") == {0}
    assert {first, last}.isdisjoint(drains.nodes_of(rig, where, "engine"))
    rig.wait("no move is left", lambda: not drains.moves_of(rig, where), 60)


def recycling(rig: Rig, where: str) -> bool:
    """Return whether the group is being recycled."""
    found = (rig.get("InferenceService", where, NAME) or {}).get("status", {}).get("groups", ())
    return any(one.get("phase") == "Recycling" for one in found)


def itself(rig: Rig, name: str) -> None:
    """Only the node that the group has to leave has free GPUs. The replacement is not placed there, and the group stays."""
    where = served(rig, name, 1, {"timeout": "60s"}, half=True)  # a busy machine needs seconds for each command
    before = drains.uids(rig, where)
    assert "engine/0 leaves its nodes when a replacement serves elsewhere" in drains.ome(
        rig, "move", NAME, "engine/0", "-n", where
    )
    said = rig.wait_for_condition(where, NAME, "Moved", "NoSpareNodes", seconds=40)["message"]
    assert "waits for free nodes with 4 GPUs" in said, said
    again = drains.ome(rig, "move", NAME, "engine/0", "-n", where)
    assert "engine/0 moves already (Replacing)" in again
    rig.wait_for_condition(where, NAME, "Moved", "MoveTimedOut", seconds=90)
    rig.wait("only the group is left", lambda: drains.uids(rig, where) == before)


def crossing(rig: Rig, name: str) -> None:
    """Users request moves of the groups of two services, and each group could only move to the node of the other."""

    def leave(where: str) -> None:
        drains.ome(rig, "move", NAME, "engine/0", "-n", where)

    crossed(rig, name, leave)


def crossing_taints(rig: Rig, name: str) -> None:
    """The nodes of two services are tainted, and no other node is free for either. Later the taints are removed, and nothing
    has moved.
    """

    def leave(where: str) -> None:
        drains.taint(rig, *drains.nodes_of(rig, where, "engine"))

    def stay() -> None:
        for number in range(2):
            drains.untaint(rig, f"{name}-{number}")

    crossed(rig, name, leave, stay)


def crossed(rig: Rig, name: str, leave: Callable[[str], None], stay: Callable[[], None] = lambda: None) -> None:
    """Let both services try to leave their two nodes, wait until both moves have timed out, and check that the groups stay.
    `leave` is called with the namespace of each service, and `stay` after the time-outs.
    """
    first = served(rig, name, 2, SHORT)
    other = f"{first}-other"
    rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
    rig.create(drains.movable(other, name, 1, SHORT, engine=1))
    rig.ready(other, NAME, 90)
    both = (first, other)
    before = [drains.uids(rig, where) for where in both]
    for where in both:
        leave(where)
    for where in both:
        rig.wait_for_condition(where, NAME, "Moved", "NoSpareNodes", "waits for free nodes with 8 GPUs", seconds=40)
    for where in both:
        rig.wait_for_condition(where, NAME, "Moved", "MoveTimedOut", seconds=60)
    stay()
    rig.wait("only the groups are left", lambda: [drains.uids(rig, where) for where in both] == before)
    rig.clear(other)
    rig.delete("Namespace", "", other)


def old_request(rig: Rig, name: str) -> None:
    """A request to move a group that does not exist, or whose time is in the future, moves nothing."""
    where = served(rig, name, 2)
    later = datetime.now(UTC).replace(year=2099).strftime("%Y-%m-%dT%H:%M:%SZ")
    for text in (f"engine/0 {later}", "engine/0", "decoder/0 2026-01-01T00:00:00Z", "engine/x yesterday, ,"):
        rig.patch("InferenceService", where, NAME, {"metadata": {"annotations": {keys.MOVE: text}}})
        time.sleep(2.0)
    nothing_moves(rig, where)
    assert "there is no group engine/7; the numbers of its groups are: 0" in drains.ome(
        rig, "move", NAME, "engine/7", "-n", where
    )


STORIES = {
    "cordon": cordon,
    "flapping": flapping,
    "frozen": frozen,
    "returned": returned,
    "recycled": recycled,
    "itself": itself,
    "crossing": crossing,
    "crossing-taints": crossing_taints,
    "old-request": old_request,
}


@pytest.fixture(scope="module")
def endings(stage: Rig) -> Iterator[dict[str, BaseException | None]]:
    """Yield name of a case -> the error with which the case failed; None if it succeeded."""
    stage.cluster.set_stages(stages.terminate(10.0, SLOWLY))
    with ThreadPoolExecutor(len(STORIES)) as threads:
        started = {name: threads.submit(story, Rig(stage.cluster), name) for name, story in STORIES.items()}
        found = {name: each.exception() for name, each in started.items()}
    stage.cluster.set_stages()
    yield found
    for name in STORIES:
        stage.clear(namespace(name))
        stage.delete("Namespace", "", namespace(name))
    stage.wait("no pods", lambda: not any(stage.all("Pod", namespace(name)) for name in STORIES), 60)


@pytest.mark.parametrize("name", STORIES)
def test_unwanted_or_impossible_moves_delete_no_serving_pod(endings: dict[str, BaseException | None], name: str) -> None:
    if (error := endings[name]) is not None:
        raise error
