"""Tests of the overview: services, waves, nodes with their groups and weights, and services that wait."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.cli.live.board import ClusterState
from ome_operator.core.observed.nodes import node, node_record
from ome_operator.core.reasons import RolloutStage, State
from ome_operator.describe import cluster, overview, rollout
from ome_operator.describe.actions import CommandBuilder
from ome_operator.describe.cluster import NodeUse
from ome_operator.describe.rollout import StageState
from ome_operator.describe.tree import Tree
from tests.support import console


@cache
def board() -> ClusterState:
    return console.fleet(hostile=False).seen()


@cache
def rows() -> list[overview.Row]:
    return overview.sort_rows(overview.row(tree, board().bodies[key]) for key, tree in board().trees.items())


def row(name: str) -> overview.Row:
    return next(found for found in rows() if found.name == name)


def test_services_are_sorted_by_worst_state() -> None:
    assert [found.state for found in rows()] == sorted((found.state for found in rows()), key=list(State).index)
    assert overview.count_states(rows())[State.BROKEN] == 2


@pytest.mark.parametrize(
    ("reason", "command"),
    [("LintErrors", "lint"), ("LintWarnings", "lint"), ("ClusterWarnings", "explain"), ("NoEffect", "")],
)
def test_row_with_important_advice_names_the_command_that_shows_it(reason: str, command: str) -> None:
    tree = next(tree for tree in board().trees.values() if tree.ready)
    told = {"type": "Advice", "status": "True", "reason": reason, "message": "x"}
    found = overview.row(tree, {"metadata": {}, "status": {"conditions": [told]}})
    assert (found.advice, found.advice_from if found.advice else "") == (reason if command else "", command)


def test_row_shows_progress_and_the_reason() -> None:
    kimi = row("kimi-k2-instruct")
    assert (kimi.reason, kimi.where, kimi.gpus, kimi.idle) == ("CrashLoopBackOff", "decode group 0 rank 7", 128, 96)
    assert kimi.roles == (("prefill", 1, 1), ("decode", 0, 1), ("router", 1, 1))
    rolling = row("qwen3-coder")
    assert len(rolling.revisions) == 2 and rolling.rollout.startswith("engine ") and rolling.reason == "Starting"
    assert row("llama-scout").reason == row("llama-scout").message == ""


def wave(**more: Any) -> dict[str, Any]:
    rollout = {**board().shared[0]["status"]["rollout"], **more}
    return {
        "kind": "ServingRuntime",
        "metadata": {"name": "rt", "namespace": "team", "generation": 3},
        "status": {"rollout": rollout},
    }


def test_finished_waves_are_omitted_and_stopped_ones_come_first() -> None:
    found = overview.active_waves(
        [wave(state="Complete"), wave(), wave(state="Stopped", failed=1), {"metadata": {}}], CommandBuilder()
    )
    assert [(each.state, each.failed) for each in found] == [(State.BROKEN, 1), (State.ROLLING, 0)]
    assert found[0].command == "ome status runtime rt -n team"


# --- nodes ----------------------------------------------------------------------------------------------------------


def test_nodes_have_their_groups_and_gpus() -> None:
    found = {each.name: each for each in cluster.node_rows(board().trees.values(), board().nodes, board().records)}
    seventh = found["h200-07"]
    assert (seventh.held, seventh.gpus, seventh.product) == (8, 8, "NVIDIA-H200")
    assert [(use.place, use.state, use.reason) for use in seventh.uses] == [
        ("decode 0 · rank 7", State.BROKEN, "CrashLoopBackOff")
    ]
    assert (found["h200-22"].word, found["h200-23"].word) == ("cordoned", "lost")
    assert list(found)[-1] == "cpu-00", "nodes without GPUs stand last"


def test_every_gpu_is_counted_once() -> None:
    found = cluster.totals(cluster.node_rows(board().trees.values(), board().nodes, board().records))
    assert found.gpus == found.serving + found.idle_held + found.free + found.away == 192
    assert (found.away, found.nodes_ready) == (16, 22)


def test_gpus_of_an_unready_group_count_as_held_despite_ready_ranks() -> None:
    """The GPUs of a group count as serving only if all of its ranks are ready. Reported: the page of nodes showed that all
    GPUs serve, and the page of services that a group with 96 GPUs does not.
    """
    found = cluster.totals(cluster.node_rows(board().trees.values(), board().nodes, board().records))
    groups = [group for tree in board().trees.values() for _, _, group in tree.groups()]
    placed = {True: 0, False: 0}
    for group in groups:
        placed[group.ready] += sum(rank.gpus for rank in group.ranks if rank.node)
    assert any(rank.ready for group in groups if not group.ready for rank in group.ranks), "a group with some ready ranks"
    assert (found.serving, found.idle_held) == (placed[True], placed[False])


def test_unreadable_nodes_are_derived_from_their_pods() -> None:
    found = cluster.node_rows(board().trees.values(), (), ())
    assert found[0].word == "not known" and found[0].gpus == -1 and found[0].uses
    assert cluster.totals(found).gpus == 0


@pytest.mark.parametrize(
    ("held", "part", "said"),
    [
        (console.held("m", "Updating", 0.5, speed=1_000_000_000), 0.5, "515 GB of 1.03 TB, 1000 MB/s, 9 min left"),
        (console.held("m", "Updating", 0.5, speed=0), 0.5, "515 GB of 1.03 TB"),
        (console.held("m", "Updating", 2.0), 1.0, "2.06 TB of 1.03 TB"),
        ({"kind": "BaseModel", "namespace": "team", "name": "m", "state": "Failed", "message": "no"}, 0.0, "0 B of 0 B: no"),
        (console.held("m"), 1.0, "1.03 TB"),
    ],
)
def test_node_row_shows_progress_of_weights(held: dict[str, Any], part: float, said: str) -> None:
    (found,) = cluster.node_rows((), (), [node_record(console.record("n", held))])
    assert (round(found.weights[0].part, 2), found.weights[0].said) == (part, said)


def test_model_row_summarizes_all_nodes() -> None:
    found = {each.model: each for each in cluster.models(board().records)}
    assert (found["kimi-k2-instruct"].word, found["kimi-k2-instruct"].state) == ("Failed", State.BROKEN)
    assert found["kimi-k2-instruct"].said.startswith("16/19 nodes, ") and found["minimax-m2"].part == 1


def test_equal_waiting_groups_are_reported_once() -> None:
    (wait,) = cluster.external_waits([(tree, board().bodies[key]) for key, tree in board().trees.items()], CommandBuilder())
    assert (wait.service, wait.place, wait.gpus) == ("minimax-m2", "engine group 0 ranks 0–1 and 1 group more", 4)
    assert wait.said[0] == "20 nodes: Insufficient nvidia.com/gpu"


def test_age_of_a_waiting_rollout_is_that_of_the_rolled_out_condition() -> None:
    """If a service is complete and its next revision waits, the age of the wait comes from the condition RolledOut, and not
    from the time since which the service is complete.
    """
    tree = next(tree for tree in board().trees.values() if tree.ready)
    told = [
        {"type": kind, "status": status, "reason": reason, "message": "m", "lastTransitionTime": f"2026-01-{day}T00:00:00Z"}
        for kind, status, reason, day in (
            ("Ready", "True", "Serving", "01"), ("Scaled", "True", "Complete", "02"),
            ("RolledOut", "False", "WaitingForRoom", "09"),
        )
    ]  # fmt: skip
    (wait,) = cluster.external_waits([(tree, {"status": {"conditions": told}})], CommandBuilder())
    assert wait.since == "2026-01-09T00:00:00Z"


def test_node_without_gpus_services_or_weights_has_no_row() -> None:
    assert cluster.node_rows((), [node(console.node("plain", gpus=0))], ()) == []


# --- rollouts ---------------------------------------------------------------------------------------------------------


def of_revisions(**ready: bool) -> Tree:
    """Return a service whose target revision is `new`, and in which these revisions have groups."""
    made = next(tree for tree in board().trees.values() if tree.ready)
    part = made.slices[-1]
    slices = tuple(
        replace(part, revision=name, roles=tuple(replace(role, ready=role.wanted if whole else 0) for role in part.roles))
        for name, whole in ready.items()
    )
    return replace(made, revision="new", slices=slices)


def steps(status: str, reason: str, tree: Tree) -> list[rollout.Stage]:
    conditions = [{"type": "RolledOut", "status": status, "reason": reason, "message": "why"}]
    return rollout.steps({"status": {"conditions": conditions}}, tree)


def rolled(status: str, reason: str) -> list[StageState]:
    return [step.progress for step in steps(status, reason, of_revisions(old=True, new=True))]


def test_readiness_step_has_not_begun_while_old_pods_terminate() -> None:
    """With the strategy `recreate`, the step in which groups become ready has not begun while old pods end, whichever
    revisions have groups at the moment.
    """
    for tree in (of_revisions(old=True), of_revisions(old=True, new=False), of_revisions()):
        found = steps("False", "RetiringOldSlice", tree)
        assert [(step.title, step.progress) for step in found[-2:]] == [
            (RolloutStage.ALONE, StageState.NOW),
            (RolloutStage.READY, StageState.LATER),
        ]


@pytest.mark.parametrize("reason", ["Progressing", "Paused", "ProgressDeadlineExceeded"])
def test_no_step_waits_for_the_old_slice_without_an_old_revision(reason: str) -> None:
    assert RolloutStage.ALONE not in [step.title for step in steps("False", reason, of_revisions(new=False))]
    assert RolloutStage.ALONE in [step.title for step in steps("False", reason, of_revisions(old=True, new=False))]


@pytest.mark.parametrize(
    ("reason", "at", "how"),
    [
        ("InvalidSpec", 0, StageState.STOPPED),
        ("Paused", 1, StageState.STOPPED),
        ("WaitingForModel", 2, StageState.NOW),
        ("DoesNotFit", 3, StageState.STOPPED),
        ("Checking", 4, StageState.NOW),
        ("DryRunRefused", 4, StageState.STOPPED),
        ("WaitingForTurn", 5, StageState.NOW),
        ("RollingOut", 6, StageState.NOW),
        ("ProgressDeadlineExceeded", 6, StageState.STOPPED),
        ("RetiringOldSlice", 7, StageState.NOW),
    ],
)
def test_rollout_step_is_derived_from_the_reason(reason: str, at: int, how: StageState) -> None:
    found = rolled("False", reason)
    assert found == [StageState.DONE] * at + [how] + [StageState.LATER] * (7 - at)


def test_completed_rollout_has_no_remaining_step() -> None:
    assert set(rolled("True", "Complete")) == {StageState.DONE}
    assert rollout.steps({}, of_revisions(new=True)) == []


@pytest.mark.parametrize(("status", "said"), [("True", "on 16 nodes"), ("False", "")])
def test_completed_step_stays_done_if_its_condition_changes_later(status: str, said: str) -> None:
    """A node that is lost after the weights were complete makes ModelReady False, but the step stays marked as done."""
    conditions = [
        {"type": "RolledOut", "status": "False", "reason": "Progressing", "message": "why"},
        {"type": "ModelReady", "status": status, "message": "on 16 nodes"},
    ]
    found = rollout.steps({"status": {"conditions": conditions}}, of_revisions(new=True))
    (step,) = (each for each in found if each.title == RolloutStage.WEIGHTS)
    assert (step.progress, step.said) == (StageState.DONE, said)


def test_gpus_of_a_ready_rank_count_as_serving_only_with_its_complete_group() -> None:
    """The GPUs of a ready rank count as serving only if its whole group is ready. So the squares of a node have the same
    colors as the bar above them, in which the GPUs of a group that is not ready do not count as serving.
    """
    ready = NodeUse("a", "a", "decode 0 · rank 1", 8, State.READY, "", serves=True)
    assert ready.gpu_state is State.READY
    assert ready._replace(serves=False).gpu_state is State.WAITING
    assert ready._replace(serves=False, state=State.BROKEN).gpu_state is State.BROKEN


def test_rejected_revisions_are_listed() -> None:
    body = {"status": {"rejected": [{"revision": "a", "reason": "ProgressDeadlineExceeded", "message": "m"}]}}
    assert list(rollout.rejected_revisions(body)) == [("a", "ProgressDeadlineExceeded: m")]
    shares = list(rollout.shares(board().trees["code", "qwen3-coder"]))
    assert [share.state for share in shares] == ["old", "wanted"] and keys.ROUTER in {part.role for part in shares[0].parts}
