"""What exists, counted in groups."""

from typing import Any

from ome_operator import keys
from ome_operator.core.observed.objects import Child, Pod
from ome_operator.core.observed.slices import Slice
from ome_operator.core.rollout.planner import Groups
from ome_operator.core.rollout.replicas import groups
from tests.unit.core.rollout.makers import LEADERS, WORKERS, pod

TWO = LEADERS._replace(replicas=2)
ONE = WORKERS._replace(labels={**WORKERS.labels, keys.GROUP_INDEX: "1"}, uid="uid-one")


def whole(group: int, **more: Any) -> tuple[Pod, Pod]:
    """Leader and worker of a group."""
    leader = pod(f"l{group}", group=group, workload_uid=TWO.uid, **more)
    return leader, pod(f"w{group}", rank=1, group=group, workload_uid=WORKERS.uid if group == 0 else ONE.uid)


def counted(*pods: Pod, sets: tuple[Child, ...]) -> Groups:
    """The engine's groups of two pods."""
    return groups("engine", 2, Slice("r1", sets, pods))


def test_a_group_is_ready_when_all_its_pods_are() -> None:
    sets = (TWO, WORKERS, ONE)
    assert counted(*whole(0), *whole(1), sets=sets) == Groups(2, (True, True), 2)
    assert counted(*whole(0, ready=False), *whole(1), sets=sets) == Groups(2, (False, True), 2)
    assert counted(*whole(0), *whole(1, deleting=True), sets=sets) == Groups(2, (True, False), 2)


def test_a_group_counts_until_its_last_object_is_gone() -> None:
    fewer = TWO._replace(replicas=1)
    assert counted(*whole(0), *whole(1)[1:], sets=(fewer, WORKERS, ONE)).left == 2
    assert counted(*whole(0), sets=(fewer, WORKERS, ONE)).left == 2, "its worker StatefulSet would start the pod again"
    assert counted(*whole(0), sets=(fewer, WORKERS, ONE._replace(deleting=True))).left == 1
    assert counted(*whole(0), sets=(TWO._replace(deleting=True), WORKERS)) == Groups(0, (), 1)


def test_pods_of_a_former_workload_of_the_name_are_there_and_serve_nobody() -> None:
    strangers = [one._replace(workload_uid="former") for one in whole(0)]
    assert counted(*strangers, sets=(TWO._replace(replicas=1), WORKERS)) == Groups(1, (False,), 1)
