"""Tests of the number of existing groups."""

from typing import Any

from ome_operator.core.observed.objects import Child, Pod
from ome_operator.core.observed.slices import Slice
from ome_operator.core.rollout.planner import GroupCounts
from ome_operator.core.rollout.replicas import groups
from tests.unit.core.rollout.makers import leader, leader_set, worker, worker_set

L0, W0, L1, W1 = leader_set(0), worker_set(0), leader_set(1), worker_set(1)
TWO = (L0, W0, L1, W1)


def whole(group: int, **more: Any) -> tuple[Pod, Pod]:
    """Return the leader and the worker of a group."""
    return leader(group, **more), worker(group)


def counted(*pods: Pod, sets: tuple[Child, ...]) -> GroupCounts:
    """Return the counts of the engine's groups of two pods."""
    return groups("engine", 2, Slice("r1", sets, pods))


def test_a_group_is_ready_when_all_its_pods_are() -> None:
    assert counted(*whole(0), *whole(1), sets=TWO) == GroupCounts(2, (True, True), 2)
    assert counted(*whole(0), *whole(1, deleting=True), sets=TWO) == GroupCounts(2, (True, False), 2)
    assert counted(*whole(0), leader(1), worker(1, ready=False), sets=TWO) == GroupCounts(2, (True, False), 2)
    assert counted(*whole(0), leader(1), sets=TWO) == GroupCounts(2, (True, False), 2)


def test_readiness_flags_are_in_the_order_in_which_groups_are_kept() -> None:
    """For each group that exists, the counts say whether it is ready, in the order in which the planner keeps groups: it
    removes the last one first.
    """
    assert counted(*whole(0, ready=False), *whole(1), sets=TWO) == GroupCounts(2, (True, False), 2)
    assert counted(*whole(0), *whole(1, draining="x"), sets=TWO) == GroupCounts(2, (True, True), 2)


def test_group_is_counted_until_its_last_object_is_deleted() -> None:
    fewer = (L0, W0, W1)
    assert counted(*whole(0), worker(1), sets=fewer) == GroupCounts(1, (True,), 2)
    assert counted(*whole(0), sets=fewer).left == 2, "its worker StatefulSet would start the pod again"
    assert counted(*whole(0), sets=(L0, W0, worker_set(1, deleting=True))).left == 2, "its pods are deleted after it"
    assert counted(*whole(0), worker(1, deleting=True), sets=(L0, W0)).left == 2
    assert counted(*whole(0), sets=(L0, W0)).left == 1
    assert counted(*whole(0), sets=(leader_set(0, deleting=True), W0)) == GroupCounts(0, (), 1)


def test_pods_of_a_former_workload_are_counted_but_not_ready() -> None:
    strangers = [one._replace(workload_uid="former") for one in whole(0)]
    assert counted(*strangers, sets=(L0, W0)) == GroupCounts(1, (False,), 1)
    assert counted(*strangers, *[one._replace(group=3) for one in strangers], sets=(L0, W0)).left == 2
