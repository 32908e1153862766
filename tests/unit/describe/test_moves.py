"""Tests of the moves under way that `ome nodes`, `ome status` and the page of nodes show."""

from datetime import UTC, datetime
from typing import Any

import pytest

from ome_operator.api import InferenceService
from ome_operator.cli.live.board import ClusterState, node_rows
from ome_operator.core.moves.messages import MoveFacts, condition
from ome_operator.core.moves.moving import policy
from ome_operator.core.moves.record import Phase, parse_moves
from ome_operator.core.moves.state_machine import WaitCondition
from ome_operator.describe.cluster import FREE, NodeRow
from ome_operator.describe.moves import MoveView, moves_under_way
from ome_operator.describe.node_table import node_table
from tests.support import console

KEY = "chat", "llama-scout"
"""A service with two groups of two pods, each group on a node of its own or on two."""
NOW = datetime(2026, 1, 1, 10, tzinfo=UTC)
SINCE = "2026-01-01T09:50:00Z"


def board(spec: dict[str, Any] | None = None, conditions: tuple[Any, ...] = (), **move: Any) -> ClusterState:
    """Return a cluster in which engine group 0 of the service is replaced by group 1, unless `move` has other fields."""
    cluster = console.fleet(kimi=False, hostile=False)
    body = next(each for each in cluster.objects["InferenceService"] if each["metadata"]["name"] == KEY[1])
    revision = body["status"]["revision"].rpartition("→")[2]
    entry = {"component": "engine", "revision": revision, "group": 0, "phase": "Replacing", "since": SINCE}
    entry |= {"node": "h200-19", "cause": "taint karpenter.sh/disrupted", "replacement": "1"}
    body["spec"]["moves"] = {} if spec is None else spec
    body["status"]["moves"] = [{**entry, **move}]
    body["status"]["conditions"] += conditions
    return cluster.seen()


def view(found: ClusterState) -> MoveView:
    """Return the only move of the service."""
    (move,) = moves_under_way(found.trees[KEY], found.bodies[KEY], NOW)
    return move


def nodes_of(found: ClusterState, group: int) -> set[str]:
    """Return the nodes of the ranks of a group."""
    return {rank.node for _, role, each in found.trees[KEY].groups() if role.component == "engine" and each.group == group
            for rank in each.ranks}  # fmt: skip


@pytest.mark.parametrize("phase", Phase)
def test_every_move_phase_states_what_it_waits_for_and_until_when(phase: Phase) -> None:
    found = board({"timeout": "20m"}, phase=str(phase), replacement="")
    if phase is Phase.RETURNED:
        assert moves_under_way(found.trees[KEY], found.bodies[KEY], NOW) == []
        return
    said, until = {
        Phase.SETTLING: ("the move begins if its cause lasts until 2026-01-01T09:50:15Z", "2026-01-01T09:50:15Z"),
        Phase.WAITING: (
            "the move waits for the end of a rollout or a pause, or until all groups of the role are ready", ""
        ),
        Phase.REPLACING: (
            "its replacement waits for free nodes; at 2026-01-01T10:10:00Z the group stays", "2026-01-01T10:10:00Z"
        ),
        Phase.LEAVING: ("it is removed when its requests have ended", ""),
        Phase.STAYING: (
            "no replacement became ready, so the group stays and serves; the move is tried again at 2026-01-01T10:10:00Z",
            "2026-01-01T10:10:00Z",
        ),
    }[phase]  # fmt: skip
    move = view(found)
    assert (move.phase, move.said, move.until) == (phase, said, until)
    assert (move.namespace, move.service, move.place, move.since) == (*KEY, "engine 0", SINCE)


def test_placed_replacement_has_no_deadline() -> None:
    found = board()
    move = view(found)
    assert set(move.nodes) == nodes_of(found, 0) and set(move.replacement_nodes) == nodes_of(found, 1)
    assert (move.replacement, move.until) == ("engine 1", "")
    assert move.said.startswith("its replacement, engine 1, is starting on h200-")


def test_move_text_states_the_outcome_of_the_wait_and_a_freeze() -> None:
    goes = view(board({"withoutReplacement": "Go"}, replacement="7"))
    assert goes.said == (
        "its replacement, engine 7, waits for free nodes; at 2026-01-01T10:20:00Z the group leaves without it"
    )
    frozen = {"type": "Frozen", "status": "True", "reason": "Frozen", "message": "x"}
    held = view(board(conditions=(frozen,), phase="Settling"))
    assert (held.said, held.until) == ("nothing moves while the service is frozen", "")


@pytest.mark.parametrize(
    "move",
    [
        {"group": "x"}, {"group": 99, "node": None}, {"since": "never"}, {"component": "router", "pod": "gone"},
        {"component": "router", "pod": None}, {"phase": "Odd"}, {"replacement": "x"}, {"revision": None},
    ],
)  # fmt: skip
def test_invalid_move_entries_do_not_break_node_table(move: dict[str, Any]) -> None:
    assert node_table(node_rows(board(**move)))


def rows(found: ClusterState) -> dict[str, NodeRow]:
    return {row.name: row for row in node_rows(found)}


def test_nodes_name_leaving_and_arriving_groups() -> None:
    found = board()
    leaves, comes = nodes_of(found, 0), nodes_of(found, 1)
    shown = rows(found)
    assert {name for name, row in shown.items() if row.leaving} == leaves
    assert {name for name, row in shown.items() if row.coming} == comes
    said = {(use.group, use.moves) for row in shown.values() for use in row.uses if use.moves}
    assert said == {("engine 0", "leaves"), ("engine 1", "replaces engine 0")}
    text = node_table([*shown.values()])
    assert "engine 0 · ranks 0–1 (leaves)" in text and "engine 1 · ranks 0–1 (replaces engine 0)" in text
    sentence = f"{view(found).sentence}.\n"
    assert sentence.startswith("chat/llama-scout engine 0 leaves h200-") and text.count(sentence) == 1
    assert "taint karpenter.sh/disrupted" in sentence and ", Replacing: its replacement" in sentence
    assert text.rstrip().endswith(FREE)


def test_moving_router_is_found_by_its_pod() -> None:
    known = board()
    (pod, *_) = [
        rank.pod for _, role, each in known.trees[KEY].groups() if role.component == "router" for rank in each.ranks
    ]
    found = board(component="router", pod=pod, replacement="", phase="Leaving", node="cpu-00")
    move = view(found)
    assert (move.place, move.nodes) == (f"router {pod}", ("cpu-00",))
    said = [use.moves for use in rows(found)["cpu-00"].uses if (use.namespace, use.service) == KEY]
    assert said == ["leaves"]


def test_the_tree_of_a_service_names_moving_groups() -> None:
    notes = {each.group: each.note for _, role, each in board().trees[KEY].groups() if role.component == "engine"}
    assert notes == {0: "leaves node h200-19 (taint karpenter.sh/disrupted): Replacing", 1: "replaces group 0"}
    assert not any(each.note for _, _, each in board(phase="Returned").trees[KEY].groups())


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.RETURNED])
def test_commands_use_the_sentence_of_the_moved_condition(phase: Phase) -> None:
    """The commands describe a move with the sentence of the condition Moved, which adds the number of GPUs and what the move
    waits for.
    """
    found = board({"timeout": "20m"}, phase=str(phase), replacement="")
    (move,) = parse_moves(found.bodies[KEY]["status"]).values()
    service = InferenceService.parse(found.bodies[KEY])
    assert isinstance(service, InferenceService)
    facts = MoveFacts("engine", lacks_nodes=True, gpus=0, unready="", more=0)
    first = WaitCondition("the end of a rollout or a pause, or until all groups of the role are ready")
    told = condition({move: facts}, policy(service), first, NOW)
    assert told is not None
    assert view(found).said.replace("free nodes", "a node") in told.message
