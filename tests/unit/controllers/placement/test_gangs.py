"""Tests of what services that wait for nodes learn, and of which services are enqueued."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.cache.foreign_pods import ForeignPods
from ome_operator.cache.occupancy import Occupancy
from ome_operator.controllers.placement import gangs as module
from ome_operator.controllers.placement.gangs import Gangs
from ome_operator.core.observed.admission import NO_ADMISSION
from ome_operator.core.observed.objects import Child, Deps, Node, Pod, Ref
from ome_operator.core.placement.claims import Claim, IdleNodes, subtract_held
from ome_operator.core.placement.demand import Demand, Expression
from ome_operator.core.placement.need import Need
from tests.support.fake_api import FakeApi
from tests.support.parts import change_deps
from tests.unit.core.rollout import makers

NOW = datetime(2026, 1, 1, tzinfo=UTC)
A, B = (Ref("InferenceService", "ns", name) for name in "ab")
ROOM = (("nvidia.com/gpu", 8), ("pods", 110))


class Known:
    """A cluster with this number of free nodes."""

    def __init__(self, nodes: int) -> None:
        self.found = {f"n{at}": Node(f"n{at}", 1, {}, True, 8, room=ROOM) for at in range(nodes)}
        self.occupancy, self.children = Occupancy(), {"ControllerRevision": self}
        self.timeout = 60.0

    def deps(self) -> Deps:
        return change_deps(Deps(), nodes=self.found, gang_timeout=self.timeout)

    def pods_of(self, *_: str) -> tuple[Pod, ...]:
        return ()


def claim(ref: Ref, pods: int, *, trying: bool = False, first: float = 1.0) -> Claim:
    """Return the claim of a service that needs whole nodes."""
    need = Need(("engine",), "engine", Demand(requests=(("nvidia.com/gpu", 8),)), pods)
    return Claim(f"{ref.namespace}/{ref.name}", (need,), trying, first=first, since=NOW.timestamp())


def waiting(since: str = "T0") -> dict[str, Any]:
    """Return the status of a service that waits."""
    return {"placement": {"trying": False, "since": since}}


def gangs(nodes: int) -> tuple[Gangs, list[str]]:
    """Return the placement on a cluster with this number of nodes, and the list of services that were woken."""
    woken: list[str] = []
    known: Any = Known(nodes)
    api = FakeApi({"list_objects Pod": []})
    return Gangs(known, ForeignPods(api, lambda: 0.0, lambda _: False), lambda ref: woken.append(ref.name)), woken


def test_longest_waiting_gang_is_admitted_and_its_capacity_reserved() -> None:
    made, _ = gangs(4)
    made.report_claim(A, claim(A, 3, first=2.0), NOW)
    made.report_claim(B, claim(B, 3, first=1.0), NOW)
    assert made.admission_of(A, waiting(), NOW).sure is None
    assert made.admission_of(A, waiting(), NOW).waits == "3 nodes with 8 free GPUs: 4 are free; ns/b is being placed first"
    assert made.admission_of(B, waiting(), NOW).sure is True
    made.report_claim(B, claim(B, 3, trying=True), NOW)
    assert made.admission_of(A, waiting(), NOW).sure is None
    made.report_claim(B, None, NOW)
    assert made.admission_of(A, waiting(), NOW).sure is True


def test_admission_is_repeated_until_the_status_shows_the_pods() -> None:
    """A service that has been admitted stays admitted until its status shows that its pods exist. Another reconciliation may
    run before the status is written, and must not remove what the first one created.
    """
    made, _ = gangs(4)
    made.report_claim(A, claim(A, 3), NOW)
    assert made.admission_of(A, waiting("T0"), NOW).sure is True
    made.report_claim(A, claim(A, 3, trying=True), NOW)
    made.report_claim(B, claim(B, 4), NOW)
    assert made.admission_of(A, waiting("T0"), NOW).sure is True
    assert made.admission_of(A, waiting("T9"), NOW).sure is None, "this is another period of waiting"
    assert made.admission_of(A, {"placement": {"trying": True, "since": "T1"}}, NOW).sure is None


def test_waiting_service_is_woken_when_another_releases_capacity() -> None:
    made, woken = gangs(4)
    made.report_claim(A, claim(A, 3), NOW)
    made.report_claim(B, claim(B, 3, trying=True), NOW)
    woken.clear()
    made.report_claim(B, claim(B, 3, trying=True), NOW)
    assert woken == []
    made.report_claim(B, None, NOW)
    made.wake_next()
    assert woken == ["a", "a"]
    made.report_claim(A, None, NOW)
    made.wake_next()
    assert woken == ["a", "a"]


def test_admission_is_computed_once_until_something_changes(monkeypatch: Any) -> None:
    made, _ = gangs(4)
    asked: list[int] = []
    decide = module.admit
    monkeypatch.setattr(module, "admit", lambda *given: (asked.append(1), decide(*given))[1])
    made.report_claim(A, claim(A, 5), NOW)
    made.report_claim(B, claim(B, 6), NOW)
    for _ in range(10):
        made.admission_of(A, waiting(), NOW)
        made.admission_of(B, waiting(), NOW)
    assert len(asked) == 1
    made.report_claim(B, claim(B, 7), NOW)
    made.admission_of(A, waiting(), NOW)
    assert len(asked) == 2


def test_one_woken_service_wakes_the_next_one() -> None:
    made, woken = gangs(4)
    made.report_claim(A, claim(A, 9), NOW)
    made.report_claim(B, claim(B, 3), NOW)
    woken.clear()
    made.wake_next()
    assert woken == ["a"]
    made.admission_of(A, waiting(), NOW)
    assert woken == ["a", "b"]


async def test_foreign_pods_are_read_after_a_failed_attempt() -> None:
    api = FakeApi({"list_objects Pod": [{"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}]})
    known: Any = Known(3)
    made = Gangs(known, ForeignPods(api, lambda: 1000.0, lambda _: False), lambda _: None)
    made.report_claim(A, claim(A, 2), NOW)
    await made.read_foreign_pods(claim(A, 2))
    assert api.calls == [] and made.admission_of(A, waiting(), NOW).sure is True
    await made.read_foreign_pods(claim(A, 2)._replace(failed=True))
    assert len(api.calls) == 3
    assert made.admission_of(A, waiting("T9"), NOW).waits == "2 nodes with 8 free GPUs: 0 are free, 3 are held by others"


@pytest.mark.parametrize("since", [NOW.timestamp(), 0.0], ids=["in an attempt", "after it"])
def test_holders_of_nodes_are_known_as_soon_as_pods_find_no_node(since: float) -> None:
    """When pods of a service find no node, the operator knows at once which other services hold the nodes. No request is
    needed, because the pods of all services are watched. The pods of the service itself are left out.
    """
    known: Any = Full(3)
    made = Gangs(known, ForeignPods(FakeApi({}), lambda: 0.0, lambda _: False), lambda _: None)
    made.report_claim(A, claim(A, 2, trying=True)._replace(since=since), NOW)
    tries = {"placement": {"trying": True, "since": "T0"}}
    assert made.admission_of(A, tries, NOW).held == ""
    known.reason = "Unschedulable"
    assert made.admission_of(A, tries, NOW).held == "of the nodes that its pods could take, 2 are held by ns/b"
    known.occupancy.pod(pod("b", "n1"), None)
    assert made.admission_of(A, tries, NOW).held == "of the nodes that its pods could take, 1 is held by ns/b"
    known.reason = "Starting"
    assert made.admission_of(A, tries, NOW).held == ""


class Full(Known):
    """A cluster of three nodes: two are held by service b, and one by a rank of service a."""

    reason = "Starting"

    def __init__(self, nodes: int) -> None:
        super().__init__(nodes)
        for node, name in zip(self.found, "bba", strict=True):
            self.occupancy.pod(None, pod(name, node))

    def pods_of(self, *service: str) -> tuple[Pod, ...]:
        return (pod(service[-1], "")._replace(reason=self.reason),)

    def group(self, _: tuple[str, str]) -> list[Child]:
        """Return the revision of the pods."""
        box = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
        workload = {"spec": {"template": {"spec": {"containers": [box]}}}}
        engine = {"leader": workload, "worker": workload, "size": 2, "port": 80}
        content = {"revision": 1, "data": {"workloads": {"engine": engine}}}
        labels = {keys.REVISION: "r1"}
        return [Child("ControllerRevision", "ns", "r", "u", 1, "s", labels, "", "applied", False, 0, "", content)]

    def find_resource(self, _: Ref) -> None:
        return None


def pod(service: str, node: str) -> Pod:
    return makers.pod(f"{service}-{node}", node=node)._replace(namespace="ns", service=service)


def test_missing_capacity_is_reported_once_the_attempt_may_end() -> None:
    known: Any = Known(3)
    known.timeout = 60.0
    made = Gangs(known, ForeignPods(FakeApi({}), lambda: 0.0, lambda _: False), lambda _: None)
    made.report_claim(A, claim(A, 4, trying=True), NOW)
    tries = {"placement": {"trying": True, "since": "T0"}}
    assert made.admission_of(A, tries, NOW).waits == ""
    assert made.admission_of(A, tries, NOW + timedelta(seconds=60)).waits == "engine needs 4 nodes: there are 3 nodes"


def test_service_without_nodes_yields_only_to_contenders_for_the_same_nodes() -> None:
    made, woken = gangs(2)
    idle = claim(A, 2, trying=True)._replace(since=0.0)
    made.report_claim(A, idle, NOW)
    elsewhere = Need(("engine",), "engine", Demand(selector=(Expression("pool", "In", ("x",)),)), 1)
    made.report_claim(B, claim(B, 1)._replace(needs=(elsewhere,)), NOW)
    made.report_claim(B, claim(B, 1, trying=True), NOW)
    assert woken == []
    made.report_claim(B, claim(B, 1), NOW)
    assert woken == ["a"]
    made.report_claim(B, claim(B, 2), NOW)
    assert woken == ["a"], "the service was informed"
    made.report_claim(B, None, NOW)
    made.report_claim(B, claim(B, 1, trying=True)._replace(serves=True), NOW)
    assert woken == ["a", "a"]


def test_reconciliation_ignores_other_claims_while_no_service_waits(monkeypatch: Any) -> None:
    """While no service waits for nodes, a reconciliation does not process the claims of all other services."""
    made, _ = gangs(4)
    monkeypatch.setattr(module, "admit", None)
    for at in range(100):
        made.report_claim(Ref("InferenceService", "ns", f"s{at}"), claim(B, 1, trying=True), NOW)
    assert made.admission_of(A, {}, NOW) == NO_ADMISSION
    made.report_claim(B, claim(B, 9), NOW)
    assert made.admission_of(A, {}, NOW).rivals == (claim(B, 9),), "a service that waits makes others compare claims"


async def test_service_with_idle_nodes_learns_which_groups_to_release() -> None:
    """A service that holds nodes without serving is reconciled, and learns which of its groups have to release their nodes.
    The decision stays valid while the pods of these groups terminate, and concerns no other groups.
    """
    made, woken = gangs(4)
    goes, need = frozenset({("engine", 1), ("engine", 2)}), claim(A, 1).needs[0]
    unit = (need._replace(pods=3),)
    mine = claim(A, 4, trying=True)._replace(serves=True)
    made.report_claim(A, mine, NOW)
    assert made.admission_of(A, {}, NOW).gives_way is None, "it holds nothing without serving"
    lost = IdleNodes(goes, (), ((need._replace(pods=6),),), (), since=1.0)
    made.report_claim(A, mine._replace(idle=lost), NOW)
    await made.read_foreign_pods(mine._replace(idle=lost))
    assert made.admission_of(A, {}, NOW).gives_way == frozenset()
    made.report_claim(A, mine._replace(idle=lost._replace(units=(unit,))), NOW)
    assert made.admission_of(A, {}, NOW + timedelta(seconds=1)).gives_way == frozenset(), "the last decision is a second old"
    assert made.admission_of(A, {}, NOW + timedelta(seconds=5)).gives_way == goes and woken == ["a"]
    other = mine._replace(idle=lost._replace(goes=frozenset({("engine", 7)})))
    made.report_claim(A, other, NOW)
    await made.read_foreign_pods(other)
    assert made.admission_of(A, {}, NOW + timedelta(seconds=19)).gives_way == goes
    assert made.admission_of(A, {}, NOW + timedelta(seconds=21)).gives_way == frozenset()
    made.report_claim(A, None, NOW)
    assert made.admission_of(A, {}, NOW).gives_way is None


async def test_waiting_service_wakes_a_service_with_idle_nodes() -> None:
    """When a service has waited for nodes, a service that holds nodes without serving is reconciled at once. The latter was
    last reconciled before the first service waited, and its next reconciliation would be half a minute later.
    """
    woken: list[str] = []
    lost = IdleNodes(frozenset({("engine", 1)}), (("n0", ROOM),), (), (), since=1.0)
    known: Any = Known(1)
    known.timeout = 60.0
    made = Gangs(known, ForeignPods(FakeApi({}), lambda: 0.0, lambda _: False), lambda ref: woken.append(ref.name))
    made._capacity.nodes = lambda: {"n0": subtract_held(known.found["n0"], {"nvidia.com/gpu": 8})}  # type: ignore[method-assign]
    mine = claim(A, 0, trying=True)._replace(serves=True, idle=lost)
    made.report_claim(A, mine, NOW)
    await made.read_foreign_pods(mine)
    assert made.admission_of(A, {}, NOW).gives_way == frozenset()
    made.report_claim(B, claim(B, 1), NOW)
    woken.clear()
    for seconds in (30, 57):  # 57 is less than a tick before the timeout
        for ref, status in ((B, waiting()), (A, {})):
            made.admission_of(ref, status, NOW + timedelta(seconds=seconds))
        assert woken == []
    made.admission_of(B, waiting(), NOW + timedelta(seconds=60))
    assert woken == ["a"] and made.admission_of(A, {}, NOW + timedelta(seconds=60)).gives_way == lost.goes


async def test_speculative_pods_also_wake_a_service_with_idle_nodes() -> None:
    lost = IdleNodes(frozenset({("engine", 1)}), (("n0", ROOM),), (), (), since=1.0)
    made, woken = gangs(1)
    made._capacity.nodes = lambda: {"n0": Node("n0", 1, {}, True, 8, room=(("nvidia.com/gpu", 0), ("pods", 109)))}  # type: ignore[method-assign]
    mine = claim(A, 0, trying=True)._replace(serves=True, idle=lost)
    made.report_claim(A, mine, NOW)
    await made.read_foreign_pods(mine)
    shown = claim(B, 1, trying=True)._replace(since=0.0)
    made.report_claim(B, shown, NOW)
    woken.clear()
    made.admission_of(B, {}, NOW)
    assert woken == ["a"]


async def test_nodes_are_not_released_before_foreign_pods_were_read() -> None:
    """No group is released for a waiting service before foreign pods are read, because it might not fit beside them."""
    clock = [1000.0]
    box = {"resources": {"limits": {"nvidia.com/gpu": "8"}}}
    api, known = FakeApi({"list_objects Pod": [{"spec": {"containers": [box]}}]}), Known(2)
    cluster: Any = known
    made = Gangs(cluster, ForeignPods(api, lambda: clock[0], lambda _: False), lambda _: None)
    lost = IdleNodes(frozenset({("engine", 1)}), (("n0", ROOM),), (), (), since=1.0)
    mine = claim(A, 1, trying=True)._replace(serves=True, idle=lost)
    made.report_claim(B, claim(B, 2), NOW)
    made.report_claim(A, mine, NOW)
    free = made._capacity.nodes
    made._capacity.nodes = lambda: {"n0": subtract_held(known.found["n0"], {"nvidia.com/gpu": 8}), "n1": free()["n1"]}  # type: ignore[method-assign]
    made.admission_of(B, waiting(), NOW + timedelta(seconds=60))
    assert made.admission_of(A, {}, NOW + timedelta(seconds=60)).gives_way == frozenset(), "foreign pods are unknown"
    await made.read_foreign_pods(mine)
    for seconds in range(0, 900, 30):
        clock[0] = 1000.0 + seconds
        assert made.admission_of(A, {}, NOW + timedelta(seconds=65 + seconds)).gives_way == frozenset(), seconds
        await made.read_foreign_pods(mine)
    assert 3 <= len(api.calls) <= 6, "read every few minutes"


async def test_foreign_pods_are_read_for_a_lost_rank_once_in_five_minutes() -> None:
    api = FakeApi({"list_objects Pod": [{"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}]}}]})
    known: Any = Known(3)
    made = Gangs(known, ForeignPods(api, lambda: 1000.0, lambda _: False), lambda _: None)
    need = claim(A, 1).needs
    lost = claim(A, 1, trying=True)._replace(serves=True, idle=IdleNodes(frozenset(), (), (need,), (), since=1.0))
    for _ in range(3):
        await made.read_foreign_pods(lost)
    assert len(api.calls) == 3


def test_extended_attempt_ends_when_another_gang_would_fit() -> None:
    """An attempt that a tenant's annotations or Events have lengthened ends when another service would fit on its nodes."""
    made, _ = gangs(4)
    late, status = NOW + timedelta(seconds=90), {"placement": {"trying": True, "since": "T0"}}
    made.report_claim(A, claim(A, 9, trying=True), NOW)
    assert not made.admission_of(A, status, late).pressed
    made.report_claim(B, claim(B, 5), NOW)
    assert not made.admission_of(A, status, late).pressed, "it would not fit either"
    made.report_claim(B, claim(B, 4), NOW)
    assert made.admission_of(A, status, late).pressed
    assert not made.admission_of(A, status, NOW + timedelta(seconds=59)).pressed


def test_gang_with_wasted_promises_does_not_delay_a_new_one() -> None:
    made, _ = gangs(4)
    made.report_claim(A, claim(A, 3, trying=True), NOW)
    made.report_claim(A, claim(A, 3)._replace(failed=True), NOW + timedelta(seconds=60))
    other = Ref("InferenceService", "quiet", "b")
    assert made.admission_of(other, {}, NOW + timedelta(seconds=60)).rivals == ()
    assert made.admission_of(B, {}, NOW + timedelta(seconds=60)).rivals == (), "B is in the same namespace"
    later = NOW + timedelta(hours=1)
    made.report_claim(A, claim(A, 3), later)
    assert len(made.admission_of(other, {}, later).rivals) == 1
