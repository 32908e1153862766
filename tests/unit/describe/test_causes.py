"""Tests of the reasons why a service is not ready, of its state in one word, and of the suggested commands."""

from functools import cache

import pytest

from ome_operator.cli.live.board import ClusterState
from ome_operator.core.reasons import Reason, State
from ome_operator.describe import states
from ome_operator.describe.actions import CommandBuilder, of_service
from ome_operator.describe.causes import Cause, causes
from ome_operator.describe.words import MISSING
from tests.support import console


@cache
def board() -> ClusterState:
    return console.fleet().seen()


def of(namespace: str, name: str) -> list[Cause]:
    body = board().bodies[namespace, name]
    return causes(board().trees[namespace, name], body["status"]["conditions"], CommandBuilder(("--context", "prod")))


def test_a_chain_leads_from_the_service_to_the_reason() -> None:
    first, *rest = of("kimi-k2-instruct", "kimi-k2-instruct")
    assert [(link.kind, link.name) for link in first.links[2:]] == [
        ("role", "decode"),
        ("group", "0"),
        ("rank", "7"),
        ("node", "h200-07"),
        ("reason", "CrashLoopBackOff"),
    ]
    assert first.place == "decode group 0 rank 7" and first.links[4].said == "6 restarts"
    assert first.command == (
        "ome logs kimi-k2-instruct -n kimi-k2-instruct --role decode --group 0 --previous --context prod"
    )
    assert [cause.links[1].name for cause in rest] == ["Recovered"]


def test_equal_ranks_of_a_group_are_one_cause_chain() -> None:
    found = of("research", "minimax-m2")
    assert [cause.place for cause in found if cause.pods] == ["engine group 0 ranks 0–1", "engine group 1 ranks 0–1"]
    assert found[0].lacks[0] == "20 nodes: Insufficient nvidia.com/gpu" and found[0].links[-2].name == "none yet"


def test_slice_being_removed_has_no_missing_ranks() -> None:
    tree = board().trees["code", "qwen3-coder"]
    assert {part.state for part in tree.slices} == {"old", "wanted"}
    assert all(cause.links[1].said == "wanted" for cause in of("code", "qwen3-coder"))


def test_healthy_service_has_no_causes() -> None:
    assert of("chat", "llama-scout") == []


@pytest.mark.parametrize(
    ("which", "state"),
    [
        (("kimi-k2-instruct", "kimi-k2-instruct"), State.BROKEN),
        (("research", "glm-4-6"), State.BROKEN),
        (("research", "minimax-m2"), State.WAITING),
        (("code", "qwen3-coder"), State.ROLLING),
        (("prod", "deepseek-v3"), State.HELD),
        (("chat", "gpt-oss-120b"), State.READY),
    ],
)
def test_state_of_a_service_is_one_word(which: tuple[str, str], state: State) -> None:
    assert states.service_state(board().trees[which], board().bodies[which]["status"]["conditions"]) is state


def test_unknown_reason_counts_as_broken() -> None:
    assert states.for_reason("SomethingNew") is State.BROKEN
    assert (states.for_reason(Reason.UNSCHEDULABLE), states.for_reason(MISSING)) == (State.WAITING, State.STARTING)
    assert states.for_reason(Reason.SCALED_TO_ZERO) is State.OFF


def test_commands_use_the_same_cluster_and_are_quoted() -> None:
    shell = CommandBuilder(("--context", "a b"))
    assert shell("ome", "status", "x; reboot") == "ome status 'x; reboot' --context 'a b'"
    assert shell.step("free GPUs: kubectl get nodes -L a/b") == ("free GPUs", "kubectl get nodes -L a/b --context 'a b'")
    assert shell.step("wait for its grace period") == ("wait for its grace period", "")
    assert shell.step("where nodes come on demand: kubectl get nodes")[0] == "where nodes come on demand"
    assert shell.step("ome logs x -n y") == ("", "ome logs x -n y --context 'a b'")


@pytest.mark.parametrize("paused", [True, False])
@pytest.mark.parametrize("frozen", [True, False])
def test_suggested_actions_depend_on_the_present_state(paused: bool, frozen: bool) -> None:
    tree = board().trees["chat", "llama-scout"]
    found = of_service(tree, CommandBuilder(), paused=paused, frozen=frozen, rejected=paused, back="abc" if frozen else "")
    words = {action.command.split()[1] for action in found if action.edits and action.command.startswith("ome ")}
    wanted = {"resume" if paused else "pause", "thaw" if frozen else "freeze", "restart"}
    assert words == wanted | ({"retry"} if paused else set()) | ({"undo"} if frozen else set())
