"""Tests of moves of a complete service in the simulated cluster: which groups leave, what waits, and what is never
removed.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.core.observed.objects import Taint
from tests.support import parts
from tests.support.moving import PAIR, Fleet, Movable, said, serving
from tests.support.parts import change_deps
from tests.support.scheduler import GPU
from tests.support.shapes import Shape
from tests.support.simulator import TICK


@dataclass(frozen=True)
class Followed(Movable):
    """The simulated world of a service whose decode groups are scaled with the demand."""

    def service(self) -> InferenceService:
        made = super().service()
        demand = {"timeToFirstToken": "3s", "timeBetweenTokens": "50ms"}
        role = {"minReplicas": self.decoders, "maxReplicas": 9, "autoscaler": {"class": "Demand"}}
        spec = parts.service(engine={}, decoder=role, scalingPolicy={"demand": demand}).spec
        both: Any = made.spec.model_copy(update={"decoder": spec.decoder, "scaling_policy": spec.scaling_policy})
        return replace(made, spec=both)


def budgets(fleet: Fleet) -> set[int]:
    """Return the evictions that the disruption budgets allow."""
    found = fleet.world.children.values()
    return {one.manifest["spec"]["maxUnavailable"] for one in found if one.key[0] == "PodDisruptionBudget"}


@pytest.mark.parametrize("role", ["engine", "decoder"])
@pytest.mark.parametrize("size", [1, 2, 12])
@pytest.mark.parametrize("groups", [1, 3])
def test_group_leaves_its_node_when_the_replacement_serves(role: str, size: int, groups: int) -> None:
    shape = Movable(size=size, engines=groups, decoders=groups)
    fleet = serving(shape, spare=size)
    (gone, *_) = sorted(fleet.nodes_of(role, 0))
    fleet.taint(gone)
    fleet.until("moved", lambda: gone not in fleet.nodes_of(role) and not fleet.moves(), whole=True)
    assert fleet.whole()
    assert 0 not in {number for _, number in fleet.groups(role)}, "the replacement has another number"
    assert said(fleet) == ("", "")


def test_router_leaves_its_node_when_the_replacement_is_ready() -> None:
    fleet = serving(PAIR, spare=0)
    (gone,) = fleet.nodes_of("router")
    others = {pod.name: pod.uid for pod in fleet.world.pods.values() if pod.labels[keys.COMPONENT] != keys.ROUTER}
    fleet.change(gone, taints=(Taint("ToBeDeletedByClusterAutoscaler", "1", "NoSchedule"),))
    fleet.until("moved", lambda: gone not in fleet.nodes_of("router") and not fleet.moves().get("router"), whole=True)
    assert len(fleet.nodes_of("router")) == 1
    assert all(fleet.world.pods[name].uid == uid for name, uid in others.items()), "without a free node no engine moves"
    assert not any(keys.DELETION_COST in pod.notes for pod in fleet.world.pods.values() if not pod.deleting)


def test_groups_of_two_tainted_nodes_move_one_after_the_other() -> None:
    fleet = serving(Movable(size=2, engines=2, decoders=1), spare=2)
    first, second = (min(fleet.nodes_of("engine", number)) for number in (0, 1))
    fleet.taint(first)
    fleet.taint(second)
    fleet.until("the first moved", lambda: 0 not in {number for _, number in fleet.groups("engine")}, whole=True)
    assert said(fleet)[0] in ("Moving", "MovePending", "NoSpareNodes")
    fleet.until("stuck", lambda: said(fleet)[0] == "NoSpareNodes", whole=True)
    fleet.untaint(first)
    fleet.until("the second moved", lambda: second not in fleet.nodes_of("engine") and not fleet.moves(), whole=True)


def test_group_stays_without_spare_nodes_and_condition_names_missing_gpus() -> None:
    fleet = serving(PAIR, spare=1)
    gone = min(fleet.nodes_of("decoder", 0))
    fleet.taint(gone)
    fleet.until("asked", lambda: said(fleet)[0] == "NoSpareNodes")
    message = said(fleet)[1]
    for _ in range(20):  # pods are bound to the spare node, and release it
        assert said(fleet) == ("NoSpareNodes", message)
        fleet.run()
    assert f"decode group 0 leaves node {gone} (taint karpenter.sh/disrupted)" in message
    assert "waits for free nodes with 2 GPUs; at 2026-01-01T" in message
    assert "the group stays" in message
    fleet.until("timed out", lambda: said(fleet)[0] == "MoveTimedOut", whole=True)
    assert f"ome move --now {gone}" in said(fleet)[1]
    assert fleet.moves()["decoder"]["phase"] == "Staying"
    fleet.until("nothing waits for nodes", lambda: len(fleet.groups("decoder")) == 1, whole=True)
    assert fleet.moves()["decoder"]["phase"] == "Staying"
    fleet.until("tried again", lambda: fleet.moves()["decoder"]["phase"] == "Replacing", whole=True)
    fleet.untaint(gone)
    fleet.until("the node is back", lambda: not fleet.moves(), whole=True)


def test_group_leaves_without_replacement_if_spec_moves_allows_it() -> None:
    fleet = serving(replace(PAIR, moves=(("timeout", "5m"), ("withoutReplacement", "Go"))), spare=1)
    gone = min(fleet.nodes_of("decoder", 0))
    fleet.taint(gone)
    before = fleet.world.now
    fleet.until("waits", lambda: said(fleet)[0] == "NoSpareNodes", whole=True)
    assert "the group leaves without it" in said(fleet)[1]
    fleet.until("goes", lambda: fleet.moves()["decoder"].get("withoutReplacement", False))
    assert fleet.world.now - before >= timedelta(minutes=5)
    fleet.until("gone", lambda: gone not in fleet.nodes_of("decoder"))
    fleet.untaint(gone)
    fleet.until("whole again", lambda: fleet.whole() and not fleet.moves())


def test_now_does_not_wait_for_a_replacement() -> None:
    fleet = serving(PAIR, spare=2)
    gone = min(fleet.nodes_of("decoder", 0))
    fleet.change(gone, ready=False, move=f"{fleet.world.now.isoformat()} now")
    fleet.run(2)
    assert fleet.moves()["decoder"] | {"since": ""} == {
        "component": "decoder", "revision": fleet.world.service.status["revision"], "group": 0, "phase": "Leaving",
        "since": "", "node": gone, "cause": "ome move", "withoutReplacement": True,
    }  # fmt: skip
    fleet.until("gone", lambda: gone not in fleet.nodes_of("decoder") and fleet.whole() and not fleet.moves())


@pytest.mark.parametrize("asked", ["node", "service"])
def test_group_named_by_ome_move_leaves_at_once_and_only_once(asked: str) -> None:
    fleet = serving(PAIR, spare=2)
    fleet.run(3)
    gone = fleet.nodes_of("engine", 0)
    if asked == "node":
        fleet.change(min(gone), ready=False, move=fleet.world.now.isoformat())
    else:
        note = {keys.MOVE: f"engine/0 {fleet.world.now.isoformat()}, decoder/7 {fleet.world.now.isoformat()}"}
        fleet.world.service = replace(fleet.world.service, annotations=note)
    fleet.run()
    assert fleet.moves()["engine"]["phase"] == "Replacing"
    fleet.until("moved", lambda: not fleet.moves() and 0 not in {number for _, number in fleet.groups("engine")}, whole=True)
    uids = {pod.uid for pod in fleet.world.pods.values()}
    fleet.run(60)
    assert {pod.uid for pod in fleet.world.pods.values()} == uids, "the request is older than the pods of the new group"


@pytest.mark.parametrize("asked", ["node", "service"])
def test_replacement_is_never_placed_on_nodes_that_ome_move_names(asked: str) -> None:
    """The replacement of a group is never placed on the nodes that `ome move` has it leave. These nodes still accept pods,
    and two pods fit on each node.
    """
    fleet = serving(Movable(size=2, engines=1, router=False), spare=2)
    for name in fleet.world.deps.nodes:
        fleet.change(name, room=((GPU, 2), ("pods", 110)))
    fleet.run(2)
    gone = fleet.nodes_of("engine", 0) if asked == "service" else {min(fleet.nodes_of("engine", 0))}
    if asked == "node":
        fleet.change(*gone, move=fleet.world.now.isoformat())
    else:
        note = {keys.MOVE: f"engine/0 {fleet.world.now.isoformat()}"}
        fleet.world.service = replace(fleet.world.service, annotations=note)
    fleet.until("moved", lambda: not fleet.moves() and 0 not in {number for _, number in fleet.groups("engine")}, whole=True)
    assert gone.isdisjoint(fleet.nodes_of("engine"))


def test_cordoned_node_is_left_only_with_on_cordon() -> None:
    for moves, phase in ((), ""), ((("onCordon", True),), "Replacing"):
        fleet = serving(replace(PAIR, moves=moves), spare=2)
        fleet.change(min(fleet.nodes_of("engine", 0)), ready=False)
        fleet.run(4)
        assert fleet.moves().get("engine", {}).get("phase", "") == phase


@pytest.mark.parametrize("key", ["node.kubernetes.io/memory-pressure", "node.cloudprovider.kubernetes.io/shutdown"])
def test_node_state_taints_cause_no_move(key: str) -> None:
    fleet = serving(PAIR, spare=2)
    fleet.change(min(fleet.nodes_of("engine", 0)), taints=(Taint(key, "", "NoSchedule"),))
    fleet.run(5)
    assert not fleet.moves()


def test_disruption_budget_allows_no_eviction_with_spec_moves_and_one_without() -> None:
    fleet = serving(PAIR, spare=0)
    assert budgets(fleet) == {0}
    fleet.world.edit(Shape(size=2, engines=1, decoders=1).service())
    fleet.run(3)
    assert budgets(fleet) == {1}


def test_no_group_moves_if_the_operator_cannot_read_nodes() -> None:
    fleet = serving(PAIR, spare=2)
    fleet.world.deps = change_deps(fleet.world.deps, sees_cluster=False)
    fleet.taint(min(fleet.nodes_of("engine", 0)))
    fleet.run(5)
    assert budgets(fleet) == {1}
    assert not fleet.moves()
    assert "spec.moves has no effect" in fleet.world.condition("Advice")["message"]


def test_taint_that_toggles_every_five_seconds_causes_no_move() -> None:
    fleet = serving(PAIR, spare=2)
    gone, uids = min(fleet.nodes_of("decoder", 0)), {pod.uid for pod in fleet.world.pods.values()}
    for turn in range(120):
        (fleet.taint if turn % 2 else fleet.untaint)(gone)
        fleet.world.now += timedelta(seconds=5)
        fleet.world.carry_out(fleet.world.sync())
        assert fleet.moves().get("decoder", {}).get("phase", "Settling") == "Settling"
    assert {pod.uid for pod in fleet.world.pods.values()} == uids


def test_slowly_toggling_taint_causes_one_start_per_five_minutes() -> None:
    fleet = serving(PAIR, spare=2)
    fleet.world.healthy = lambda pod: False if pod.group else fleet.is_placed(pod)  # no replacement serves
    gone, starts = min(fleet.nodes_of("decoder", 0)), []
    begun = False
    for turn in range(240):
        (fleet.taint if turn % 8 < 4 else fleet.untaint)(gone)
        fleet.run()
        now = fleet.moves().get("decoder", {}).get("phase") == "Replacing"
        starts += [turn] if now and not begun else []
        begun = now
        assert fleet.whole()
    assert len(starts) > 2
    assert min(after - before for before, after in pairwise(starts)) * TICK >= 300


def test_group_stays_if_its_node_recovers_before_the_move() -> None:
    fleet = serving(PAIR, spare=2)
    gone = min(fleet.nodes_of("decoder", 0))
    group = {pod.uid for pod in fleet.world.pods.values() if pod.labels[keys.COMPONENT] == "decoder"}
    fleet.world.healthy = lambda pod: False if pod.group else fleet.is_placed(pod)
    fleet.taint(gone)
    fleet.until("begun", lambda: len(fleet.groups("decoder")) == 2, whole=True)
    fleet.untaint(gone)
    fleet.until("returned", lambda: fleet.moves()["decoder"]["phase"] == "Returned", whole=True)
    fleet.until("over", lambda: not fleet.moves() and len(fleet.groups("decoder")) == 1, whole=True)
    assert {pod.uid for pod in fleet.world.pods.values() if pod.labels[keys.COMPONENT] == "decoder"} == group


def test_a_rollout_comes_first_and_replaces_the_group_anyway() -> None:
    shape = replace(PAIR, strategy="surge")
    fleet = serving(shape, spare=4)
    gone = min(fleet.nodes_of("decoder", 0))
    fleet.taint(gone)
    fleet.until("begun", lambda: fleet.moves().get("decoder", {}).get("phase") == "Replacing")
    after = replace(shape, image="b")
    fleet.world.edit(after.service(), replace(after.deps(), nodes=fleet.world.deps.nodes, policy=fleet.world.deps.policy))
    fleet.until("rolled out", lambda: fleet.world.condition("RolledOut")["status"] == "True", passes=800)
    fleet.until("left", lambda: gone not in fleet.nodes_of("decoder") and not fleet.moves(), whole=True)


def test_paused_rollout_holds_a_move_before_and_after_its_start() -> None:
    fleet = serving(PAIR, spare=2)
    fleet.world.edit(replace(PAIR, paused=True).service())
    gone = min(fleet.nodes_of("decoder", 0))
    fleet.taint(gone)
    fleet.run(30)
    assert fleet.moves()["decoder"]["phase"] == "Waiting"
    assert "the end of the pause (spec.rollout.paused)" in said(fleet)[1]
    fleet.world.edit(PAIR.service())
    fleet.until("begun", lambda: fleet.moves()["decoder"]["phase"] == "Replacing", whole=True)
    fleet.world.edit(replace(PAIR, paused=True).service())
    fleet.run(30)
    assert fleet.moves()["decoder"]["phase"] == "Replacing"
    assert len(fleet.groups("decoder")) == 2
    fleet.world.edit(PAIR.service())
    fleet.until("moved", lambda: not fleet.moves() and gone not in fleet.nodes_of("decoder"), whole=True)


@pytest.mark.parametrize("phase", ["Settling", "Replacing", "Leaving"])
def test_a_freeze_holds_every_phase(phase: str) -> None:
    fleet = serving(Movable(size=2, engines=2, decoders=1), spare=2)
    gone = min(fleet.nodes_of("engine", 0))
    fleet.taint(gone)
    fleet.until("reached", lambda: fleet.moves().get("engine", {}).get("phase") == phase, whole=True)
    fleet.world.service = replace(fleet.world.service, annotations={keys.FREEZE: "upgrade"})
    stored = fleet.moves()
    fleet.run(40)
    assert fleet.moves() == stored
    assert said(fleet)[0] == "Frozen"
    assert fleet.whole(), "a leader that was drained serves again"
    fleet.world.service = replace(fleet.world.service, annotations={})
    fleet.until("moved", lambda: not fleet.moves() and gone not in fleet.nodes_of("engine"), whole=True)


def test_a_group_that_is_not_ready_comes_first() -> None:
    fleet = serving(Movable(size=1, engines=3, router=False), spare=2)
    sick = {name for name, pod in fleet.world.pods.items() if pod.group == 2}
    fleet.world.healthy = lambda pod: pod.group != 2 and fleet.is_placed(pod)
    for name in sick:
        fleet.world.lose(name)
    fleet.taint(min(fleet.nodes_of("engine", 0)))
    fleet.run(20)
    assert fleet.moves()["engine"]["phase"] == "Waiting"
    assert "2 of 3 ready" in said(fleet)[1]
    fleet.world.healthy = fleet.is_placed
    fleet.until(
        "moved", lambda: not fleet.moves() and fleet.whole() and 0 not in {each for _, each in fleet.groups("engine")}
    )


def test_scale_down_during_a_move_removes_the_group_on_the_leaving_node() -> None:
    shape = Movable(size=1, engines=3, router=False)
    fleet = serving(shape, spare=1)
    gone = min(fleet.nodes_of("engine", 0))
    fleet.world.healthy = lambda pod: pod.group < 3 and fleet.is_placed(pod)
    fleet.taint(gone)
    fleet.until("begun", lambda: len(fleet.groups("engine")) == 4)
    fleet.shape = replace(shape, engines=2)
    fleet.world.edit(fleet.shape.service())
    for _ in range(60):
        fleet.world.run(1)
    assert {number for _, number in fleet.groups("engine")} == {1, 2}
    assert not fleet.moves()


def test_demand_removes_no_group_during_a_move() -> None:
    fleet = serving(Followed(size=1, engines=1, decoders=2), spare=1)
    (gone, *_) = sorted(fleet.nodes_of("decoder", 0))
    fleet.taint(gone)
    phases = set[str]()
    while gone in fleet.nodes_of("decoder") or fleet.moves():
        fleet.run()
        plan = fleet.world.sync()
        now = {one["phase"] for one in plan.status.get("moves", ()) if one["component"] == "decoder"}
        assert plan.demand is not None
        assert (plan.demand.fleet.busy == "a group leaves its node") == bool(now & {"Replacing", "Leaving"})
        phases |= now
    assert phases >= {"Replacing", "Leaving"}
