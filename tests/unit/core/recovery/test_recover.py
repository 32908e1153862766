"""Tests of a pass over all groups of a service with a simulated cluster: what is announced, deleted, forced and reported."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ome_operator.core.observed.objects import Node, Observed, Pod, Termination
from ome_operator.core.reconcile.plan import NodeLost, Plan, fingerprint
from ome_operator.core.reconcile.sync import sync
from ome_operator.quantity import rfc3339
from tests.support import parts
from tests.support.selectors import matches
from tests.support.shapes import Shape
from tests.support.simulator import World

NODES = {name: Node(name, 1, {}, True, 8) for name in ("n0", "n1")}


def settled(shape: Shape, **lifecycle: Any) -> World:
    """Return a service on nodes that has become ready."""
    service = parts.service(engine={"minReplicas": shape.engines, "lifecycle": lifecycle}, router={})
    world = World(service, replace(shape.deps(), nodes=NODES), 3)
    world.settle()
    return world


def changed(world: World, name: str, **fields: Any) -> Observed:
    """Return the observed objects with these fields of one pod changed."""
    observed = world.observed()
    pods = tuple(pod._replace(**fields) if pod.name.endswith(name) else pod for pod in observed.pods)
    return replace(observed, pods=pods)


def go(world: World, observed: Observed, later: float = 0.0) -> Plan:
    """Run a reconciliation with these observed facts, and store its status in the world."""
    plan = sync(world.service, world.deps, observed, world.now + timedelta(seconds=later))
    world.service = replace(world.service, status=plan.status)
    return plan


def recovered(plan: Plan) -> tuple[str, str, str]:
    """Return the status, the reason and the message of the condition Recovered."""
    one = next(one for one in plan.status["conditions"] if one["type"] == "Recovered")
    return one["status"], one["reason"], one["message"]


def test_service_without_failures_has_no_recovered_condition() -> None:
    world = settled(Shape(size=2, engines=2))
    assert not world.condition("Recovered")
    assert [one["phase"] for one in world.service.status["groups"]] == ["Ready", "Ready"]


def test_recycle_is_stored_in_status_before_pods_are_deleted() -> None:
    world = settled(Shape(size=2, engines=2))
    ended = Termination("ome-container", "OOMKilled", 137, "CUDA\nOutOfMemoryError: no", rfc3339(world.now))
    broken = changed(world, "-1-w-1", uid="newer-uid", ending=ended)
    first = go(world, broken)
    assert not first.recycle and first.urgent and first.requeue_after is not None and first.requeue_after < 1
    assert [one.reason for one in first.events] == ["GroupRecycled"]
    assert recovered(first)[:2] == ("False", "Recycling")
    second = go(world, broken)
    (recycle,) = second.recycle
    (delete,) = recycle.delete
    assert (delete.name[-4:], delete.grace) == ("-1-0", 1), "the leader of the recorded start"
    assert len(recycle.pods) == 2 and not second.events
    assert go(world, broken).recycle == (recycle,), "until the pod is gone"


@pytest.mark.parametrize("group", range(3))
@pytest.mark.parametrize("rank", range(3))
def test_recycle_reads_only_pods_of_its_own_group(group: int, rank: int) -> None:
    """Before the operator recycles a group, it reads only the pods of this group. The pod index of every leader is 0,
    whatever its group, and the groups of decode have the same numbers.
    """
    shape = Shape(size=3, engines=3, decoders=3)
    world = World(shape.service(), shape.deps(), 3)
    world.settle()
    name = f"-{group}-0" if rank == 0 else f"-{group}-w-{rank}"
    ended = Termination("ome-container", "OOMKilled", 137, "", rfc3339(world.now))
    observed = world.observed()
    mine = [pod for pod in observed.pods if (pod.component, pod.group) == ("engine", group)]
    assert sum(pod.name.endswith(name) for pod in mine) == 1 and len(mine) == 3
    (one,) = [pod for pod in mine if pod.rank == rank]
    pods = [pod._replace(uid="newer-uid", ending=ended) if pod is one else pod for pod in observed.pods]
    broken = replace(observed, pods=tuple(pods))
    go(world, broken)
    (recycle,) = go(world, broken).recycle
    assert selected(world, recycle.selector) == {pod.name for pod in mine}
    assert {each.name for each in recycle.delete} == {pod.name for pod in mine if pod.rank != rank}
    assert recycle.pods == {fingerprint(pod) for pod in pods if pod.name in selected(world, recycle.selector)}


def selected(world: World, selector: str) -> set[str]:
    """Return the names of the pods that the selector matches."""
    return {pod.name for pod in world.pods.values() if matches(selector, pod.labels)}


@pytest.mark.parametrize(
    ("force", "over", "lost"), [("5m", 301, True), ("5m", 301, False), ("5m", 200, True), ("", 9999, True)]
)
def test_pod_on_a_lost_node_is_force_deleted_only_if_allowed(force: str, over: int, lost: bool) -> None:
    world = settled(Shape(size=2), forceDeleteAfter=force or None)
    if lost:
        world.deps = replace(world.deps, nodes={**NODES, "n1": NODES["n1"]._replace(alive=False)})
    ends = rfc3339(world.now - timedelta(seconds=over))
    stuck = changed(world, "-0-w-1", deleting=True, grace=1, ends=ends, node="n1")
    plan = go(world, stuck)
    forced = [(one.grace, one.guard) for one in plan.delete]
    assert forced == ([(0, NodeLost("n1"))] if force and over > 300 and lost else [])
    assert ("stays Terminating on node n1" in recovered(plan)[2]) == lost


def test_failure_of_half_of_a_role_is_treated_as_systemic() -> None:
    world = settled(Shape(size=2, engines=4))
    observed = world.observed()
    leaders = sorted(pod.name for pod in observed.pods if pod.component == "engine" and pod.rank == 0)

    def silent(names: list[str]) -> Observed:
        pods = tuple(pod._replace(ready=False) if pod.name in names else pod for pod in observed.pods)
        return replace(observed, pods=pods)

    half = silent(leaders[:2])
    assert recovered(go(world, half))[:2] == ("False", "SystemicFault")
    assert recovered(go(world, half, 3600))[:2] == ("False", "SystemicFault")
    one = silent(leaders[:1])
    assert go(world, one, 3601).requeue_after is not None, "its time limit starts when the others are back"
    announced = go(world, one, 3700)
    assert recovered(announced)[:2] == ("False", "Recycling")
    two = silent([leaders[0], leaders[3]])
    assert [each["phase"] for each in go(world, two, 3800).status["groups"]].count("Recycling") == 1


def test_draining_group_keeps_its_record_and_is_not_recycled() -> None:
    world = settled(Shape(size=2, engines=2))
    before = world.service.status["groups"]
    going = changed(world, "-1-0", draining="2026-01-01T00:00:00+00:00", ready=False)
    assert sum(bool(pod.draining) for pod in going.pods) == 1
    plan = go(world, going, 3600)
    assert plan.status["groups"][1] == before[1] and not plan.recycle


def test_group_without_record_is_not_recycled_before_the_start_deadline() -> None:
    """If the status with the records of groups was lost, no group is recycled before the deadline for a start has passed."""
    world = settled(Shape(size=2))
    world.service = replace(world.service, status={})
    broken = changed(world, "-0-0", ready=False)
    assert sum(not pod.ready for pod in broken.pods) == 1
    for later in (0, 60, 3600):
        assert not go(world, broken, later).recycle
    assert {one["phase"] for one in world.service.status["groups"]} <= {"Pending", "Starting"}


def test_recycle_guard_contains_the_role_scale() -> None:
    shape = Shape(size=2, scaled=True)
    world = World(shape.service(), shape.deps(), 3)
    world.settle()
    gone = replace(world.observed(), pods=tuple(pod for pod in world.observed().pods if not worker(pod)))
    go(world, gone)
    (recycle,) = go(world, gone).recycle
    assert recycle.scale == ("svc-engine", 1)


def worker(pod: Pod) -> bool:
    """Return whether the pod is a rank above 0."""
    return pod.rank > 0
