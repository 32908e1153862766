"""Tests of which objects belong to a service, and which objects form a slice of it."""

import pytest

from ome_operator.core.observed.objects import Observed
from ome_operator.core.observed.slices import (
    Slice,
    group_number,
    has_started,
    is_leader_set,
    made_by_workload,
    own_pods,
    slices,
)
from tests.unit.core.rollout.makers import LEADERS, ROUTER, STEM, UID, WORKERS, child, leader_set, pod, worker_set


def test_slice_has_started_if_it_has_a_leader_set_that_is_not_deleted() -> None:
    assert has_started(Slice("r1", (LEADERS,), ()))
    assert not has_started(Slice("r1", (LEADERS._replace(deleting=True), WORKERS, ROUTER), ()))
    assert has_started(Slice("r1", (LEADERS._replace(deleting=True), leader_set(3)), ())), "one group is enough"


def test_group_of_a_statefulset_comes_from_its_name() -> None:
    """A StatefulSet belongs to the group that its name states. Users can remove and add labels, but the name stays."""
    bare = leader_set(3, labels={})
    assert (group_number(bare), is_leader_set(bare)) == (3, True)
    assert (group_number(WORKERS), is_leader_set(WORKERS)) == (0, False)
    marked = worker_set(2, labels=leader_set(5).labels)
    assert (group_number(marked), is_leader_set(marked)) == (2, False)


def test_other_objects_have_no_group_number() -> None:
    for one in (child("Deployment", "svc-router-3"), child("PodDisruptionBudget", "b-3-w"), child("StatefulSet", STEM)):
        assert (group_number(one), is_leader_set(one)) == (None, False)


def test_slice_contains_own_objects_and_all_pods_of_their_workloads() -> None:
    """A slice consists of the service's own objects and of every pod that a workload of its role and revision created. A
    Terminating pod holds its GPUs, even if its workload is gone. A StatefulSet of another owner is ignored.
    """
    theirs, orphan = (
        child("StatefulSet", "theirs", owner="x", revision="r2"),
        child("StatefulSet", "orphan", owner="", revision="r3"),
    )
    never = child("StatefulSet", "never", owner="", revision="r4")._replace(owned="")
    children = {(one.kind, one.name): one for one in (LEADERS, theirs, orphan, never)}
    gone = pod("svc-engine-r5-0-0", revision="r5", workload="svc-engine-r5-0", workload_uid="gone")
    found = slices(Observed(children=children, pods=(gone, pod("p", revision="r6", workload="x"))), UID)
    assert list(found) == ["r1", "r3", "r5"]


@pytest.mark.parametrize(
    ("name", "workload", "component", "made"),
    [
        (f"{STEM}-0-0", f"{STEM}-0", "engine", True),
        (f"{STEM}-0-w-3", f"{STEM}-0-w", "engine", True),
        (f"{STEM}-3", STEM, "engine", True),  # a StatefulSet of all leaders, as older versions made it
        (f"{STEM}-0-0", "", "engine", True),  # its StatefulSet was deleted with --cascade=orphan
        (f"{STEM}-0-w-3", "", "engine", True),
        (f"{STEM}-0-0-debug", "", "engine", False),  # kubectl debug --copy-to with --keep-labels
        (f"{STEM}-0-0", "other-set", "engine", False),
        (f"{STEM}x-0-0", f"{STEM}x-0", "engine", False),
        ("svc-router-r1-5b9f8c7d6f-x2x4z", "svc-router-r1-5b9f8c7d6f", "router", True),
        ("svc-router-r1-5b9f8c7d6f-x2x4z", "", "router", True),
        ("svc-router-r1-5b9f8c7d6f-x2x4z-debug", "", "router", False),
        ("svc-router-r1-5b9f8c7d6f-x2x4z", "svc-router-r2-5b9f8c7d6f", "router", False),
        ("copy", "", "router", False),
    ],
)
def test_pod_is_attributed_to_a_workload_by_its_name(name: str, workload: str, component: str, made: bool) -> None:
    assert made_by_workload(pod(name, component=component, workload=workload)) is made


def test_own_pods_have_a_workload_with_the_uid_of_this_service() -> None:
    children = {(one.kind, one.name): one for one in (LEADERS, ROUTER, child("StatefulSet", "former", owner="x"))}
    mine = pod("a", workload_uid=LEADERS.uid)
    routers = pod("r", component="router", workload="router-5b9f8c7d6f")
    former, gone = pod("f", workload_uid="uid-former"), pod("g", workload_uid="uid-of-before")
    assert own_pods(Observed(children=children, pods=(mine, routers, former, gone)), UID) == (mine, routers)
