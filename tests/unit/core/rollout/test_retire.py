"""Tests of the removal of slices and groups: routers, then leaders, then workers, each only after the previous objects are
gone (decisions 6 and 9).
"""

from collections.abc import Collection
from typing import Any

import pytest

from ome_operator import keys, names
from ome_operator.core.observed.objects import Child, Pod
from ome_operator.core.observed.slices import Slice
from ome_operator.core.reconcile.plan import Delete, NodeLost
from ome_operator.core.render import meta
from ome_operator.core.rollout.retire import WORKER_GRACE, remove_extra_groups, retire_revision
from tests.support.selectors import matches
from tests.unit.core.rollout.makers import (
    BUDGET,
    LEADERS,
    ROUTER,
    STEM,
    WORKERS,
    leader,
    leader_set,
    pod,
    worker,
    worker_set,
)

EVERYTHING = (ROUTER, LEADERS, WORKERS, BUDGET)


def step(children: tuple[Child, ...], *pods: Pod) -> tuple[list[str], str]:
    """Return the names of the objects that are deleted next, and what the removal waits for."""
    found = retire_revision("svc", Slice("r1", children, pods))
    return [one.name for one in found.delete], found.waits_for


def test_slice_is_removed_in_order_router_leaders_workers() -> None:
    router, leader, worker = pod("p-router", component="router"), pod("p-leader"), pod("p-worker", rank=1)
    assert step(EVERYTHING, router, leader, worker)[0] == ["router"]
    assert step(EVERYTHING[1:], router, leader, worker)[0] == []
    assert step(EVERYTHING[1:], leader, worker)[0] == [LEADERS.name]
    assert step(EVERYTHING[2:], leader, worker)[0] == []
    assert step(EVERYTHING[2:], worker)[0] == [WORKERS.name]
    assert step((BUDGET,), worker)[0] == ["p-worker"]
    assert step((BUDGET,)) == (["budget"], "")
    assert step(()) == ([], "")


def test_all_groups_of_a_slice_are_removed_together() -> None:
    sets = (LEADERS, WORKERS, leader_set(3), worker_set(3))
    assert step(sets)[0] == [LEADERS.name, leader_set(3).name]
    assert step(sets[1:], worker(0), worker(3))[0] == [leader_set(3).name], "workers wait for the last leader"
    assert step((WORKERS, worker_set(3)), leader(3), worker(0))[0] == []
    assert step((WORKERS, worker_set(3)), worker(0), worker(3))[0] == [WORKERS.name, worker_set(3).name]


def test_removal_message_names_pending_objects_and_nodes() -> None:
    _, waits = step(EVERYTHING[1:], pod("a", component="router"), pod("b", component="router", node="n2"))
    assert waits == "old router draining (revision r1, 2 pods on n1, n2)"
    assert step((WORKERS,))[1] == "old workers ending (revision r1)"


def test_terminating_objects_are_not_deleted_again() -> None:
    assert step((LEADERS._replace(deleting=True), WORKERS))[0] == []
    hurried = pod("w", rank=1, deleting=True, grace=1)
    assert step((), hurried) == ([], "old workers ending (revision r1, 1 pod on n1)")
    assert step((), hurried._replace(grace=600))[0] == ["w"]


def test_deletions_have_guards_for_what_must_be_deleted_before() -> None:
    """Each deletion has a guard that names what must be gone before. The executor reads the guard live, because the cache
    may be out of date.
    """
    (leaders,) = retire_revision("svc", Slice("r1", (LEADERS, WORKERS), ())).delete
    (workers,) = retire_revision("svc", Slice("r1", (WORKERS,), ())).delete
    router = meta.labels("svc", "router", "r1")
    leader = {**meta.labels("svc", "decoder", "r1"), keys.WORKER_INDEX: "0"}
    assert leaders.guard is not None and matches(leaders.guard.selector, router)
    assert not matches(leaders.guard.selector, {**router, keys.REVISION: "r2"})
    assert workers.guard is not None and matches(workers.guard.selector, leader)
    assert not matches(workers.guard.selector, meta.labels("svc", "engine", "r1"))


SETS = tuple(make(group) for group in range(3) for make in (leader_set, worker_set))
PODS = tuple(made for group in range(3) for made in (leader(group), worker(group, 1), worker(group, 2)))
GROUPS = pytest.mark.parametrize("group", range(3))


def left(kept: Collection[int], children: tuple[Child, ...], *pods: Pod) -> tuple[Delete, ...]:
    """Return the deletions if the engine has to keep these groups."""
    return remove_extra_groups("svc", "engine", kept, Slice("r1", children, pods))


def down(kept: Collection[int], children: tuple[Child, ...], *pods: Pod) -> list[str]:
    """Return the names of the objects that are deleted if the engine has to keep these groups."""
    return [each.name for each in left(kept, children, *pods)]


def but(group: int) -> set[int]:
    """Return the numbers of the other two of three groups."""
    return {0, 1, 2} - {group}


def without(group: int, *roles: str) -> tuple[Child, ...]:
    """Return the StatefulSets of three groups. In the group `group`, those with the roles `roles` (leader or worker) are
    missing.
    """
    gone = [{"leader": leader_set, "worker": worker_set}[role](group).name for role in roles]
    return tuple(each for each in SETS if each.name not in gone)


@GROUPS
def test_leader_of_a_removed_group_is_deleted_before_its_workers(group: int) -> None:
    others = tuple(each for each in PODS if each.group != group)
    first, ranks = leader(group), (worker(group, 1), worker(group, 2))
    assert left(but(group), SETS, *PODS) == (Delete("StatefulSet", leader_set(group).name, leader_set(group).uid),)
    led = without(group, "leader")
    assert down(but(group), led, *others, first._replace(deleting=True), *ranks) == []
    (workers,) = left(but(group), led, *others, *ranks)
    assert (workers.kind, workers.name, workers.uid) == ("StatefulSet", worker_set(group).name, worker_set(group).uid)
    none = without(group, "leader", "worker")
    assert left(but(group), none, *others, *ranks) == tuple(
        Delete("Pod", each.name, each.uid, grace=WORKER_GRACE) for each in ranks
    )
    assert down(but(group), none, *others, *(each._replace(deleting=True, grace=WORKER_GRACE) for each in ranks)) == []
    assert down(but(group), none, *others, first._replace(deleting=True), *ranks) == []
    assert down(but(group), none, *others) == []


@GROUPS
def test_workers_of_an_earlier_group_end_soon_if_a_kept_group_has_its_number(group: int) -> None:
    """Workers of an earlier group end soon if a kept group has the same number. The kept group has new StatefulSets, which
    can create their workers only when the earlier workers are gone. The leader of the earlier workers is gone, so they
    serve no requests, and their grace period can be shortened.
    """
    earlier = worker(group, workload_uid="earlier", deleting=True, grace=600)
    others = tuple(each for each in PODS if each.group != group)
    starts, ends = leader(group, ready=False), Delete("Pod", earlier.name, earlier.uid, grace=WORKER_GRACE)
    assert left(range(3), SETS, *others, earlier) == left(range(3), SETS, *others, starts, earlier) == (ends,)
    assert down(range(3), SETS, *others, earlier._replace(grace=WORKER_GRACE)) == []
    own = earlier._replace(workload_uid=worker_set(group).uid)
    assert down(range(3), SETS, *others, own) == [], "its group loses it, and recovery decides about the group"
    assert down(range(3), SETS, *others, earlier._replace(deleting=False)) == [], "its StatefulSet may not be cached yet"


@GROUPS
@pytest.mark.parametrize("busy", [{}, {"ready": False, "deleting": True}, {"ready": False, "workload_uid": "earlier"}])
def test_terminating_workers_stay_while_their_leader_may_have_requests(group: int, busy: dict[str, Any]) -> None:
    earlier = worker(group, workload_uid="earlier", deleting=True, grace=600)
    assert down(range(3), SETS, leader(group, **busy), earlier) == []


def labels(made: Child, index: int, **more: str) -> dict[str, str]:
    """Return the labels of a pod of a StatefulSet."""
    return {**made.labels, keys.POD_INDEX: str(index), **more}


@GROUPS
def test_guard_of_group_workers_selects_only_the_leader_of_the_group(group: int) -> None:
    """The guard before the deletion of a group's workers selects the leader of this group and no other pod. The pod index of
    every leader is 0, whatever its group.
    """
    ranks = tuple(each for each in PODS if each.group != group or each.rank)
    (workers,) = left(but(group), without(group, "leader"), *ranks)
    assert workers.guard is not None and not workers.guard.name
    selector = workers.guard.selector
    assert matches(selector, labels(leader_set(group), 0))
    assert matches(selector, labels(leader_set(group), 1)), "a second pod that somebody created counts as well"
    for other in but(group):
        assert not matches(selector, labels(leader_set(other), 0))
        assert not matches(selector, labels(leader_set(other), group)), "the pod index says nothing about the group"
    for number in range(3):
        for rank in range(3):
            assert not matches(selector, labels(worker_set(number), rank))
    for another in ({keys.REVISION: "r2"}, {keys.COMPONENT: "decoder"}, {keys.SERVICE: "other"}):
        assert not matches(selector, labels(leader_set(group), 0, **another))


def test_groups_are_removed_independently() -> None:
    """Groups are removed independently of each other. Group 0 has lost its leader, and group 1 still has its own. Group 2
    has no StatefulSets any more, but still has pods.
    """
    sets = (worker_set(0), leader_set(1), worker_set(1))
    pods = (worker(0), leader(1), worker(1), worker(2))
    assert down((), sets, *pods) == [leader_set(1).name, worker_set(0).name, worker(2).name]
    assert down({1}, sets, *pods) == [worker_set(0).name, worker(2).name]
    assert down({0, 1}, sets, *pods) == [worker(2).name]
    assert down({0, 1, 2}, sets, *pods) == []


@GROUPS
def test_terminating_statefulset_is_not_deleted_again_and_its_pods_wait(group: int) -> None:
    """A StatefulSet that is already being deleted is not deleted again. The garbage collector deletes the pods of leaders.
    Pods of workers are deleted by the operator, which is faster, once no StatefulSet creates them again.
    """
    sets = (leader_set(group, deleting=True), worker_set(group))
    assert down((), sets, worker(group)) == [], "a terminating StatefulSet may still create its pod"
    assert down((), (worker_set(group, deleting=True),), worker(group)) == [worker(group).name]


@GROUPS
def test_orphaned_leader_pod_is_deleted_by_name(group: int) -> None:
    """A leader pod whose StatefulSet was deleted without it is deleted by its name. `kubectl delete --cascade=orphan` or a
    slow garbage collector leaves such a pod, which would continue to serve. A copy of the pod is not deleted, because it
    belongs to no StatefulSet.
    """
    orphan, copy = leader(group), leader(group)._replace(name="my-debug-copy", workload_uid="")
    assert left((), (), orphan) == (Delete("Pod", orphan.name, orphan.uid),)
    assert down((), (), copy) == []
    assert down((), (), orphan._replace(deleting=True)) == []
    assert down({group}, (), orphan) == []
    assert down((), (leader_set(group),), orphan) == [leader_set(group).name], "its StatefulSet would create it again"


@GROUPS
def test_orphaned_leader_is_deleted_although_its_workers_exist(group: int) -> None:
    """A leader pod without its StatefulSet is deleted although the StatefulSet of the workers still exists. The latter waits
    until the leader is gone, so the leader must not wait for it.
    """
    orphan = leader(group)._replace(workload_uid="")
    assert left((), (worker_set(group),), orphan, worker(group)) == (Delete("Pod", orphan.name, orphan.uid),)


@GROUPS
def test_workers_of_a_leader_on_a_lost_node_are_deleted_without_waiting(group: int) -> None:
    """Workers are deleted without waiting for a leader on a lost node. No kubelet confirms that the leader ended, and the
    workers would hold accelerators on healthy nodes. The loss of the node is read live.
    """
    dead = leader(group)._replace(deleting=True, node="n9")
    found = Slice("r1", (worker_set(group),), (dead, worker(group)))
    assert remove_extra_groups("svc", "engine", (), found) == ()
    (delete,) = remove_extra_groups("svc", "engine", (), found, {dead.uid})
    assert (delete.name, delete.guard) == (worker_set(group).name, NodeLost("n9"))


@GROUPS
def test_statefulset_without_group_label_is_deleted_by_its_name(group: int) -> None:
    """A StatefulSet belongs to the group that its name states. If somebody has removed the label of the group, the
    StatefulSet is deleted nevertheless, with a guard that names its group.
    """
    bare = worker_set(group)
    bare = bare._replace(labels={key: value for key, value in bare.labels.items() if key != keys.GROUP_INDEX})
    (workers,) = left(but(group), (bare,))
    assert workers.name == bare.name and workers.guard is not None
    assert matches(workers.guard.selector, labels(leader_set(group), 0))


def test_statefulset_without_a_group_number_is_kept() -> None:
    """A StatefulSet without a group number in its name stays. In earlier versions, one StatefulSet with the same labels had
    all leaders.
    """
    assert down((), (LEADERS._replace(name=STEM),)) == []


def test_groups_of_other_roles_are_not_deleted() -> None:
    other = worker_set(1, names.object_prefix("svc", "decoder", "r1"))
    other = other._replace(labels={**other.labels, keys.COMPONENT: "decoder"})
    assert down({0}, (other,), pod("x", component="decoder", group=1, rank=1)) == []
