"""Tests in which nodes of a service with `spec.moves` are drained under traffic, with real engines on two workers of kind.
The number of failed requests and the smallest number of groups that served are printed (docs/moves.md).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.conftest import Tables
from tests.node.conftest import ON_KIND, Steps
from tests.node.serving.conftest import MINUTES, READY_WITHIN_S, remove
from tests.node.serving.decoders import Decoders, derived
from tests.node.serving.test_long_requests import patient
from tests.support import drains
from tests.support.drains import Drain, GroupWatch
from tests.support.rig import Rig
from tests.support.traffic import Report, stream_of

pytestmark = [
    MINUTES,
    pytest.mark.skipif(not ON_KIND, reason="needs two nodes that run pods: `make e2e` runs it with OME_E2E=kind"),
]
NAME = "kimi-k2-tiny-moves"
ROLES = ("engine", "decoder", "router")
SHORT_PER_S, LONG_PER_S = 2.0, 0.25
LONG = {"sampling_params": {"temperature": 0, "max_new_tokens": 150, "ignore_eos": True}}
"""A request that runs while its group leaves the router."""
WITHIN_S = 300.0
"""Seconds after which a request counts as failed. Engines are slow while another engine starts on the same two cores."""
CALM_S = 5.0
MOVED_WITHIN_S = 400.0
HEADING = "drains of real nodes under traffic"


class Row(NamedTuple):
    """One case of the table: which roles move under traffic, and how."""

    leave: tuple[str, ...]
    """The roles that leave the node. All other roles run on the other worker from the start."""
    drained: bool = True
    """Whether the node is drained; otherwise `ome move SERVICE GROUP` names the only group."""


ROWS = {
    "the node of the prefill group": Row(("engine",)),
    "the node of the router": Row(("router",)),
    "ome move of the decode group": Row(("decoder",), drained=False),
    "the node of the decode group": Row(("decoder",)),
    "the node of all three": Row(ROLES),
}


@pytest.fixture(scope="module")
def service(serving: Rig, steps: Steps) -> Iterator[Decoders]:
    """Yield a service with one prefill group, one decode group and one router."""
    yield derived(serving, NAME, steps, patient)
    remove(serving, NAME)


@pytest.fixture(scope="module")
def watch(serving: Rig) -> Iterator[GroupWatch]:
    """Yield a watch of the service's pods."""
    with drains.watched(serving.cluster, {}) as found:
        yield found


def node_of(rig: Rig, role: str) -> str:
    """Return the node of the only pod of a role."""
    (node,) = drains.nodes_of(rig, NAME, role)
    return node


def arranged(service: Decoders, leave: tuple[str, ...]) -> str:
    """Place the roles in `leave` on one worker and all others on the other worker, and return the first worker. While
    `spec.moves` is absent, pods that are deleted are created again elsewhere.
    """
    rig = service.rig
    set_moves(rig, None)
    here = {role: node_of(rig, role) for role in ROLES}
    workers = rig.cluster.real_nodes

    def wrong(node: str) -> list[str]:
        return [role for role in ROLES if (here[role] == node) != (role in leave)]

    node = min(workers, key=lambda worker: len(wrong(worker)))
    for role in wrong(node):
        moved_by_hand(rig, role, here[role])
    served(service)
    set_moves(rig, {"onCordon": True})
    return node


def moved_by_hand(rig: Rig, role: str, source: str) -> None:
    """Delete the pod of a role while its node is cordoned."""
    rig.cluster.kubectl("cordon", source)
    try:
        selector = f"component={role}"
        rig.cluster.kubectl("delete", "pod", "-n", NAME, "-l", selector, "--grace-period=0", "--force")
        rig.wait(f"{role} on another node", lambda: elsewhere(rig, role, source), 60)
    finally:
        rig.cluster.kubectl("uncordon", source)


def elsewhere(rig: Rig, role: str, source: str) -> bool:
    """Return whether the pod of a role is on another node."""
    nodes = drains.nodes_of(rig, NAME, role)
    return bool(nodes) and source not in nodes


def set_moves(rig: Rig, moves: dict[str, Any] | None) -> None:
    """Write `spec.moves`, and wait until the disruption budgets have changed accordingly."""
    rig.patch("InferenceService", NAME, NAME, {"spec": {"moves": moves}})
    allowed = 1 if moves is None else 0
    rig.wait(f"budgets allow {allowed}", lambda: set(budgets(rig)) == {allowed})


def budgets(rig: Rig) -> list[int]:
    """Return the number of evictions that each disruption budget of the service allows."""
    return [one["spec"]["maxUnavailable"] for one in rig.all("PodDisruptionBudget", NAME)]


def served(service: Decoders) -> None:
    """Wait until the service is complete and its router lists both groups."""
    service.rig.ready(NAME, NAME, READY_WITHIN_S)
    service.rig.wait("the router lists both", lambda: len(service.leaders()) == 1 == len(service.leaders("engine")), 60)
    service.rig.wait("both are listed", lambda: all(one["listed"] for one in service.summary()["leaders"]), 60)


def over(rig: Rig, before: dict[str, set[str]]) -> bool:
    """Return whether all moves have ended, and each of these roles has another pod than before."""
    now = {role: drains.uids(rig, NAME, role) for role in before}
    return not drains.moves_of(rig, NAME, NAME) and all(len(now[role]) == 1 and now[role] != before[role] for role in before)


async def moved(rig: Rig, row: Row, node: str) -> float:
    """Drain the node, or ask for the move of the group; return the seconds until the drain and the move have ended."""
    began, before = time.monotonic(), {role: drains.uids(rig, NAME, role) for role in row.leave}
    drain = Drain(rig.cluster, node) if row.drained else None
    try:
        if drain is None:
            (number,) = drains.numbers(rig, NAME, row.leave[0])
            said = await asyncio.to_thread(drains.ome, rig, "move", NAME, f"{row.leave[0]}/{number}", "-n", NAME)
            assert "leaves its nodes when a replacement serves elsewhere" in said, said
        else:
            await asyncio.to_thread(drain.ended, MOVED_WITHIN_S)
        await asyncio.to_thread(rig.wait, "the move has ended", lambda: over(rig, before), MOVED_WITHIN_S)
    finally:
        if drain is not None:
            drain.stop()
            rig.cluster.kubectl("uncordon", node)
    return time.monotonic() - began


async def under_traffic(url: str, happens: Callable[[], Awaitable[float]]) -> tuple[float, Report, Report]:
    """Send short and long requests while `happens` runs. Return its result, and the reports of both kinds of requests."""
    async with stream_of(url, SHORT_PER_S, WITHIN_S) as short, stream_of(url, LONG_PER_S, WITHIN_S, **LONG) as long:
        await asyncio.sleep(CALM_S)
        assert not short.failed, short.failed[0].error
        seconds = await happens()
        await asyncio.sleep(CALM_S)
    return seconds, short, long


@pytest.mark.timeout(900, func_only=True)
@pytest.mark.parametrize("name", ROWS)
async def test_no_request_fails_while_a_node_is_left(
    service: Decoders, watch: GroupWatch, tables: Tables, name: str
) -> None:
    rig, row = service.rig, ROWS[name]
    node = await asyncio.to_thread(arranged, service, row.leave)
    since = time.monotonic()
    seconds, short, long = await under_traffic(service.url, lambda: moved(rig, row, node))
    least = {role: watch.least(NAME, role, since) for role in ROLES}
    failed, sent = [*short.failed, *long.failed], [*short.answers, *long.answers]
    slowest = {what: max(one.seconds for one in report.answers) for what, report in (("short", short), ("long", long))}
    tables.setdefault(HEADING, []).append(
        f"{name:<32}{len(failed)} of {len(sent)} requests failed ({len(long.answers)} long)  {seconds:>4.0f} s  "
        f"least {least}  slowest {slowest['short']:.1f} s, long {slowest['long']:.1f} s"
    )
    assert not failed, [(one.began - since, one.error) for one in failed[:5]]
    assert least == dict.fromkeys(ROLES, 1)
    if row.drained:
        assert all(node not in drains.nodes_of(rig, NAME, role) for role in ROLES)
