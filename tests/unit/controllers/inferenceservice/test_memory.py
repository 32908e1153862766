"""Tests of what the operator remembers about a service between passes."""

import pytest

from ome_operator.controllers.inferenceservice.memory import ServiceMemory, retry_delay, rollout_waited
from ome_operator.core.observed.objects import Child, Pod, Refusal

KEY = ("StatefulSet", "w")


def workload(kind: str = "StatefulSet", replicas: int = 2, deleting: bool = False) -> dict[tuple[str, str], Child]:
    child = Child(kind, "ns", "w", "u", 1, "o", {}, "h", "h", deleting, replicas, "", None)
    return {(kind, "w"): child}


def pods(count: int, owner: str = "w") -> tuple[Pod, ...]:
    return tuple(
        Pod("ns", f"p{i}", f"u{i}", 1, "s", "engine", "r", 0, 0, owner, "", False, False, 0, 0, "", "") for i in range(count)
    )


def test_retry_delays_double_up_to_five_minutes() -> None:
    assert [retry_delay(n) for n in (1, 4, 5, 6, 10, 50)] == [5.0, 5.0, 10.0, 20.0, 300.0, 300.0]


def test_refusal_is_reported_once_and_retried_with_growing_delay() -> None:
    memory = ServiceMemory()
    no = Refusal("Invalid", "no")
    assert memory.store_refusal(KEY, no, "h", 0.0)
    for now in (5.0, 10.0, 15.0, 20.0):
        assert not memory.store_refusal(KEY, no, "h", now)
    assert memory.refused[KEY].next == 30.0
    assert memory.store_refusal(KEY, Refusal("Invalid", "still no"), "other", 30.0)
    assert memory.refused[KEY].next == 35.0, "for another manifest, the time starts again"
    memory.permit_retry(KEY)
    assert memory.refused[KEY].next < 0
    assert memory.refusals() == {KEY: Refusal("Invalid", "still no")}


def test_wait_for_a_free_name_is_retried_at_a_constant_interval() -> None:
    memory = ServiceMemory()
    for now in (0.0, 5.0, 10.0):
        memory.store_refusal(KEY, Refusal("Waiting", "soon"), "h", now)
    assert memory.refused[KEY].next == 15.0


def test_missing_pods_are_dated_from_the_last_growth() -> None:
    memory = ServiceMemory()
    memory.count(workload(), pods(0), 0.0)
    memory.count(workload(), pods(0), 2.0)
    assert memory.missing == {KEY: 0.0}
    memory.count(workload(), pods(1), 3.0)
    assert memory.missing == {KEY: 3.0}, "a controller that makes progress is only slow"
    memory.failures[KEY], memory.event_reads[KEY] = "why", (1, 0.0)
    memory.count(workload(), pods(2), 4.0)
    assert (memory.missing, memory.failures, memory.event_reads) == ({}, {}, {})


def test_deployment_pods_are_counted_through_their_replica_set() -> None:
    memory = ServiceMemory()
    memory.count(workload("Deployment"), pods(2, "w-5d4f"), 0.0)
    assert memory.missing == {}


def test_memory_of_deleted_objects_is_dropped() -> None:
    memory = ServiceMemory()
    memory.accepted["u"] = "x"
    memory.count(workload(), pods(0), 0.0)
    memory.count({}, (), 0.0)
    assert (memory.missing, memory.accepted) == ({}, {})
    memory.count(workload(deleting=True), pods(0), 0.0)
    assert memory.missing == {}


def test_worker_pods_are_not_counted_for_the_leader_statefulset() -> None:
    """Pods of workers are not counted as pods of the leader's StatefulSet, although the name of the workers' StatefulSet is
    the name of the leader's StatefulSet with a suffix.
    """
    memory = ServiceMemory()
    memory.count(workload(replicas=1), pods(3, "w-0"), 0.0)
    assert memory.missing == {KEY: 0.0}


def test_capacity_result_expires_after_seconds() -> None:
    """The result of a check of free nodes is valid for seconds. A check that found no capacity is repeated less and less
    often, but at least once a minute; a check of another revision starts with the short interval.
    """
    memory, now = ServiceMemory(), 0.0
    lasted = []
    for _ in range(5):
        memory.store_capacity("r1", "taken", now)
        lasted.append(memory.next_check(now) or 0.0)
        assert memory.valid_checks(now + lasted[-1] - 1) == {"r1": "taken"}
        now += lasted[-1]
        assert memory.valid_checks(now) == {} and memory.next_check(now) is None
    assert lasted == [10.0, 20.0, 40.0, 60.0, 60.0]
    memory.store_capacity("r1", "", now)
    assert (
        memory.valid_checks(now + 9) == {"r1": ""} and memory.valid_checks(now + 10) == {} and memory.next_check(now) is None
    )
    memory.store_capacity("r2", "taken", now)
    assert memory.valid_checks(now) == {"r2": "taken"}


@pytest.mark.parametrize(
    ("reason", "waited"),
    [("WaitingForTurn", True), ("WaitingForRoom", True), ("Checking", False), ("RollingOut", False), ("Complete", False)],
)
def test_waiting_rollout_has_replaced_no_pods(reason: str, waited: bool) -> None:
    assert (
        rollout_waited({"conditions": [{"type": "Ready", "reason": "x"}, {"type": "RolledOut", "reason": reason}]}) is waited
    )
    assert not rollout_waited({}) and not rollout_waited({"conditions": [{"type": "EngineReady", "reason": reason}]})
