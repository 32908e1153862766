"""Tests in which nodes of a service with `spec.moves` are drained under traffic, with real engines on workers of kind. The
number of failed requests and the smallest number of groups that served are printed (docs/moves.md).

The rows run on one service, in an order in which few pods have to be placed by hand between two rows. Only the test of two
nodes uses the spare worker, so it is the last one.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import pytest

from ome_local.images import build
from ome_local.kind import images as kind_images
from tests.conftest import Tables
from tests.node.conftest import ON_KIND, Steps, spare
from tests.node.serving import leaving
from tests.node.serving.conftest import HOLDS, remove
from tests.node.serving.decoders import Decoders, derived
from tests.node.serving.leaving import MOVED_WITHIN_S, NAME, ROLES, Traffic
from tests.node.serving.test_long_requests import patient
from tests.support import drains
from tests.support.drains import GroupWatch
from tests.support.rig import Rig

pytestmark = [
    pytest.mark.skipif(not ON_KIND, reason="needs two nodes that run pods: `make e2e` runs it with OME_E2E=kind"),
    pytest.mark.timeout(1500, func_only=True),
]
HEADING = "drains of real nodes under traffic"
CORDON = {"onCordon": True}
SHORT_S = 30
"""A time-out of moves in seconds. For at least half of it, the status says that nodes are missing."""
SAID_WITHIN_S = 120.0
BETWEEN_S = 1.0
"""Upper bound of the time between the mark of a leader that leaves, and the event of the watch."""
PHASES = ("Settling", "Replacing", "Leaving")


class Row(NamedTuple):
    """One case of the table: which roles move while requests are sent, and what else happens during the moves."""

    together: tuple[str, ...]
    """The roles whose pods run on one node. The test moves groups off this node; all other roles run on the other worker."""
    asked: str = ""
    """The role whose only group `ome move SERVICE GROUP` names; "" if the node is drained."""
    rollout: Mapping[str, object] = MappingProxyType({})
    """The strategy of a rollout that begins immediately before the drain; {} for no rollout."""
    killed: bool = False
    """Whether the operator is killed in each phase of the move of the first role in `together`."""

    @property
    def leave(self) -> tuple[str, ...]:
        """Return the roles whose pods are replaced: all roles if the row has a rollout, because a rollout replaces every
        pod.
        """
        return (self.asked,) if self.asked else ROLES if self.rollout else self.together


ROWS = {
    "the node of the prefill group": Row(("engine",)),
    "the node of the router": Row(("router",)),
    "ome move of the decode group": Row(ROLES, asked="decoder"),
    "the node of the decode group": Row(("decoder",)),
    "the node of all three": Row(ROLES),
    "the node of the decode group, operator killed": Row(("decoder",), killed=True),
    "the node of all three, blue-green under way": Row(ROLES, rollout={"blueGreen": {}}),
    "the node of all three, surge under way": Row(ROLES, rollout={"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}),
}


@pytest.fixture(scope="module")
def service(serving: Rig, steps: Steps) -> Iterator[Decoders]:
    """Yield a service with one prefill group, one decode group and one router."""
    yield derived(serving, NAME, steps, patient)
    remove(serving, NAME)


@pytest.fixture
def watch(serving: Rig) -> Iterator[GroupWatch]:
    """Yield a watch of the service's pods. Each test has its own, because an API server ends a watch after half an hour."""
    with drains.watched(serving.cluster, {}) as found:
        yield found
        assert found.running, "the watch of pods ended before the test, so the least numbers of groups are not known"


@pytest.fixture(scope="module")
def third(serving: Rig, steps: Steps) -> Iterator[str]:
    """Prepare the spare worker for the service and the operator, and yield its name. It is cordoned at first and afterwards,
    when the operator is on another worker again.
    """
    node = spare(serving.cluster)
    with steps.measure("images into the spare worker"):
        for archive in build.build(("operator", "engine-cpu", "router")).values():
            kind_images.load(serving.cluster.at, [node], archive)
    serving.cluster.kubectl("label", "node", node, HOLDS)
    yield node
    serving.cluster.kubectl("cordon", node)
    leaving.put_operator(serving, serving.cluster.real_nodes[0])


async def seen(
    service: Decoders, watch: GroupWatch, tables: Tables, name: str, happens: Callable[[], float]
) -> tuple[Traffic, dict[str, int]]:
    """Run `happens` under traffic, and add the row to the table. Return what was seen, and the least number of groups of
    each role that served.
    """
    await asyncio.to_thread(leaving.watch_began, service.rig, watch)
    since = time.monotonic()
    found = await leaving.under_traffic(service.url, happens)
    least = {role: watch.least(NAME, role, since) for role in ROLES}
    tables.setdefault(HEADING, []).append(leaving.line(name, found, least))
    return found, least


def leave(rig: Rig, nodes: tuple[str, ...], row: Row) -> float:
    """Drain nodes, and during the drains do what the row states. Return the seconds until the drains, the moves and a
    rollout have ended.
    """
    before = {role: drains.uids(rig, NAME, role) for role in row.leave}
    rolled = rolls_out(rig, nodes[0], row) if row.rollout else lambda: True
    began = time.monotonic()
    with leaving.drained(rig, *nodes) as running:
        for phase in PHASES if row.killed else ():
            rig.wait(phase, partial(is_in, rig, row.together[0], phase), MOVED_WITHIN_S, often=True)
            leaving.kill_operator(rig)
        for drain in running:
            drain.ended(MOVED_WITHIN_S)
        rig.wait("the rollout has ended", rolled, MOVED_WITHIN_S)
        rig.wait("the moves have ended", lambda: leaving.left(rig, before), MOVED_WITHIN_S)
        return time.monotonic() - began


def is_in(rig: Rig, role: str, phase: str) -> bool:
    """Return whether the move of a role is in this phase."""
    return drains.moves_of(rig, NAME, NAME).get(role, {}).get("phase") == phase


def rolls_out(rig: Rig, node: str, row: Row) -> Callable[[], bool]:
    """Begin the rollout of a row whose new groups are not placed on the node that is drained next, because it is cordoned
    already. Return a function that returns whether the rollout has ended.
    """
    rig.cluster.kubectl("cordon", node)
    return leaving.rolls_out(rig, row.rollout)


def asked(rig: Rig, role: str) -> float:
    """Ask for the move of the only group of a role, and return the seconds until the move has ended."""
    began, before = time.monotonic(), {role: drains.uids(rig, NAME, role)}
    (number,) = drains.numbers(rig, NAME, role)
    said = drains.ome(rig, "move", NAME, f"{role}/{number}", "-n", NAME)
    assert "leaves its nodes when a replacement serves elsewhere" in said, said
    rig.wait("the move has ended", lambda: leaving.left(rig, before), MOVED_WITHIN_S)
    return time.monotonic() - began


@pytest.mark.parametrize("name", ROWS)
async def test_no_request_fails_while_a_node_is_drained(
    service: Decoders, watch: GroupWatch, tables: Tables, name: str
) -> None:
    rig, row = service.rig, ROWS[name]
    node = await asyncio.to_thread(
        leaving.arranged, service, row.together, CORDON, operator_stays=row.killed or bool(row.rollout)
    )
    before = drains.numbers(rig, NAME, "decoder")
    found, least = await seen(
        service, watch, tables, name, lambda: asked(rig, row.asked) if row.asked else leave(rig, (node,), row)
    )
    assert not found.failed, found.failed_in(0.0, found.ended)[:5]
    assert least == dict.fromkeys(ROLES, 1)
    assert all(node not in drains.nodes_of(rig, NAME, role) for role in row.leave)
    if row.killed:
        assert drains.numbers(rig, NAME, "decoder").isdisjoint(before), "the group moved once"


# --- without a spare node -----------------------------------------------------------------------------------------------
def stays(rig: Rig, node: str) -> float:
    """Drain the node of the decode group while no other node is open to pods. Return the seconds until the status says that
    the group stays. Afterwards the cause of the move is gone.
    """
    began, before = time.monotonic(), drains.uids(rig, NAME, "decoder")
    with leaving.tainted(rig, node), leaving.closed(rig, node), leaving.drained(rig, node) as (drain,):
        waits = rig.wait_for_condition(NAME, NAME, "Moved", "NoSpareNodes", f"leaves node {node}", seconds=SAID_WITHIN_S)[
            "message"
        ]
        assert "its replacement waits for a node; at " in waits and waits.endswith("the group stays"), waits
        ended = rig.wait_for_condition(NAME, NAME, "Moved", "MoveTimedOut", f"leaves node {node}", seconds=SAID_WITHIN_S)[
            "message"
        ]
        seconds = time.monotonic() - began
        assert "no replacement became ready, so the group stays and serves; the move is tried again at " in ended, ended
        assert f"`ome move --now {node}` moves it without a replacement" in ended, ended
        rig.wait("the replacement is gone", lambda: drains.uids(rig, NAME, "decoder") == before, SAID_WITHIN_S)
        assert drain.running, "the drain waits for as long as the group stays"
    rig.wait("the cause is gone", lambda: not drains.moves_of(rig, NAME, NAME), SAID_WITHIN_S)
    assert drains.uids(rig, NAME, "decoder") == before
    return seconds


async def test_without_a_spare_node_the_group_stays_and_no_request_fails(
    service: Decoders, watch: GroupWatch, tables: Tables
) -> None:
    node = await asyncio.to_thread(leaving.arranged, service, ("decoder",), {"timeout": f"{SHORT_S}s"}, operator_stays=True)
    name = f"the node of the decode group, no spare, {SHORT_S} s, Stay"
    found, least = await seen(service, watch, tables, name, lambda: stays(service.rig, node))
    assert not found.failed, found.failed_in(0.0, found.ended)[:5]
    assert least == dict.fromkeys(ROLES, 1)


def goes(service: Decoders, node: str) -> float:
    """Drain the node of the decode group while no other node is open to pods, until the group has left without a replacement
    and the drain has ended. Then open the other worker, and wait until the service serves again. Return the seconds of all
    of this.
    """
    rig = service.rig
    began, before = time.monotonic(), {"decoder": drains.uids(rig, NAME, "decoder")}
    with leaving.tainted(rig, node), leaving.drained(rig, node) as (drain,):
        with leaving.closed(rig, node):
            waits = rig.wait_for_condition(
                NAME, NAME, "Moved", "NoSpareNodes", f"leaves node {node}", seconds=SAID_WITHIN_S
            )["message"]
            assert "its replacement waits for a node; at " in waits and waits.endswith("the group leaves without it"), waits
            alone = "it is removed without a replacement when its requests have ended"
            rig.wait_for_condition(NAME, NAME, "Moved", "Moving", alone, seconds=SAID_WITHIN_S)
            drain.ended(MOVED_WITHIN_S)
        rig.wait("another group exists elsewhere", lambda: leaving.left(rig, before), MOVED_WITHIN_S)
        leaving.complete(service)
        return time.monotonic() - began


async def test_group_leaves_without_a_spare_node_only_after_the_timeout(
    service: Decoders, watch: GroupWatch, tables: Tables
) -> None:
    moves = {"timeout": f"{SHORT_S}s", "withoutReplacement": "Go"}
    node = await asyncio.to_thread(leaving.arranged, service, ("decoder",), moves, operator_stays=True)
    name = f"the node of the decode group, no spare, {SHORT_S} s, Go"
    found, least = await seen(service, watch, tables, name, lambda: goes(service, node))
    gone = watch.first_below(NAME, "decoder", 1, found.began) - BETWEEN_S
    tables[HEADING][-1] += f"  the group left after {gone + BETWEEN_S - found.began:.0f} s"
    assert gone - found.began >= SHORT_S, "the replacement has waited for the time-out"
    assert not found.failed_in(0.0, gone), "requests that began before the group left are answered"
    assert not found.failed_in(found.ended, float("inf")), "the service serves again"
    assert (least["engine"], least["decoder"]) == (1, 0)


# --- two nodes at once --------------------------------------------------------------------------------------------------
async def test_no_request_fails_while_two_nodes_are_drained(
    service: Decoders, third: str, watch: GroupWatch, tables: Tables
) -> None:
    """The node of the decode group, and the node of the prefill group and the router, are drained at the same time, while a
    third node is free. The operator, which runs on one of the two nodes, is evicted, too.
    """
    rig = service.rig
    await asyncio.to_thread(leaving.arranged, service, ("decoder",), CORDON)
    nodes = rig.cluster.real_nodes
    rig.cluster.kubectl("uncordon", third)
    name = "both nodes of all three at once"
    found, least = await seen(service, watch, tables, name, lambda: leave(rig, nodes, Row(ROLES)))
    assert not found.failed, found.failed_in(0.0, found.ended)[:5]
    assert least == dict.fromkeys(ROLES, 1)
    assert [drains.nodes_of(rig, NAME, role) for role in ROLES] == [[third]] * len(ROLES)
