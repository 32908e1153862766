"""What counts as a service's own, and as a slice of it."""

from ome_operator.core.observed.objects import Observed
from ome_operator.core.observed.slices import Slice, own_pods, slices, started
from tests.unit.core.rollout.makers import LEADERS, ROUTER, UID, WORKERS, child, pod


def test_a_slice_has_started_when_it_has_leaders_that_stay() -> None:
    assert started(Slice("r1", (LEADERS,), ()))
    assert not started(Slice("r1", (LEADERS._replace(deleting=True), WORKERS, ROUTER), ()))


def test_slices_are_made_of_what_is_ours_and_of_every_pod() -> None:
    """A Terminating pod of anybody's holds its GPUs; a stranger's StatefulSet is none of our business."""
    theirs, orphan = (
        child("StatefulSet", "theirs", owner="x", revision="r2"),
        child("StatefulSet", "orphan", owner="", revision="r3"),
    )
    never = child("StatefulSet", "never", owner="", revision="r4")._replace(owned="")
    children = {(one.kind, one.name): one for one in (LEADERS, theirs, orphan, never)}
    found = slices(Observed(children=children, pods=(pod("p", revision="r5"),)), UID)
    assert list(found) == ["r1", "r3", "r5"]


def test_pods_that_count_belong_to_workloads_of_this_very_service() -> None:
    children = {(one.kind, one.name): one for one in (LEADERS, ROUTER, child("StatefulSet", "former", owner="x"))}
    mine = pod("a", workload_uid="uid-leaders")
    routers = pod("r", component="router", workload="router-5b9f8c7d6f")
    former, gone = pod("f", workload_uid="uid-former"), pod("g", workload_uid="uid-of-before")
    assert own_pods(Observed(children=children, pods=(mine, routers, former, gone)), UID) == (mine, routers)
