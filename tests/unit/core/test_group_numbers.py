"""Tests of which groups stay, which one is removed first, and which numbers new groups get."""

from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from ome_operator import keys
from ome_operator.core.group_numbers import (
    by_worth,
    existing_groups,
    pick_numbers,
    ready_groups,
    remaining_groups,
    used_numbers,
)
from ome_operator.core.observed.objects import Child, Pod
from ome_operator.core.observed.slices import Slice
from tests.unit.core.rollout.makers import STEM, child, leader, leader_set, worker, worker_set

MARK = "2026-01-01T00:00:00+00:00"


def sets(*groups: int) -> tuple[Child, ...]:
    """Return both StatefulSets of these groups."""
    return tuple(make(group) for group in groups for make in (leader_set, worker_set))


def whole(*groups: int) -> tuple[Pod, ...]:
    """Return the leaders and workers of these groups, all ready."""
    return tuple(make(group) for group in groups for make in (leader, worker))


def instead(pods: Iterable[Pod], *changed: Pod) -> tuple[Pod, ...]:
    """Return the pods, in which these pods replace those with the same names."""
    by_name = {each.name: each for each in (*pods, *changed)}
    return tuple(by_name.values())


def order(children: tuple[Child, ...], *pods: Pod) -> tuple[int, ...]:
    """Return the numbers of groups of two pods, with the most valuable group first."""
    return by_worth("engine", 2, Slice("r1", children, pods))


FOUR = sets(0, 1, 2, 3)
READY = whole(0, 1, 2, 3)
ORDERS: dict[str, tuple[tuple[Pod, ...], tuple[int, ...]]] = {
    "alike: the highest number goes": (READY, (0, 1, 2, 3)),
    "one that is not ready goes before": (instead(READY, leader(1, ready=False)), (0, 2, 3, 1)),
    "its worker counts as much": (instead(READY, worker(1, ready=False)), (0, 2, 3, 1)),
    "of several that are not ready the highest": (
        instead(READY, leader(0, ready=False), worker(2, ready=False)),
        (1, 3, 0, 2),
    ),
    "one that is marked goes before": (instead(READY, leader(0, draining=MARK)), (1, 2, 3, 0)),
    "a mark counts more than readiness": (
        instead(READY, leader(0, draining=MARK), leader(1, ready=False)),
        (2, 3, 1, 0),
    ),
    "marked and ready stays before marked and not ready": (
        instead(READY, leader(0, draining=MARK, ready=False), leader(3, draining=MARK)),
        (1, 2, 3, 0),
    ),
    "of several that are marked the highest": (
        instead(READY, leader(0, draining=MARK), leader(2, draining=MARK)),
        (1, 3, 0, 2),
    ),
    "a mark on a worker says nothing": (instead(READY, worker(0, draining=MARK)), (0, 1, 2, 3)),
    "a mark on a pod that ends says nothing of the next": (
        instead(READY, leader(0, draining=MARK, deleting=True), leader(1, ready=False)),
        (2, 3, 0, 1),
    ),
    "a pod that ends is not ready": (instead(READY, worker(1, deleting=True)), (0, 2, 3, 1)),
    "a pod of a former set is not ready": (instead(READY, worker(1, workload_uid="former")), (0, 2, 3, 1)),
    "a rank that is missing": (tuple(each for each in READY if each.name != worker(1).name), (0, 2, 3, 1)),
    "of groups that are not ready, first those that are not on nodes": (
        instead(READY, leader(0, ready=False, node=""), leader(1, ready=False)),
        (2, 3, 1, 0),
    ),
    "no pods at all": ((), (0, 1, 2, 3)),
}


@pytest.mark.parametrize("case", ORDERS)
def test_groups_are_ordered_by_worth(case: str) -> None:
    pods, wanted = ORDERS[case]
    assert order(FOUR, *pods) == wanted
    assert order(FOUR[::-1], *pods[::-1]) == wanted, "the order of the API server's list does not matter"


def test_flickering_readiness_removes_only_one_group() -> None:
    """If the readiness of groups changes for a moment, only one group is removed. Group 1 was not ready when it was marked
    to be removed. Now it is ready and another group is not, but group 1 is still the one to be removed.
    """
    before = order(FOUR, *instead(READY, leader(1, ready=False)))
    assert pick_numbers(3, before, range(4)) == (0, 2, 3)
    marked = instead(READY, leader(1, draining=MARK), leader(3, ready=False))
    assert pick_numbers(3, order(FOUR, *marked), range(4)) == (0, 2, 3)
    assert pick_numbers(4, order(FOUR, *marked), range(4)) == (0, 1, 2, 3), "it stays if it is wanted again"


@dataclass
class Choice:
    """The wanted number of groups, the existing groups in the order of their value, the numbers in use, and the chosen
    groups.
    """

    wanted: int
    order: tuple[int, ...]
    used: tuple[int, ...]
    found: tuple[int, ...]


CHOICES = {
    "a first service": Choice(3, (), (), (0, 1, 2)),
    "none": Choice(0, (0, 1), (0, 1), ()),
    "as many": Choice(2, (1, 0), (0, 1), (0, 1)),
    "fewer: by worth, not by number": Choice(2, (2, 0, 1), (0, 1, 2), (0, 2)),
    "a hole is filled before a higher number": Choice(4, (0, 2, 3), (0, 2, 3), (0, 1, 2, 3)),
    "several holes, the lowest first": Choice(3, (4,), (4,), (0, 1, 4)),
    "a hole whose former group is not gone yet": Choice(3, (0, 2), (0, 1, 2), (0, 2, 3)),
    "every number below is taken": Choice(1, (), (0, 1, 2), (3,)),
    "a hole and a number that is taken": Choice(4, (0, 4), (0, 1, 4), (0, 2, 3, 4)),
    "a group that exists keeps its number": Choice(2, (7, 3), (3, 7), (3, 7)),
}


@pytest.mark.parametrize("case", CHOICES)
def test_numbers_chosen_for_a_group_count(case: str) -> None:
    choice = CHOICES[case]
    assert pick_numbers(choice.wanted, choice.order, choice.used) == choice.found


def test_group_exists_while_its_leader_statefulset_exists() -> None:
    found = (leader_set(0), worker_set(0), leader_set(1, deleting=True), worker_set(1), worker_set(2), leader_set(4))
    assert existing_groups("engine", Slice("r1", found, whole(0, 1, 2, 3))) == {0, 4}
    assert existing_groups("decoder", Slice("r1", found, ())) == frozenset()


def test_number_is_used_while_any_object_of_its_group_exists() -> None:
    found = (leader_set(0), leader_set(2, deleting=True), worker_set(3, deleting=True))
    pods = (leader(0), leader(4, deleting=True), worker(5, deleting=True), worker(6)._replace(rank=-1))
    assert used_numbers("engine", Slice("r1", found, pods)) == {0, 2, 3, 4, 5, 6}
    assert remaining_groups("engine", Slice("r1", found, pods)) == 6
    assert used_numbers("decoder", Slice("r1", found, pods)) == frozenset()


def test_pods_without_group_label_use_no_number() -> None:
    stranger = leader(0, workload_uid="")._replace(group=-1)
    part = Slice("r1", sets(0), (stranger,))
    assert (existing_groups("engine", part), used_numbers("engine", part), remaining_groups("engine", part)) == ({0}, {0}, 1)


@pytest.mark.parametrize("deleting", [False, True])
def test_new_groups_start_at_zero_despite_pods_of_a_deleted_service(deleting: bool) -> None:
    """New groups get numbers from 0 on although pods of a deleted service of the same name still have these numbers. The new
    StatefulSets wait until the names of these pods are free, and then use the accelerators that the pods hold now.
    """
    former = tuple(each._replace(workload_uid="former", deleting=deleting) for each in whole(0, 1))
    part = Slice("r1", (), former)
    assert (by_worth("engine", 2, part), used_numbers("engine", part), remaining_groups("engine", part)) == (
        (),
        frozenset(),
        2,
    )
    assert pick_numbers(2, (), used_numbers("engine", part)) == (0, 1)


def test_pods_of_a_deleted_service_are_not_ready_in_new_statefulsets() -> None:
    former = tuple(each._replace(workload_uid="former") for each in whole(0))
    part = Slice("r1", sets(0, 1), (*former, *whole(1)))
    assert by_worth("engine", 2, part) == (1, 0)
    assert ready_groups("engine", 2, part) == {1}


def test_leader_without_statefulset_still_counts_as_a_group() -> None:
    """A leader pod whose StatefulSet was deleted without it is still a group. `kubectl delete --cascade=orphan` leaves such
    a pod. The StatefulSet that is created again adopts the pod, and nothing restarts.
    """
    orphan = leader(1, workload_uid="")
    part = Slice("r1", (*sets(0), worker_set(1)), (*whole(0), orphan, worker(1)))
    assert by_worth("engine", 2, part) == (0, 1)
    assert ready_groups("engine", 2, part) == {0}, "a pod without an owner does not count as ready"
    ending = Slice("r1", sets(0), (*whole(0), orphan._replace(deleting=True)))
    assert by_worth("engine", 2, ending) == (0,)


@pytest.mark.parametrize("name", [f"{STEM}-1-0-debug", f"{STEM}-1", "debug", f"{STEM}-2-0", f"{STEM}-1-1", f"x-{STEM}-1-0"])
def test_debug_copy_of_a_leader_is_not_a_group(name: str) -> None:
    """A copy of a leader's pod for debugging is no group, although `kubectl debug --copy-to --keep-labels` copies the
    leader's labels to it.
    """
    copy = leader(1, workload_uid="")._replace(name=name)
    assert existing_groups("engine", Slice("r1", sets(0), (*whole(0), copy))) == {0}


def test_second_pod_of_a_leader_statefulset_is_not_a_rank() -> None:
    """A second pod of a leader's StatefulSet, which somebody has scaled manually, is no group and replaces no rank. Its mark
    of draining does not count for the group.
    """
    second = leader(1, draining=MARK)._replace(name=f"{STEM}-1-1", rank=-1)
    assert order(sets(0, 1), *whole(0, 1), second) == (0, 1)
    part = Slice("r1", sets(1), (second, worker(1)))
    assert ready_groups("engine", 2, part) == frozenset()
    assert existing_groups("engine", Slice("r1", (), (second._replace(workload_uid=""),))) == frozenset()


def test_group_keeps_its_number_if_its_label_is_removed() -> None:
    """A group keeps its number if somebody removes its label. The name of the StatefulSet contains the number, and another
    StatefulSet with this number would have the same name.
    """
    bare = tuple(each._replace(labels=without(each.labels, keys.GROUP_INDEX)) for each in sets(2))
    unmarked = tuple(each._replace(labels=without(each.labels, keys.WORKER_INDEX)) for each in sets(3))
    part = Slice("r1", (*sets(0), *bare, *unmarked), ())
    assert existing_groups("engine", part) == used_numbers("engine", part) == {0, 2, 3}
    assert remaining_groups("engine", part) == 3


def without(labels: object, key: str) -> dict[str, str]:
    """Return the labels without this one."""
    assert isinstance(labels, dict)
    return {name: value for name, value in labels.items() if name != key}


def test_other_objects_of_the_slice_are_not_groups() -> None:
    """Other objects of the slice do not count as groups. A disruption budget has no group number in its name, and neither
    has the StatefulSet that had all leaders in earlier versions. A Deployment is no group whatever its name is.
    """
    others = (child("StatefulSet", STEM, index="0"), child("PodDisruptionBudget", STEM), child("Deployment", f"{STEM}-7"))
    part = Slice("r1", (*sets(0), *others), ())
    assert existing_groups("engine", part) == used_numbers("engine", part) == {0} and remaining_groups("engine", part) == 1
