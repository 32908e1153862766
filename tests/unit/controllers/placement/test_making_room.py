"""Tests of what keeps a service from moving to other nodes: known services, promised capacity and foreign pods."""

from typing import Any

import pytest

from ome_operator.cache.foreign_pods import FRESH, ForeignPods
from ome_operator.controllers.placement.gangs import Gangs
from ome_operator.core.placement.demand import Demand
from ome_operator.core.placement.need import Need
from ome_operator.kube.errors import Forbidden
from tests.support.fake_api import Call, FakeApi
from tests.unit.controllers.placement.test_gangs import NOW, A, B, Known, claim

BOX = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}


def gangs(nodes: int, pods: Any) -> tuple[Gangs, FakeApi]:
    """Return the placement on a cluster without pods of the operator. `pods` is the response to requests for the pods of a
    node.
    """
    known: Any = Known(nodes)
    known.pods_of = lambda *_: ()
    api = FakeApi({"list_objects Pod": pods})
    return Gangs(known, ForeignPods(api, lambda: 1000.0, lambda _: False), lambda _: None), api


async def test_foreign_pods_are_read_on_every_apparently_free_node() -> None:
    def pods(call: Call) -> Any:
        return [{"spec": BOX}] if call.selector in ("spec.nodeName=n0", "spec.nodeName=n3") else []

    made, api = gangs(4, pods)
    assert (
        await made.check_capacity(A, claim(A, 3).needs, NOW)
        == "engine needs 3 nodes with 8 free GPUs: 2 are free, 2 are held by others"
    )
    assert len(api.calls) == 4
    assert await made.check_capacity(A, claim(A, 2).needs, NOW) == ""


@pytest.mark.parametrize(("free", "reads"), [(0, {250}), (2, {100, 200, 250}), (250, {100})])
async def test_only_as_many_nodes_are_read_as_the_result_needs(free: int, reads: set[int]) -> None:
    """Only as many nodes are read for foreign pods as the result needs. Foreign pods on the first hundred nodes, in any
    order, say nothing about the other nodes.
    """
    names = {f"spec.nodeName=n{at}" for at in range(free)}
    made, api = gangs(250, lambda call: [] if call.selector in names else [{"spec": BOX}])
    assert (await made.check_capacity(A, claim(A, 2).needs, NOW) == "") == bool(free)
    assert len(api.calls) in reads


async def test_foreign_pods_are_read_again_after_their_record_expired() -> None:
    clock, there = [1000.0], [[{"spec": BOX}]]
    known: Any = Known(2)
    known.pods_of = lambda *_: ()
    api = FakeApi({"list_objects Pod": lambda _: there[0]})
    made = Gangs(known, ForeignPods(api, lambda: clock[0], lambda _: False), lambda _: None)
    assert "2 are held by others" in await made.check_capacity(A, claim(A, 1).needs, NOW)
    there[0] = []
    assert "2 are held by others" in await made.check_capacity(A, claim(A, 1).needs, NOW), (
        "within ten seconds nothing is read again"
    )
    clock[0] += FRESH + 1
    assert await made.check_capacity(A, claim(A, 1).needs, NOW) == ""


async def test_foreign_pods_are_not_read_if_the_result_is_already_known() -> None:
    made, api = gangs(4, [])
    made.report_claim(B, claim(B, 2, trying=True), NOW)
    promised = "engine needs more capacity than is free and not reserved for groups that are being placed"
    assert await made.check_capacity(A, claim(A, 3).needs, NOW) == promised
    assert await made.check_capacity(A, claim(A, 5).needs, NOW) == "engine needs 5 nodes: there are 4 nodes"
    assert api.calls == []
    made.report_claim(B, None, NOW)
    assert await made.check_capacity(A, claim(A, 3).needs, NOW) == ""


async def test_unschedulable_pods_do_not_keep_others_from_nodes() -> None:
    """Pods that fit on no node do not keep other services from the nodes. Such pods stay pending, perhaps forever, so that
    an autoscaler sees them.
    """
    made, _ = gangs(4, [])
    too_large = Need(("engine",), "engine", Demand(requests=(("nvidia.com/gpu", 16),)), 1)
    made.report_claim(B, claim(B, 1, trying=True)._replace(needs=(too_large,), since=0.0), NOW)
    assert await made.check_capacity(A, claim(A, 3).needs, NOW) == ""


async def test_own_claim_does_not_count_as_a_rival() -> None:
    made, _ = gangs(4, [])
    made.report_claim(A, claim(A, 3, trying=True), NOW)
    assert await made.check_capacity(A, claim(A, 3).needs, NOW) == ""


async def test_known_pods_decide_if_foreign_pods_cannot_be_read() -> None:
    made, _ = gangs(4, Forbidden("no"))
    assert await made.check_capacity(A, claim(A, 4).needs, NOW) == ""


async def test_same_free_capacity_is_not_promised_to_two_services() -> None:
    """The same free capacity is not promised to two services. The first one has no claim before its new pods exist, which
    may take as long as an old leader needs to stop.
    """
    made, _ = gangs(4, [])
    assert await made.check_capacity(A, claim(A, 3).needs, NOW) == ""
    made.report_claim(A, None, NOW, moves=True)
    assert await made.check_capacity(B, claim(B, 3).needs, NOW) != ""
    assert await made.check_capacity(B, claim(B, 1).needs, NOW) == ""
    assert await made.check_capacity(A, claim(A, 3).needs, NOW) == "", "its own promise counts as free"
    made.report_claim(A, None, NOW)
    made.report_claim(B, None, NOW)
    assert await made.check_capacity(B, claim(B, 3).needs, NOW) == ""


@pytest.mark.parametrize(("wanted", "fits", "reads"), [(2, True, 4), (3, False, 4), (5, False, 0)])
async def test_second_copy_needs_unpromised_free_nodes(wanted: int, fits: bool, reads: int) -> None:
    """A second copy of a service needs nodes that nobody holds and that are promised to no other service. Of four nodes, two
    are held by foreign pods. If the nodes could not hold the copy even without these, nothing is read.
    """
    made, api = gangs(4, lambda call: [{"spec": BOX}] if call.selector in ("spec.nodeName=n0", "spec.nodeName=n3") else [])
    assert (await made.check_second_copy(claim(A, wanted).needs) == "") == fits
    assert len(api.calls) == reads
    assert await made.check_capacity(B, claim(B, 2).needs, NOW) == ""


async def test_nodes_with_unreadable_pods_hold_no_second_copy() -> None:
    made, _ = gangs(4, Forbidden("no"))
    assert await made.check_second_copy(claim(A, 1).needs)
