"""Tests of the record of failures by node: what it contains, for how long, and which services avoid which nodes."""

import json
from typing import Any

import pytest

from ome_operator.core.badnodes.blame import FAILURES, LASTS, blamed_nodes, choose_avoided_nodes
from ome_operator.core.badnodes.memory import CLEARED, EXPIRES, PROVEN, remember
from ome_operator.core.badnodes.record import (
    FAULTS,
    NODES,
    WORDS,
    AvoidingServices,
    Memory,
    NodeMemory,
    Role,
    avoided_by,
    limit_memory,
    parse_node_memory,
    status,
)
from ome_operator.core.badnodes.signs import FailureSign, ReadyGroup
from ome_operator.core.observed.objects import Node
from tests.support.bad_nodes import node

T = 1_800_000_000.0
ROLE, OTHER = Role("team", "svc", "engine", "r1"), Role("others", "svc", "engine", "r1")


def nodes(number: int = 30) -> dict[str, Node]:
    """Return the nodes of a cluster."""
    return {f"n{at}": node(f"n{at}") for at in range(number)}


def failures(name: str, times: int, role: Role = ROLE, begin: float = T) -> list[FailureSign]:
    """Return failures on a node, a hundred seconds apart."""
    return [FailureSign(name, role, "Error", begin + 100 * at, "it died") for at in range(times)]


def after(*signs: FailureSign, now: float = T + 1000, memory: Memory | None = None, **more: Any) -> dict[str, NodeMemory]:
    """Return the record of failures by node after these failures. `memory` is the record before them, which is empty by
    default.
    """
    return remember(memory or {}, signs, more.get("ready", ()), more.get("nodes", nodes()), now)


def test_three_failures_blame_a_node() -> None:
    for times in range(1, FAILURES + 3):
        memory = after(*failures("n1", times))
        assert blamed_nodes(memory) == ([(ROLE, "n1")] if times >= FAILURES else [])
        found = choose_avoided_nodes(memory, nodes(), T + 1000)
        assert found.avoided_in("team").keys() == ({"n1"} if times >= FAILURES else set())
        assert not found.avoided_in("elsewhere")
    assert found.avoided_in("team")["n1"] == "engine of team/svc failed on this node 5 times, last with Error: it died"


@pytest.mark.parametrize(
    ("here", "there", "blames"), [(3, 1, True), (3, 2, False), (3, 3, False), (9, 3, True), (8, 3, False)]
)
def test_node_is_blamed_only_if_failures_are_concentrated_on_it(here: int, there: int, blames: bool) -> None:
    memory = after(*failures("n1", here), *failures("n2", there))
    assert blamed_nodes(memory) == ([(ROLE, "n1")] if blames else [])


def test_failures_of_another_revision_or_role_are_counted_apart() -> None:
    newer = ROLE._replace(revision="r2")
    memory = after(*failures("n1", 2), *failures("n1", 2, newer))
    assert blamed_nodes(memory) == []


def test_node_blamed_by_two_namespaces_is_avoided_by_all() -> None:
    memory = after(*failures("n1", 3), *failures("n1", 3, OTHER), *failures("n2", 3, ROLE._replace(service="b")))
    found = choose_avoided_nodes(memory, nodes(), T + 1000)
    assert found.everybody == {"n1": "services of 2 namespaces failed on this node"}, (
        "the message names no tenant to other tenants"
    )
    assert found.namespaces.keys() == {"team"}
    two = after(*failures("n1", 3), *failures("n1", 3, ROLE._replace(service="b")))
    assert not choose_avoided_nodes(two, nodes(), T + 1000).everybody, "two services of one namespace count as one"


def test_node_stays_blamed_after_its_group_is_ready_on_other_nodes() -> None:
    memory = after(*failures("n1", 3))
    proof = ReadyGroup(ROLE, frozenset({"n2"}), T + 300)
    for group, now, sure in (
        (proof, T + 300 + PROVEN, True),
        (proof, T + 299 + PROVEN, False),
        (proof._replace(nodes=frozenset({"n1", "n2"})), T + 2000, False),
        (proof._replace(role=ROLE._replace(revision="r2")), T + 2000, False),
        (proof._replace(since=0.0), T + 2000, False),
    ):
        later = remember(memory, (), [group], nodes(), now)
        assert all(fault.confirmed == sure for fault in later["n1"].faults)
        worse = remember(later, failures("n2", 3, begin=now), (), nodes(), now + 300)
        assert blamed_nodes(worse) == ([(ROLE, "n1"), (ROLE, "n2")] if sure else [])


def test_fault_reported_by_a_node_makes_all_services_avoid_it_if_it_lasts() -> None:
    there = {**nodes(), "n3": node("n3", ("GPUMissing", "7 of 8 are allocatable"))}
    memory = after(nodes=there, now=T)
    assert not choose_avoided_nodes(memory, there, T + LASTS - 1).everybody
    assert choose_avoided_nodes(memory, there, T + LASTS).everybody == {"n3": "GPUMissing: 7 of 8 are allocatable"}
    flap = remember(memory, (), (), nodes(), T + 100)
    assert flap["n3"].faults, "the fault is remembered for a while"
    assert not remember(flap, (), (), nodes(), T + CLEARED)


def test_at_most_a_tenth_of_nodes_is_avoided_in_order_of_blame() -> None:
    signs = [sign for at in range(10) for sign in failures(f"n{at}", 3, ROLE._replace(service=f"s{at}"), T + at)]
    found = choose_avoided_nodes(after(*signs), nodes(30), T + 1000)
    assert found.avoided_in("team").keys() == {"n0", "n1", "n2"}
    assert found.ignored.keys() == {f"n{at}" for at in range(3, 10)}
    assert "the limit of avoided nodes" in found.ignored["n9"]
    few = nodes(5)
    assert choose_avoided_nodes(after(*signs, nodes=few), few, T + 1000).avoided_in("team").keys() == {"n0"}, (
        "at least one node may be avoided"
    )


def test_tenth_is_computed_from_gpu_nodes_if_the_cluster_has_any() -> None:
    there = {**nodes(10), **{f"cpu{at}": node(f"cpu{at}")._replace(gpus=0) for at in range(90)}}
    signs = [sign for at in range(5) for sign in failures(f"n{at}", 3, ROLE._replace(service=f"s{at}"), T + at)]
    assert choose_avoided_nodes(after(*signs, nodes=there), there, T + 1000).avoided_in("team").keys() == {"n0"}


def test_nodes_avoided_by_all_services_count_towards_limit_of_each_namespace() -> None:
    there = {**nodes(20), **{f"n{at}": node(f"n{at}", ("KernelDeadlock", "x")) for at in (7, 8)}}
    memory = after(*failures("n1", 3, begin=T + 400), nodes=there, now=T)
    found = choose_avoided_nodes(memory, there, T + 1000)
    assert found.everybody.keys() == {"n7", "n8"} and not found.namespaces
    assert "n1" in found.ignored


@pytest.mark.parametrize("reporting", [0, 1, 3, 4, 30])
@pytest.mark.parametrize("spaces", [1, 2])
def test_ignored_node_condition_does_not_hide_failures_of_services(reporting: int, spaces: int) -> None:
    """Failures of services on a node count whether or not a fault that many nodes report is ignored on this node. Reported:
    if more than a tenth of the nodes reported KernelDeadlock, services returned to the node on which they had failed.
    """
    there = {name: node(name, *[("KernelDeadlock", "x")] * (at < reporting)) for at, name in enumerate(nodes())}
    signs = [sign for role in (ROLE, OTHER)[:spaces] for sign in failures("n1", 9, role)]
    memory = after(*signs, nodes=there, memory=after(nodes=there, now=T))
    found = choose_avoided_nodes(memory, there, T + 1000)
    assert "n1" in found.avoided_in("team")
    assert ("n1" in found.avoided_in("elsewhere")) == (spaces == 2 or 1 < reporting <= 3)
    assert ("n1" in found.ignored) == (spaces == 1 and reporting > 3)
    assert len(found.ignored) == (reporting - (spaces == 2) if reporting > 3 else 0)


def test_widely_reported_fault_does_not_displace_recorded_service_failures() -> None:
    """A monitor is wrong on more nodes than have a record. The failures of services stay recorded, and the record does not
    change at each evaluation.
    """
    there = {f"n{at}": node(f"n{at}", ("KernelDeadlock", "x")) for at in range(5 * NODES)}
    memory = after(*failures("n1", 3), nodes=there)
    for now in (T + 1010, T + 1020, T + 2000):
        memory = after(memory=memory, nodes=there, now=now)
        assert memory.keys() == {"n1"} and choose_avoided_nodes(memory, there, now).avoided_in("team").keys() == {"n1"}
    few = dict(list(there.items())[:NODES])
    assert after(nodes=few).keys() == few.keys(), "a fault of fewer nodes is remembered"


def test_each_namespace_has_its_own_limit_of_avoided_nodes() -> None:
    signs = [sign for at in range(30) for sign in failures(f"n{at}", 3, ROLE._replace(namespace=f"team{at}"))]
    found = choose_avoided_nodes(after(*signs), nodes(), T + 1000)
    assert not found.everybody
    assert {space: set(each) for space, each in found.namespaces.items()} == {f"team{at}": {f"n{at}"} for at in range(30)}


def test_failures_caused_by_a_tenant_do_not_displace_faults_reported_by_nodes() -> None:
    """A tenant with two namespaces makes its containers fail on 250 nodes, while another node reports a fault of its own
    (finding U15). The fault of that node stays recorded and avoided. Previously, the tenant's failures filled the record
    and the tenth of nodes that may be avoided.
    """
    there = {**nodes(300), "n299": node("n299", ("GPUMissing", "7 of 8 are allocatable"))}
    memory: Memory = {}
    for now in (T, T + 100, T + 200, T + LASTS):
        signs = [FailureSign(f"n{at}", role, "Error", now, "it died") for at in range(250) for role in (ROLE, OTHER)]
        memory = remember(memory, signs, (), there, now)
    assert len(memory) == NODES and choose_avoided_nodes(memory, there, T + LASTS).everybody == {
        "n299": "GPUMissing: 7 of 8 are allocatable"
    }
    few = {**nodes(9), "n9": node("n9", ("GPUMissing", "7 of 8 are allocatable"))}
    memory = after(*failures("n1", 3), *failures("n1", 3, OTHER), nodes=few, now=T + 200)
    assert choose_avoided_nodes(memory, few, T + 200).everybody.keys() == {"n1"}
    assert choose_avoided_nodes(memory, few, T + 200 + LASTS).everybody.keys() == {"n9"}, "a single node may be avoided here"


def test_remembered_failures_expire() -> None:
    memory = after(*failures("n1", 3))
    assert after(memory=memory, now=T + 200 + EXPIRES - 1) == memory
    assert after(memory=memory, now=T + 200 + EXPIRES) == {}


def test_forgiven_node_is_blamed_again_only_for_later_failures() -> None:
    there = {**nodes(), "n1": node("n1", ("KernelDeadlock", "x"))}
    memory = after(*failures("n1", 3), nodes=there)
    memory["n1"] = memory["n1"]._replace(forgiven=T + 1001)
    later = after(*failures("n1", 3), memory=memory, nodes=there, now=T + 1002)
    assert [fault.kind for fault in later["n1"].faults] == ["KernelDeadlock"], "a fault that the node still reports is kept"
    assert not choose_avoided_nodes(later, there, T + 5000).avoided_in("team"), "the failures were reset"
    again = after(*failures("n1", 3, begin=T + 2000), memory=later, nodes=there, now=T + 3000)
    assert choose_avoided_nodes(again, there, T + 3000).avoided_in("team").keys() == {"n1"}


def test_new_node_with_same_name_has_no_recorded_failures() -> None:
    memory = after(*failures("n1", 3))
    assert after(memory=memory, nodes={**nodes(), "n1": node("n1", uid="another")}) == {}
    assert after(memory=memory, nodes={name: each for name, each in nodes().items() if name != "n1"}) == {}


def test_failures_on_nodes_that_do_not_exist_are_left_out() -> None:
    assert after(*failures("gone", 3)) == {}


def test_remembered_faults_are_limited() -> None:
    there = {f"n{at}": node(f"n{at}", (f"Fault{at % 3}", "x" * 9999)) for at in range(3 * NODES)}
    signs = [FailureSign("n7", ROLE._replace(service=f"s{at}"), "Error", T + at, "y" * 9999) for at in range(5 * FAULTS)]
    memory = after(*signs, nodes=there)
    assert len(memory) == NODES
    assert max(len(known.faults) for known in memory.values()) <= FAULTS
    assert max(len(json.dumps(status(known, []))) for known in memory.values()) < 16_000
    known = limit_memory({"n7": after(*signs)["n7"]})["n7"]
    assert {fault.role.service for fault in known.faults if fault.role} == {f"s{at}" for at in range(4 * FAULTS, 5 * FAULTS)}


def test_stored_node_memory_is_parsed_back() -> None:
    there = {**nodes(), "n1": node("n1", ("KernelDeadlock", "x"))}
    memory = after(*failures("n1", 3), *failures("n1", 1, OTHER), nodes=there)
    for name, known in memory.items():
        said = json.loads(json.dumps(status(known, [AvoidingServices("", "it broke")])))
        assert parse_node_memory(said, 0.0) == known
        assert said["avoided"] == "by all services: it broke"
        assert parse_node_memory(said, 7.0).forgiven == 7.0, name


SPOOF = AvoidingServices("evil", "it died: by services of victim: x")


@pytest.mark.parametrize(
    ("avoiders", "by"),
    [
        ([], ""),
        ([AvoidingServices("", "KernelDeadlock")], "team evil victim"),
        ([AvoidingServices("team", "x" * 400), AvoidingServices("victim", "y")], "team victim"),
        ([SPOOF], "evil"),
    ],
)
def test_avoiding_namespaces_are_stored_in_a_separate_status_field(avoiders: list[AvoidingServices], by: str) -> None:
    """The status of a NodeFault lists the namespaces that avoid the node in a separate field, because the message is
    truncated and contains the last log lines of containers.
    """
    stored = status(NodeMemory("uid"), avoiders)
    assert len(stored.get("avoided", "")) <= WORDS
    assert [name for name in ("team", "evil", "victim") if avoided_by(stored, name)] == by.split()


@pytest.mark.parametrize(
    ("stored", "by"),
    [
        ({"avoided": "by all services: x"}, "team evil"),
        ({"avoided": "by services of team: x; by services of evil: y"}, "team evil"),
        ({"avoided": "by services of evil: y"}, "evil"),
        ({"avoided": 7}, ""),
        ({"avoided": "by all services: x", "avoidedBy": "odd"}, ""),
        ({"avoided": "by all services: x", "avoidedBy": [None, 3, {"namespace": "team"}]}, "team"),
    ],
)
def test_avoiding_services_are_parsed_from_old_and_malformed_status(stored: dict[str, Any], by: str) -> None:
    assert [name for name in ("team", "evil") if avoided_by(stored, name)] == by.split()


@pytest.mark.parametrize(
    "stored",
    [
        {}, {"faults": None}, {"faults": "x"}, {"faults": [None, 1, "x", {}, {"kind": 7}]}, {"nodeUID": 7, "faults": {}},
    ],
)  # fmt: skip
def test_malformed_node_fault_status_is_parsed_as_empty(stored: dict[str, Any]) -> None:
    assert parse_node_memory(stored, 0.0).faults == ()


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "1969-12-31T23:59:59Z"])
def test_stored_times_outside_valid_years_are_clamped(text: str) -> None:
    """A stored time before 1970, or outside the years 1 to 9999 in UTC, is read as a time that can be written again. With
    the stored time, the operator could not write the object.
    """
    stored = {"faults": [{"kind": "Error", "namespace": "a", "first": text, "last": text}]}
    known = parse_node_memory(stored, 0.0)
    assert parse_node_memory(status(known, []), 0.0) == known


def test_invalid_fault_entries_are_limited() -> None:
    odd = {"kind": "Error", "namespace": "a", "count": 10**9, "first": "never", "last": None, "message": "z" * 9999}
    (fault,) = parse_node_memory({"faults": [odd]}, 0.0).faults
    assert (fault.times, fault.first, fault.last, len(fault.message)) == (1000, 0.0, 0.0, WORDS)
