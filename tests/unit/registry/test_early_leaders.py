"""Tests of leaders that are listed before their pods are ready, because their engines call themselves healthy."""

import pytest

from ome_operator.registry.records import Pod
from tests.unit.registry.test_reconcile import GROUP, NOW, P0, TERMS, rank, removed, step, worker

STARTS = rank(ready=False, ready_since=90.0, health_port=30000), GROUP[1]


def test_leader_is_added_as_soon_as_its_engine_is_healthy() -> None:
    """A leader whose engine is healthy is added although the kubelet has not probed it yet. It stays until it is ready,
    without another request.
    """
    found = step(STARTS, healthy={"u-p-0-0": NOW - 1})
    assert [each.url for each in found.add] == [P0]
    (leader,) = found.leaders
    assert (leader.state, leader.is_starting) == ("adding", True)
    later = step(STARTS, [worker()], found.memory, NOW + 2, healthy={"u-p-0-0": NOW - 1})
    assert not (later.add or later.remove) and later.leaders[0].state == "serving"
    assert not removed(step(GROUP, [worker()], later.memory, NOW + 3))


def test_healthy_listed_leader_stays_although_its_pod_is_not_ready() -> None:
    began = step(STARTS, healthy={"u-p-0-0": NOW})
    hour = step(STARTS, [worker()], began.memory, NOW + 3600, healthy={"u-p-0-0": NOW})
    assert not (hour.add or hour.remove) and hour.leaders[0].state == "serving"
    lost = step(STARTS, [worker()], hour.memory, NOW + 3601)
    assert removed(lost) == [(P0, "the leader is not ready")] and lost.leaders[0].state == "waiting"


ENDS: dict[str, tuple[Pod, ...]] = {
    "the leader is being deleted": (STARTS[0]._replace(deleting=True), STARTS[1]),
    "the group is being drained": (STARTS[0]._replace(draining=True), STARTS[1]),
    "rank 1 is missing": STARTS[:1],
    "the leader is not running": (STARTS[0]._replace(running=False), STARTS[1]),
    "the leader is not ready": (STARTS[0]._replace(health_port=None), STARTS[1]),
}


@pytest.mark.parametrize("why", ENDS)
def test_health_keeps_no_leader_that_must_not_serve(why: str) -> None:
    began = step(STARTS, healthy={"u-p-0-0": NOW})
    assert removed(step(ENDS[why], [worker()], began.memory, NOW + 60, healthy={"u-p-0-0": NOW})) == [(P0, why)]


def test_leader_not_listed_early_is_added_when_its_pod_is_ready() -> None:
    began = step(STARTS, healthy={"u-p-0-0": NOW})
    after = step(STARTS, [], began.memory, NOW + TERMS.early + 1, healthy={"u-p-0-0": NOW})
    assert not after.add and after.leaders[0].state == "waiting"
    assert [each.url for each in step(GROUP, [], after.memory, NOW + TERMS.early + 2).add] == [P0]


NOT_EARLY: dict[str, tuple[tuple[Pod, ...], float]] = {
    "its pod waits for more than its engine": ((STARTS[0]._replace(health_port=None), STARTS[1]), NOW - 1),
    "its pod waits for another port": ((STARTS[0]._replace(health_port=8080), STARTS[1]), NOW - 1),
    "it was ready since its container started": ((STARTS[0]._replace(ready_since=150.0), STARTS[1]), NOW - 1),
    "its container started after that": ((STARTS[0]._replace(started=NOW), STARTS[1]), NOW - 1),
    "a rank started after that": ((STARTS[0], rank(1, started=NOW)), NOW - 1),
    "a rank is missing": (STARTS[:1], NOW - 1),
    "it is being drained": ((STARTS[0]._replace(draining=True), STARTS[1]), NOW - 1),
    "its engine has been healthy for long": (STARTS, NOW - TERMS.early - 1),
}


@pytest.mark.parametrize("case", NOT_EARLY)
def test_a_healthy_engine_alone_does_not_suffice(case: str) -> None:
    ranks, since = NOT_EARLY[case]
    assert not step(ranks, healthy={"u-p-0-0": since}).add
