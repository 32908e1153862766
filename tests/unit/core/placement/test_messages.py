"""Tests of the message about the capacity for which a gang waits."""

from ome_operator.core.observed.objects import Node
from ome_operator.core.placement.claims import subtract_held
from ome_operator.core.placement.demand import Demand, Expression
from ome_operator.core.placement.messages import describe_awaited_nodes, held_by_services, without_capacity
from ome_operator.core.placement.need import Need

GPU = "nvidia.com/gpu"
ROOM = ((GPU, 8), ("cpu", 192_000), ("pods", 110))
NODES = {f"n{at}": Node(f"n{at}", 1, {}, True, 8, room=ROOM) for at in range(16)}


def need(pods: int, title: str = "prefill", gpus: int = 8, cpu: int = 1000) -> Need:
    return Need((title,), title, Demand(requests=((GPU, gpus), ("cpu", cpu), ("pods", 1))), pods)


def said(*needs: Need, held: dict[str, dict[str, int]], by: dict[str, str]) -> str:
    free = {name: subtract_held(node, held.get(name, {})) for name, node in NODES.items()}
    return describe_awaited_nodes(needs, NODES, free, lambda node: [by[node]] if node in by else [])


def taken(*numbers: int, **amounts: int) -> dict[str, dict[str, int]]:
    return {f"n{at}": {GPU: 8, **amounts} for at in numbers}


def test_waiting_message_equals_the_documented_one() -> None:
    by = {f"n{at}": "gang/two, which serves" for at in range(4)}
    assert said(need(4), need(12, "decode"), held=taken(0, 1, 2, 3), by=by) == (
        "16 nodes with 8 free GPUs: 12 are free, 4 are held by gang/two, which serves"
    )


def test_message_limits_number_of_holders() -> None:
    by = {f"n{at}": f"ns/s{at // 2}" for at in range(10)}
    assert said(need(9), held=taken(*range(11)), by=by) == (
        "9 nodes with 8 free GPUs: 5 are free, 2 are held by ns/s0, 2 are held by ns/s1, 2 are held by ns/s2, "
        "5 are held by 3 others"
    )
    assert said(need(1), held=taken(*range(16)), by={}) == "1 node with 8 free GPUs: 0 are free, 16 are held by others"


def test_waiting_message_names_the_missing_resource() -> None:
    """The message names the resource that is missing. The GPUs are free here, and a pod of another user holds the CPUs."""
    held = {f"n{at}": {"cpu": 190_000} for at in range(15)}
    assert said(need(2, cpu=64_000), held=held, by={}) == "2 nodes with 64 free cpu: 1 is free, 15 are held by others"


def test_message_counts_places_on_shared_nodes() -> None:
    found = said(need(40, gpus=2), held=taken(0, 1), by={"n0": "ns/a", "n1": "ns/a"})
    assert found == "places for 40 pods with 2 free GPUs: 56 are free, 8 are held by ns/a"


def holding(*needs: Need, held: dict[str, dict[str, int]], by: dict[str, str]) -> str:
    free = {name: subtract_held(node, held.get(name, {})) for name, node in NODES.items()}
    return held_by_services(needs, NODES, free, lambda node: [by[node]] if node in by else [])


def test_message_names_only_services_that_hold_usable_capacity() -> None:
    """The message names only services that hold what the waiting pods could use. It does not name other users' pods, a pod
    that leaves enough capacity, or pods on unsuitable nodes.
    """
    by = {f"n{at}": f"ns/s{at // 2}" for at in range(6)}
    assert holding(need(4), held=taken(*range(8)), by=by) == (
        "of the nodes that its pods could take, 2 are held by ns/s0, 2 are held by ns/s1, 2 are held by ns/s2"
    )
    assert holding(need(4), held=taken(7), by=by) == ""
    assert holding(need(4, gpus=2), held={"n0": {GPU: 4}}, by=by) == (
        "of the places that its pods could take, 2 are held by ns/s0"
    )
    elsewhere = need(4)._replace(demand=Demand((Expression("pool", "In", ("a",)),), requests=((GPU, 8),)))
    assert holding(elsewhere, held=taken(*range(8)), by=by) == ""


def test_impossible_requests_are_reported_as_impossible() -> None:
    selector = (Expression("pool", "In", ("a",)), Expression("pool", "In", ("b",)))
    asked = need(2)._replace(demand=Demand(selector))
    assert said(asked, held={}, by={}) == "prefill needs 2 nodes with pool=a: no node has this label"
    assert said(need(17), held={}, by={}) == "prefill needs 17 nodes: there are 16 nodes"


def lacks(*needs: Need, held: dict[str, dict[str, int]], by: dict[str, str]) -> str:
    free = {name: subtract_held(node, held.get(name, {})) for name, node in NODES.items()}
    return without_capacity(needs, NODES, free, lambda node: [by[node]] if node in by else [])


def test_message_names_pods_that_do_not_fit_alone() -> None:
    """The message names only the role whose pods do not fit even without the pods of the other role. If the pods of each
    role fit alone, the message says that both roles together need more capacity than is free.
    """
    free = dict.fromkeys((f"n{at}" for at in range(12)), "gang/two, which serves")
    assert lacks(need(2, cpu=2000), need(6, "decode"), held=taken(*range(12)), by=free) == (
        "decode needs 6 nodes with 8 free GPUs: 4 are free, 12 are held by gang/two, which serves"
    )
    assert lacks(need(3, cpu=2000), need(3, "decode"), held=taken(*range(12)), by=free) == (
        "prefill and decode together need more capacity than is free and not reserved for groups that are being placed"
    )
    assert lacks(need(2, "prefill and decode"), held=taken(*range(15)), by={}) == (
        "prefill and decode need 2 nodes with 8 free GPUs: 1 is free, 15 are held by others"
    )
    assert lacks(need(17), held={}, by={}) == "prefill needs 17 nodes: there are 16 nodes"
