"""Tests of which failures of a group's containers may be due to a node."""

from dataclasses import dataclass
from typing import Any

import pytest

from ome_operator.core.badnodes.record import Role, format_time
from ome_operator.core.badnodes.signs import ROUND, ready_groups, signs
from ome_operator.core.observed.objects import Pod, Termination, Times
from ome_operator.core.preflight.results import OWN, CheckResult, PreflightFinding

T = 1_800_000_000.0
ROLE = Role("ns", "svc", "engine", "r1")
KEY = ("engine", "r1", 0)


@dataclass
class Made:
    """A rank of group 0 that runs on a node of its own."""

    rank: int
    ended: float | None = None
    reason: str = "Error"
    code: int | None = 1
    created: float = T - 1000
    more: dict[str, Any] | None = None

    def pod(self) -> Pod:
        """Return the rank's pod as the operator sees it."""
        ending = None if self.ended is None else Termination("e", self.reason, self.code, "", format_time(self.ended))
        facts: dict[str, Any] = {
            "namespace": "ns", "name": f"p{self.rank}", "uid": f"u{self.rank}", "version": 1, "service": "svc",
            "component": "engine", "revision": "r1", "group": 0, "rank": self.rank, "workload": "w",
            "node": f"n{self.rank}", "ready": self.ended is None, "deleting": False, "grace": 0, "restarts": 0,
            "reason": "", "message": "", "ending": ending, "times": Times(created=format_time(self.created)),
        }  # fmt: skip
        return Pod(**{**facts, **(self.more or {})})


def found(*made: Made, counted: float = 0.0, now: float = T + 100, groups: tuple[dict[str, Any], ...] = ()) -> list[str]:
    """Return the nodes to which the failures of these ranks are attributed."""
    return [sign.node for sign in signs([one.pod() for one in made], groups, {}, counted, now)[0]]


def test_only_the_rank_that_ended_first_counts() -> None:
    assert found(Made(0, T + 5), Made(1, T), Made(2, T + 9)) == ["n1"]
    assert found(Made(0, T + 5), Made(1), Made(2)) == ["n0"]
    assert found(Made(0), Made(1)) == []


def test_failure_of_one_group_is_counted_once() -> None:
    pods = [Made(0, T + 5).pod(), Made(1, T).pod()]
    new, counted = signs(pods, (), {}, 0.0, T + 20)
    assert [(sign.node, sign.role, sign.kind, sign.time) for sign in new] == [("n1", ROLE, "Error", T)]
    assert signs(pods, (), counted, 0.0, T + 40)[0] == []
    again = [Made(0, T + 5).pod(), Made(1, T + ROUND + 30).pod()]
    assert [sign.node for sign in signs(again, (), counted, 0.0, T + 200)[0]] == ["n1"]


def test_a_restarted_operator_does_not_count_again() -> None:
    assert found(Made(0, T), counted=T) == []
    assert found(Made(0, T + ROUND + 1), counted=T) == ["n0"]


@pytest.mark.parametrize(
    ("reason", "code", "counts"),
    [
        ("OOMKilled", 137, True),
        ("Completed", 0, True),
        ("ContainerStatusUnknown", 137, True),
        ("UnexpectedAdmissionError", None, True),
        ("Evicted", None, False),
        ("EvictionByEvictionAPI", None, False),
        ("PreemptionByScheduler", None, False),
        ("DeletionByTaintManager", None, False),
        ("TerminationByKubelet", None, False),
    ],
)
def test_evictions_are_not_counted_as_failures(reason: str, code: int | None, counts: bool) -> None:
    assert found(Made(0, T, reason, code)) == (["n0"] if counts else [])


def test_exits_after_deletion_of_a_pod_are_not_counted_as_failures() -> None:
    gone = Made(1, T, more={"deleting": True})
    assert found(Made(0, T + 1), gone) == []
    _, counted = signs([Made(0, T + 1).pod(), gone.pod()], (), {}, 0.0, T + 2)
    left = [Made(0, T + 30).pod(), Made(1, created=T + 5).pod()]
    assert signs(left, (), counted, 0.0, T + 40)[0] == [], "its engine notices the loss later"


def test_exit_of_a_rank_after_replacement_of_another_is_not_counted() -> None:
    assert found(Made(0, T + 20), Made(1, created=T)) == []
    assert found(Made(0, T + 20), Made(1, T + 15, created=T)) == ["n1"], "the new rank failed by itself"


def test_a_new_group_that_ends_at_once_counts() -> None:
    assert found(Made(0, T + 1, created=T), Made(1, created=T), counted=T - 1) == ["n0"]


@pytest.mark.parametrize("reason", ["NotReady", "Silent", "NotReadyInTime"])
def test_a_hang_counts_for_every_node_of_the_group(reason: str) -> None:
    failure = {"reason": reason, "time": format_time(T), "message": "it hangs"}
    group = {"component": "engine", "revision": "r1", "index": 0, "phase": "Recycling", "lastFailure": failure}
    assert found(Made(0), Made(1), groups=(group,)) == ["n0", "n1"]
    assert found(Made(0), Made(1), groups=({**group, "phase": "Ready"},)) == []
    assert found(Made(0), groups=({**group, "lastFailure": {**failure, "reason": "PodDeleted"}},)) == []
    new, counted = signs([Made(0).pod()], (group,), {}, 0.0, T + 1)
    assert len(new) == 1
    assert signs([Made(0).pod()], (group,), counted, 0.0, T + 2)[0] == []


def test_held_preflight_is_counted_every_minute_for_the_rank_it_blames() -> None:
    mine = CheckResult((PreflightFinding("links", OWN, "a port is DOWN", ""),), True)
    other = CheckResult((PreflightFinding("reach", 1, "it does not answer", ""),), True)
    assert found(Made(0, more={"preflight": mine}), Made(1)) == ["n0"]
    assert found(Made(0, more={"preflight": other}), Made(1)) == ["n1"]
    assert found(Made(0, more={"preflight": mine._replace(held=False)}), Made(1)) == [], "the engine started"
    pods = [Made(0, more={"preflight": mine}).pod()]
    _, counted = signs(pods, (), {}, 0.0, T)
    assert signs(pods, (), counted, 0.0, T + ROUND)[0] == []
    assert len(signs(pods, (), counted, 0.0, T + ROUND + 1)[0]) == 1


def test_routers_and_pods_without_a_group_are_left_out() -> None:
    assert found(Made(0, T, more={"component": "router"})) == []
    assert found(Made(0, T, more={"group": -1})) == []
    assert found(Made(0, T, more={"node": ""})) == []


def test_group_counts_as_ready_if_leader_is_ready_and_no_pod_terminates() -> None:
    leader, worker = Made(0, more={"times": Times(ready=format_time(T))}), Made(1, more={"ready": False})
    (group,) = ready_groups([leader.pod(), worker.pod()])
    assert group == (ROLE, {"n0", "n1"}, T)
    assert not list(ready_groups([leader.pod(), Made(1, more={"deleting": True}).pod()]))
    assert not list(ready_groups([Made(0, T).pod(), Made(1).pod()]))
    assert not list(ready_groups([Made(1).pod()]))
