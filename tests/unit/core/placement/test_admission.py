"""Tests of the order in which waiting gangs are admitted, given what each gang needs and what is free."""

from datetime import UTC, datetime
from typing import Any

import pytest

from ome_operator.core.observed.objects import Node
from ome_operator.core.placement import packing
from ome_operator.core.placement import promises as module
from ome_operator.core.placement.admission import admit
from ome_operator.core.placement.claims import Claim, is_contested, subtract_held
from ome_operator.core.placement.demand import Demand, Expression
from ome_operator.core.placement.fit import Needs
from ome_operator.core.placement.need import Need

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
LONG_AGO = NOW.timestamp() - 3600
GPU = "nvidia.com/gpu"


def nodes(**pools: int) -> dict[str, Node]:
    """Return this number of nodes for each pool."""
    names = [(f"{pool}{at}", pool) for pool, number in pools.items() for at in range(number)]
    return {name: Node(name, 1, {"pool": pool}, True, 8, room=((GPU, 8),)) for name, pool in names}


def needs(pods: int, pool: str = "") -> Needs:
    """Return the needs of a gang with this number of pods, each of which takes a node."""
    selector = (Expression("pool", "In", (pool,)),) if pool else ()
    return (Need(("engine",), "engine", Demand(selector, requests=((GPU, 8),)), pods),)


def claim(key: str, pods: int, pool: str = "", **facts: Any) -> Claim:
    """Return the claim of a gang that has been waiting for a moment."""
    return Claim(**{"key": key, "needs": needs(pods, pool), "trying": False, "since": NOW.timestamp(), **facts})


def granted(*claims: Claim, on: dict[str, Node], free: dict[str, Node] | None = None) -> dict[str, bool]:
    return dict(admit(claims, on, on if free is None else free, NOW, 60.0).admitted)


def test_higher_pod_priority_is_admitted_before_an_older_gang() -> None:
    old, young = claim("old", 3, first=1.0), claim("young", 3, first=2.0, priority=1000)
    assert granted(old, young, on=nodes(a=4)) == {"young": True}
    assert granted(old, young._replace(priority=0), on=nodes(a=4)) == {"old": True}
    assert granted(old._replace(priority=-5), young._replace(priority=0), on=nodes(a=4)) == {"young": True}


def test_gang_that_fits_is_admitted_before_a_larger_one_that_does_not() -> None:
    assert granted(claim("large", 9, first=1.0, priority=9), claim("small", 2), on=nodes(a=4)) == {"small": True}


def test_capacity_of_a_gang_being_placed_is_reserved() -> None:
    assert granted(claim("tries", 3, trying=True), claim("waits", 2), on=nodes(a=4)) == {}
    assert granted(claim("tries", 2, trying=True), claim("waits", 2), on=nodes(a=4)) == {"waits": True}


def test_attempt_without_capacity_blocks_only_nodes_of_its_own_pool() -> None:
    """A gang whose attempt finds no capacity keeps other gangs only from the nodes of its own pool. Previously, a gang whose
    pods were created although they fit on no node of its pool blocked every other service of the cluster.
    """
    on = nodes(a=4, b=4)
    tries = claim("tries", 9, "a", trying=True)
    assert granted(tries, claim("other", 4, "b"), on=on) == {"other": True}
    assert granted(tries, claim("same", 1, "a"), on=on) == {}
    assert granted(tries, claim("any", 4), on=on) == {"any": True}, "it fits on the nodes of the other pool"
    assert granted(tries, claim("any", 5), on=on) == {}


def test_serving_service_without_capacity_blocks_no_other_service() -> None:
    """A service that serves and has lost a rank together with its node finds no other node for days. It does not keep other
    services from being admitted.
    """
    lost = claim("serves", 2, "a", trying=True, serves=True)
    on = nodes(a=4)
    free = {name: node for name, node in on.items() if name == "a0"}
    assert granted(lost, claim("small", 1, "a"), on=on, free=free) == {"small": True}
    assert granted(lost, claim("large", 3, "a"), on=on) == {}, "nodes on which it fits are promised to it"


def test_speculative_attempts_on_different_nodes_run_in_parallel() -> None:
    on = nodes(a=1, b=1)
    first, second, third = (
        claim("first", 9, "a", since=LONG_AGO),
        claim("second", 9, "b", since=LONG_AGO),
        claim("third", 9, "a", since=LONG_AGO),
    )
    assert granted(first, second, third, on=on) == {"first": False, "second": False}
    assert granted(claim("serves", 9, "a", trying=True, serves=True), first, on=on) == {"first": False}
    assert granted(claim("tries", 1, "a", trying=True), first, on=on) == {}


def test_waiting_gang_gets_reason() -> None:
    on = nodes(a=4)
    rested = admit([claim("a", 2, rested=False)], on, on, NOW, 60.0)
    assert rested.admitted == {} and "although capacity seemed sufficient" in rested.waits["a"]
    assert admit([claim("a", 3, first=1.0), claim("b", 3, first=2.0)], on, on, NOW, 60.0).waits == {
        "b": "a is being placed first"
    }
    free = {name: node for name, node in on.items() if name != "a3"}
    times = [NOW.replace(minute=minute) for minute in range(0, 40, 10)]
    told = []
    for at in times:
        large, small = (claim(key, pods, first=LONG_AGO, since=at.timestamp()) for key, pods in (("large", 4), ("small", 1)))
        told.append(admit([large, small], on, free, at, 60.0).waits.get("small", ""))
    assert sorted(told) == ["", "", "", "nodes are reserved for large at present"], "in ten of each forty minutes"


def test_gangs_that_want_the_same_nodes_contest_them() -> None:
    on = nodes(a=2, b=2)
    assert is_contested(needs(1), [claim("w", 3, "a")], on)
    assert not is_contested(needs(1, "b"), [claim("w", 3, "a")], on)
    assert not is_contested(needs(1), [], on)


def test_a_thousand_identical_claims_are_checked_once(monkeypatch: Any) -> None:
    asked = []
    fits = module.all_fit
    monkeypatch.setattr(module, "all_fit", lambda *given: (asked.append(1), fits(*given))[1])
    on = nodes(a=20)
    told = admit([claim(f"s{at}", 30, first=float(at)) for at in range(1000)], on, on, NOW, 60.0)
    assert not told.admitted and len(told.waits) == 1000 and len(asked) <= 5


def test_free_capacity_of_a_node_is_never_negative() -> None:
    """The free capacity of a node is never negative. After pods were bound to this node, it reported fewer GPUs than they
    use.
    """
    on = nodes(a=1)
    assert dict(subtract_held(on["a0"], {GPU: 20}).room) == {GPU: 0}


def test_claims_of_many_pod_kinds_are_decided_with_one_check_per_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Claims with many different kinds of pods are decided without an exhaustive search, and each kind is evaluated once. Of
    5,000 nodes, 50 are free, and 100 waiting services request different amounts of CPU. This once took 27 seconds.
    """
    asked: list[int] = []
    compare = module.all_fit
    monkeypatch.setattr(
        module, "all_fit", lambda needs, ground: (asked.append(len(ground.nodes)), compare(needs, ground))[1]
    )
    monkeypatch.setattr(packing, "_searched", lambda *_: pytest.fail("it searched"))
    full = {name: node._replace(room=((GPU, 0), ("cpu", 64_000))) for name, node in nodes(a=5000).items()}
    free = {**full, **{name: node._replace(room=((GPU, 8), ("cpu", 64_000))) for name, node in nodes(a=50).items()}}
    claims = []
    for at in range(100):
        demand = Demand(requests=((GPU, 8), ("cpu", 1000 + at % 10)))
        claims.append(claim(f"w{at:02}", 1, first=float(at))._replace(needs=(Need(("e",), "e", demand, 2 + at % 16),)))
    found = granted(*claims, on=nodes(a=5000), free=free)
    placed = sum(each.needs[0].pods for each in claims if each.key in found)
    assert found and 40 <= placed <= 50
    assert {*asked[1:]} == {50} and len(asked) < 2 * 160 + 2 * len(found), "only free nodes, once per kind and size"
