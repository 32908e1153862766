"""How slices and groups go: routers, leaders, workers, each only when what comes before is gone (decisions 6 and 9)."""

from ome_operator import keys
from ome_operator.core.observed.objects import Child, Pod
from ome_operator.core.observed.slices import Slice
from ome_operator.core.render import meta
from ome_operator.core.rollout.retire import leftovers, retire
from tests.support.selectors import matches
from tests.unit.core.rollout.makers import BUDGET, LEADERS, ROUTER, WORKERS, child, pod

EVERYTHING = (ROUTER, LEADERS, WORKERS, BUDGET)


def step(children: tuple[Child, ...], *pods: Pod) -> tuple[list[str], str]:
    """Names that go next, and what is waited for."""
    found = retire("svc", Slice("r1", children, pods))
    return [one.name for one in found.delete], found.waits_for


def test_a_whole_slice_goes_step_by_step() -> None:
    router, leader, worker = pod("p-router", component="router"), pod("p-leader"), pod("p-worker", rank=1)
    assert step(EVERYTHING, router, leader, worker)[0] == ["router"]
    assert step(EVERYTHING[1:], router, leader, worker)[0] == []
    assert step(EVERYTHING[1:], leader, worker)[0] == ["leaders"]
    assert step(EVERYTHING[2:], leader, worker)[0] == []
    assert step(EVERYTHING[2:], worker)[0] == ["workers"]
    assert step((BUDGET,), worker)[0] == ["p-worker"]
    assert step((BUDGET,)) == (["budget"], "")
    assert step(()) == ([], "")


def test_a_step_names_what_it_waits_for_and_where() -> None:
    _, waits = step(EVERYTHING[1:], pod("a", component="router"), pod("b", component="router", node="n2"))
    assert waits == "old router draining (revision r1, 2 pods on n1, n2)"
    assert step((WORKERS,))[1] == "old workers ending (revision r1)"


def test_what_is_going_is_not_deleted_again() -> None:
    assert step((LEADERS._replace(deleting=True), WORKERS))[0] == []
    hurried = pod("w", rank=1, deleting=True, grace=1)
    assert step((), hurried) == ([], "old workers ending (revision r1, 1 pod on n1)")
    assert step((), hurried._replace(grace=600))[0] == ["w"]


def test_deletes_are_guarded_by_what_must_be_gone() -> None:
    """A cache may be behind: the shell reads the guard live."""
    (leaders,) = retire("svc", Slice("r1", (LEADERS, WORKERS), ())).delete
    (workers,) = retire("svc", Slice("r1", (WORKERS,), ())).delete
    router = meta.labels("svc", "router", "r1")
    leader = {**meta.labels("svc", "decoder", "r1"), keys.WORKER_INDEX: "0"}
    assert leaders.guard is not None and matches(leaders.guard.selector, router)
    assert not matches(leaders.guard.selector, {**router, keys.REVISION: "r2"})
    assert workers.guard is not None and matches(workers.guard.selector, leader)
    assert not matches(workers.guard.selector, meta.labels("svc", "engine", "r1"))


def down(wanted: int, children: tuple[Child, ...], *pods: Pod) -> list[str]:
    """What goes when the engine shall have so many groups."""
    return [one.name for one in leftovers("svc", "engine", wanted, Slice("r1", children, pods)).delete]


def test_workers_of_a_group_go_after_its_leader() -> None:
    sets = (LEADERS, child("StatefulSet", "w0", group="0"), child("StatefulSet", "w1", group="1"))
    leader, worker = pod("l1", group=1), pod("p1", group=1, rank=1)
    assert down(1, sets, leader, worker) == []
    assert down(1, sets, leader._replace(deleting=True), worker) == []
    assert down(1, sets, worker) == ["w1"]
    assert down(1, sets[:2], worker) == ["p1"]
    assert down(1, sets[:2], leader, worker) == []
    assert down(1, sets[:2], worker._replace(deleting=True, grace=1)) == []
    assert down(2, sets, worker) == []


def test_the_other_roles_groups_are_not_touched() -> None:
    other = child("StatefulSet", "d1", group="1")
    other = other._replace(labels={**other.labels, keys.COMPONENT: "decoder"})
    assert down(1, (other,), pod("x", component="decoder", group=1, rank=1)) == []
