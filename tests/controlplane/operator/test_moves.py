"""Tests of `kubectl drain` of nodes whose services have `spec.moves`, on a real control plane with simulated nodes
(docs/moves.md).

All drains run at the same time, each with nodes of its own. Simulated routers have no registry, so the operator does not
know how many requests a group has, and removes the group 15 s after it has left the router.
"""

import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from types import MappingProxyType
from typing import NamedTuple

import pytest

from ome_local.stages import START_DELAY
from tests.conftest import Tables
from tests.support import drains
from tests.support.drains import BIG, NAME, Drain, Eviction, GroupWatch
from tests.support.rig import PATIENCE, Manifest, Rig

pytestmark = pytest.mark.timeout(900)  # the first test waits for all drains
SHORT = "20s"
"""A time-out after which a move without free nodes ends in these tests."""
LIMIT = 200.0


class Row(NamedTuple):
    """One case of the tests: which nodes of which service are drained."""

    role: str
    """The role whose nodes are drained."""
    cause: str
    """What the test does before `kubectl drain`. "taint" taints the nodes, and "ome move" runs that command. With "cordon"
    the test does nothing, because the drain itself cordons the node.
    """
    size: int = 2
    engines: int = 1
    decoders: int = 1
    spare: int = 2
    moves: Mapping[str, object] = MappingProxyType({})
    groups: int = 1
    """Number of groups that leave their nodes."""
    whole: bool = True
    """Whether every role has to serve completely at every moment."""
    rollout: Mapping[str, object] = MappingProxyType({})
    """The strategy of a rollout that starts immediately before the drain; {} for no rollout."""

    @property
    def counts(self) -> dict[str, int]:
        """Number of the service's groups by component."""
        return {"engine": self.engines, **({"decoder": self.decoders} if self.decoders else {})}


CORDON = {"onCordon": True}
SURGE = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
ROWS = {
    "decode-node": Row("decoder", "cordon", moves=CORDON),
    "prefill-node": Row("engine", "taint"),
    "node-of-the-router": Row("router", "ome move", spare=0),
    "two-nodes-at-once": Row("engine", "cordon", engines=2, spare=4, groups=2, moves=CORDON),
    "no-spare-stays": Row("decoder", "taint", spare=1, moves={"timeout": SHORT}),
    "no-spare-goes": Row("decoder", "taint", spare=1, moves={"timeout": SHORT, "withoutReplacement": "Go"}, whole=False),
    "blue-green-under-way": Row("engine", "cordon", size=1, moves=CORDON, rollout={"blueGreen": {}}),
    "surge-under-way": Row("engine", "cordon", size=1, moves=CORDON, rollout=SURGE),
    "group-of-twelve": Row("engine", "taint", size=BIG, decoders=0, spare=BIG),
}


class Outcome(NamedTuple):
    """What was observed during the drain of a case."""

    seconds: float
    """How long the drain took."""
    least: dict[str, int]
    """Role -> smallest number of its groups that served at any moment."""
    evictions: list[Eviction]
    before: dict[str, set[int]]
    after: dict[str, set[int]]
    """Role -> numbers of its groups after the drain. `before` contains the same numbers before the drain."""
    left: list[str]
    """Names of the service's pods that are on the drained nodes at the end."""
    said: list[str]
    """Messages of the condition Moved during the drain."""
    refused: list[str]
    """Requests of the operator that were denied for lack of rights."""


def namespace(name: str) -> str:
    return f"drain-{name}"


@pytest.fixture(scope="module")
def outcomes(stage: Rig, tables: Tables) -> Iterator[dict[str, Outcome | BaseException]]:
    """Yield the outcome of each row, or the error with which it failed."""
    sizes = {namespace(name): row.size for name, row in ROWS.items()}
    with drains.watched(stage.cluster, sizes) as watch, ThreadPoolExecutor(len(ROWS)) as threads:
        started = {name: threads.submit(drained, Rig(stage.cluster), name, row, watch) for name, row in ROWS.items()}
        found = {name: each.exception() or each.result() for name, each in started.items()}
    lines = tables.setdefault("drains of nodes whose services move", [])
    for name, each in found.items():
        if isinstance(each, Outcome):
            wanted = {**ROWS[name].counts, "router": 1}
            least = {role: f"{each.least[role]} of {count}" for role, count in wanted.items()}
            lines.append(drains.line(name, least, each.seconds, sum(one.code == 429 for one in each.evictions)))
    yield found
    for name in ROWS:
        stage.clear(namespace(name))
        stage.delete("Namespace", "", namespace(name))
    stage.wait("no pods", lambda: not any(stage.all("Pod", namespace(name)) for name in ROWS), 60)


def serving(rig: Rig, name: str, row: Row) -> None:
    """Create the nodes and the service of a row, and wait until it serves."""
    where, count = namespace(name), row.size * (row.engines + row.decoders) + row.spare
    drains.pool(rig, name, count)
    rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": where}})
    body = drains.movable(where, name, row.size, row.moves, **row.counts)
    if row.rollout:
        body["spec"]["rollout"] = {**row.rollout}
    rig.create(body)
    rig.ready(where, NAME, 90)


def drained(rig: Rig, name: str, row: Row, watch: GroupWatch) -> Outcome:
    """Drain a node of each group that leaves, and return what was seen until the move and the drain have ended."""
    serving(rig, name, row)
    where, roles = namespace(name), (*row.counts, "router")
    groups = {role: drains.numbers(rig, where, role) for role in row.counts}
    if row.role == "router":
        names = drains.nodes_of(rig, where, "router")
    else:
        names = [drains.nodes_of(rig, where, row.role, number)[-1] for number in range(row.groups)]
    since, mark, said = monotonic(), rig.cluster.audit_mark(), list[str]()
    if row.rollout:
        slow = {"annotations": {START_DELAY: "20s"}}
        rig.patch("InferenceService", where, NAME, {"spec": {"engine": slow, "decoder": slow}})
        rig.wait("the rollout begins", lambda: len(drains.pods_of(rig, where, "engine")) == 2)
    for node in names:
        if row.cause == "taint":
            drains.taint(rig, node)
        elif row.cause == "ome move":
            said.append(drains.ome(rig, "move", node))
    drain = Drain(rig.cluster, *names)
    try:
        if name == "no-spare-stays":
            said += stays(rig, where, drain, names[0], row.role)
        elif name == "no-spare-goes":
            said.append(rig.wait_for_condition(where, NAME, "Moved", "NoSpareNodes", seconds=60)["message"])
        seconds = drain.ended(LIMIT * PATIENCE)
    finally:
        drain.stop()
    rig.wait(f"{name}: the moves have ended", lambda: not drains.moves_of(rig, where), 60)
    return Outcome(
        seconds,
        {role: watch.least(where, role, since) for role in roles},
        drains.evictions(rig, where, mark),
        groups,
        {role: drains.numbers(rig, where, role) for role in row.counts},
        [pod["metadata"]["name"] for role in roles for pod in drains.pods_of(rig, where, role) if _on(pod, names)],
        said,
        [f"{one.verb} {one.resource}" for one in rig.requests(mark) if one.code == 403],
    )


def stays(rig: Rig, where: str, drain: Drain, node: str, role: str) -> list[str]:
    """Wait until the move has timed out, check that no pod has changed, and move the group without a replacement. Return
    the messages of the condition Moved, and then the output of `ome move --now`.
    """
    before = {pod["metadata"]["uid"] for pod in drains.pods_of(rig, where, role)}
    said = [rig.wait_for_condition(where, NAME, "Moved", "NoSpareNodes", seconds=60)["message"]]
    said.append(rig.wait_for_condition(where, NAME, "Moved", "MoveTimedOut", seconds=60)["message"])
    rig.wait("no replacement is left", lambda: len(drains.numbers(rig, where, role)) == 1)
    assert {pod["metadata"]["uid"] for pod in drains.pods_of(rig, where, role)} == before and drain.running
    return [*said, drains.ome(rig, "move", "--now", node)]


def _on(pod: Manifest, names: list[str]) -> bool:
    return pod["spec"].get("nodeName") in names


@pytest.fixture
def outcome(outcomes: dict[str, Outcome | BaseException], request: pytest.FixtureRequest) -> Outcome:
    """Return the outcome of a row. If the row failed, raise its error."""
    found = outcomes[request.param]
    if isinstance(found, BaseException):
        raise found
    return found


def each(*names: str) -> pytest.MarkDecorator:
    """Return the mark that parametrizes a test with the named rows, and with the outcome of each."""
    rows = [(name, ROWS[name]) for name in names]
    return pytest.mark.parametrize(("outcome", "row"), rows, indirect=["outcome"], ids=names)


@each(*(name for name, row in ROWS.items() if row.whole and name != "no-spare-stays"))
def test_every_role_keeps_serving_while_a_node_is_drained(outcome: Outcome, row: Row) -> None:
    assert outcome.least == {**row.counts, "router": 1}
    assert outcome.left == []
    assert outcome.refused == [], "the chart's rights are enough for the operator"


@each(*(name for name, row in ROWS.items() if not row.rollout))
def test_evictions_are_denied_until_the_operator_has_removed_the_group(outcome: Outcome, row: Row) -> None:
    """The disruption budget of a group denies its eviction until the operator has removed the group. The API server permits
    evictions of pods that are already being deleted, whatever their budget is, and answers 404 for pods that are gone.
    """
    codes: dict[str, list[int]] = {}
    for one in outcome.evictions:
        codes.setdefault(one.pod, []).append(one.code)
    assert codes and all(found[0] == 429 for found in codes.values()), codes
    assert all(found == sorted(found, key=lambda code: code != 429) for found in codes.values()), codes


@each("decode-node", "prefill-node", "group-of-twelve")
def test_the_replacement_has_another_number(outcome: Outcome, row: Row) -> None:
    assert (outcome.before[row.role], outcome.after[row.role]) == ({0}, {1})
    assert all(outcome.after[role] == outcome.before[role] for role in row.counts if role != row.role)


@each("no-spare-stays")
def test_group_stays_without_a_free_node_until_move_with_now(outcome: Outcome, row: Row) -> None:
    """Without a free node, the group stays on its node. The message states how many GPUs the replacement needs and when the
    wait ends; `ome move --now` ends the wait at once.
    """
    waits, ended, told = outcome.said
    assert "waits for free nodes with 16 GPUs; at " in waits and waits.endswith("the group stays"), waits
    assert "no replacement became ready, so the group stays and serves" in ended, ended
    assert f"{namespace('no-spare-stays')}/{NAME} leaves when its requests have ended." in told
    assert outcome.least["engine"] == 1 and outcome.left == []


@each("no-spare-goes")
def test_group_leaves_after_the_timeout_without_a_free_node_if_spec_allows_it(outcome: Outcome, row: Row) -> None:
    (waits,) = outcome.said
    assert waits.endswith("the group leaves without it"), waits
    assert outcome.seconds >= 20 and outcome.left == []
    assert (outcome.least["engine"], outcome.least["decoder"]) == (1, 0)


def test_operator_killed_in_any_move_phase_moves_the_group_once(stage: Rig, rig: Rig, tables: Tables) -> None:
    name, row = "killed", Row("decoder", "cordon", moves=CORDON)
    where = namespace(name)
    with drains.watched(rig.cluster, {where: row.size}) as watch:
        serving(rig, name, row)
        since, mark = monotonic(), rig.cluster.audit_mark()
        node = drains.nodes_of(rig, where, row.role)[0]
        drain = Drain(rig.cluster, node)
        try:
            for phase in ("Settling", "Replacing", "Leaving"):
                rig.wait(phase, lambda phase=phase: drains.phase(rig, where, row.role) == phase, 60, often=True)
                rig.restart(signal.SIGKILL)
                rig.wait_for_leader()
            seconds = drain.ended(LIMIT * PATIENCE)
        finally:
            drain.stop()
        rig.wait("the move has ended", lambda: not drains.moves_of(rig, where), 60)
        least = {role: watch.least(where, role, since) for role in (*row.counts, "router")}
    denied = sum(one.code == 429 for one in drains.evictions(rig, where, mark))
    lines = tables.setdefault("drains of nodes whose services move", [])
    told = {role: f"{groups} of 1" for role, groups in least.items()}
    lines.append(drains.line("operator-killed-in-each-phase", told, seconds, denied))
    assert set(least.values()) == {1}
    assert drains.numbers(rig, where, row.role) == {1}
    rig.clear(where)
    rig.delete("Namespace", "", where)


def test_drain_proceeds_without_an_operator_after_deletion_of_the_budgets(stage: Rig, rig: Rig) -> None:
    name, row = "alone", Row("engine", "cordon", size=1, decoders=0, spare=0)
    where = namespace(name)
    serving(rig, name, row)
    rig.stop(signal.SIGKILL)
    mark = rig.cluster.audit_mark()
    drain = Drain(rig.cluster, *drains.nodes_of(rig, where, "engine"))
    try:
        rig.wait("two denied evictions", lambda: [one.code for one in drains.evictions(rig, where, mark)] == [429] * 2)
        rig.cluster.kubectl("delete", "pdb", "-n", where, "-l", f"ome.io/inferenceservice={NAME}")
        drain.ended(60 * PATIENCE)
    finally:
        drain.stop()
        rig.start()
        rig.wait_for_leader()
    rig.clear(where)
    rig.delete("Namespace", "", where)
