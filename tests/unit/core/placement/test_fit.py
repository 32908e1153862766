"""Tests of the messages about pods for which the nodes of a cluster have no capacity."""

from typing import Any

import pytest

from ome_operator.core.observed.objects import Node, Taint
from ome_operator.core.placement.demand import Demand, Expression, Term, Toleration
from ome_operator.core.placement.fit import find_unplaced
from ome_operator.core.placement.need import Need

ROOM = (("cpu", 192_000), ("memory", 2 * 2**40), ("nvidia.com/gpu", 8), ("pods", 110))
WHOLE = (("nvidia.com/gpu", 8), ("pods", 1))
TAINT = Taint("dedicated", "team", "NoSchedule")


def nodes(number: int, first: int = 0, **facts: Any) -> dict[str, Node]:
    """Return this number of equal nodes."""
    return {f"n{at}": Node(**{**PLAIN, "name": f"n{at}", **facts}) for at in range(first, first + number)}


PLAIN: dict[str, Any] = {"version": 1, "labels": {"gpu": "H100"}, "ready": True, "gpus": 8, "room": ROOM}


def labelled(**labels: str) -> tuple[Expression, ...]:
    """Return a nodeSelector."""
    return tuple(Expression(key, "In", (value,)) for key, value in labels.items())


def need(title: str = "decode", pods: int = 12, **demand: Any) -> Need:
    """Return the need of a role for this number of pods."""
    return Need((title,), title, Demand(**{"requests": WHOLE, **demand}), pods)


def said(found: dict[str, Node], *needs: Need, lasting: bool = False) -> str:
    """Return all messages."""
    return "; ".join(lack.sentence for lack in find_unplaced(needs, found, lasting))


def test_capacity_message_equals_the_documented_one() -> None:
    asked = need(selector=(Expression("nvidia.com/gpu.product", "In", ("NVIDIA-H300",)),))
    assert said(nodes(16), asked) == "decode needs 12 nodes with nvidia.com/gpu.product=NVIDIA-H300: no node has this label"


CASES: dict[str, tuple[dict[str, Node], Need, str]] = {
    "fits": (nodes(12), need(), ""),
    "no node is known": ({}, need(), ""),
    "nothing is wanted": (nodes(1), need(pods=0), ""),
    "too few": (nodes(10), need(), "decode needs 12 nodes: there are 10 nodes"),
    "a single node": (nodes(1), need(), "decode needs 12 nodes: there is 1 node"),
    "too few with a label": (
        {**nodes(4), **nodes(12, 4, labels={})},
        need(selector=labelled(gpu="H100")),
        "decode needs 12 nodes with gpu=H100: 4 of the 16 nodes have it",
    ),
    "too few of those with a label": (
        {**nodes(14), **nodes(4, 14, labels={})},
        need(selector=labelled(gpu="H100", zone="b")),
        "decode needs 12 nodes with zone=b: none of the 14 nodes with gpu=H100 has this label",
    ),
    "an amount that no node has": (
        nodes(16),
        need(requests=(("nvidia.com/gpu", 16), ("pods", 1))),
        "decode needs 12 nodes with 16 nvidia.com/gpu: no node has as much; the maximum is 8",
    ),
    "a resource that no node has": (
        nodes(16),
        need(requests=(("rdma/hca", 1), ("pods", 1))),
        "decode needs 12 nodes with 1 rdma/hca: no node has any",
    ),
    "memory as people write it": (
        nodes(16),
        need(requests=(("memory", 3 * 2**40), ("pods", 1))),
        "decode needs 12 nodes with 3Ti memory: no node has as much; the maximum is 2Ti",
    ),
    "CPUs as people write them": (
        nodes(16),
        need(requests=(("cpu", 200_500), ("pods", 1))),
        "decode needs 12 nodes with 200500m cpu: no node has as much; the maximum is 192",
    ),
    "a taint": (
        {**nodes(4), **nodes(12, 4, taints=(TAINT,))},
        need(),
        "decode needs 12 nodes without the taint dedicated=team:NoSchedule: 4 of the 16 nodes are without it",
    ),
    "cordoned": (
        {**nodes(4), **nodes(12, 4, ready=False)},
        need(),
        "decode needs 12 nodes that report and are not cordoned: 4 of the 16 nodes do",
    ),
    "all down": (
        nodes(16, ready=False, alive=False),
        need(),
        "decode needs 12 nodes that report and are not cordoned: no node does",
    ),
    "an alternative": (
        nodes(16),
        need(terms=(Term(labelled(a="b"), ()), Term((), labelled(**{"metadata.name": "n77"})))),
        "decode needs 12 nodes with a=b or metadata.name=n77: no node has that",
    ),
    "a name": (
        nodes(16),
        need(terms=(Term((), labelled(**{"metadata.name": "n7"})),)),
        "decode needs 12 nodes with metadata.name=n7: 1 of the 16 nodes has it",
    ),
    "a single node, with one label of two": (
        {**nodes(1), **nodes(1, 1, labels={})},
        need(pods=1, selector=labelled(gpu="H100", zone="b")),
        "decode needs 1 node with zone=b: no node with gpu=H100 has this label",
    ),
    "one that is not cordoned": (
        {**nodes(1), **nodes(2, 1, ready=False)},
        need(pods=2),
        "decode needs 2 nodes that report and are not cordoned: 1 of the 3 nodes does",
    ),
    "several on a node": (nodes(6), need(requests=(("nvidia.com/gpu", 4), ("pods", 1))), ""),
    "too few places": (
        nodes(5),
        need(requests=(("nvidia.com/gpu", 4), ("pods", 1))),
        "decode needs places for 12 pods, on nodes: there are 5 nodes, for 10 pods",
    ),
    "none told its room": (nodes(1, room=()), need(), ""),
    "host ports, although no room was told": (
        nodes(2, room=()),
        need(requests=(("host port 80/TCP", 1), ("pods", 1))),
        "decode needs 12 nodes: there are 2 nodes",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_unplaced_pods_are_described(case: str) -> None:
    found, asked, sentence = CASES[case]
    assert said(found, asked) == sentence


def test_each_role_without_capacity_is_named() -> None:
    found = find_unplaced(
        (need("prefill", 4, selector=labelled(gpu="H300")), need(selector=labelled(gpu="H100"))), nodes(10)
    )
    assert [lack.components for lack in found] == [("prefill",), ("decode",)]


def test_roles_with_equal_requests_are_counted_together() -> None:
    (lack,) = find_unplaced((need("prefill", 4), need("decode", 8)), nodes(11))
    assert lack == (("prefill", "decode"), "prefill and decode need 12 nodes: there are 11 nodes")


def test_roles_that_fit_only_separately_are_reported() -> None:
    """Each role alone fits on the nodes, but both roles together do not, and the message says so. The roles request the same
    nodes in different ways.
    """
    asked = need("prefill", 4, selector=labelled(gpu="H100")), need("decode", 8)
    assert said({**nodes(4), **nodes(8, 4, labels={})}, *asked) == ""
    assert said({**nodes(4), **nodes(7, 4, labels={})}, *asked) == (
        "prefill and decode need places for 12 pods at the same time: the 11 suitable nodes have 11"
    )


def test_ranks_that_share_no_node() -> None:
    half = (("nvidia.com/gpu", 4), ("pods", 1))
    alone = need(requests=half, pods=6)._replace(alone=True)
    assert said(nodes(6), alone) == ""
    assert said(nodes(5), alone) == "decode needs 6 nodes: there are 5 nodes"
    leader, worker = (
        need(requests=half, pods=2)._replace(apart=(1,)),
        need("decode ", requests=half, pods=2)._replace(apart=(0,)),
    )
    assert said(nodes(2), leader, worker) == ""
    assert "the 1 suitable node has 2" in said(nodes(1), leader, worker)


def test_exclusive_ranks_may_share_nodes_with_another_role() -> None:
    half = (("nvidia.com/gpu", 4), ("pods", 1))
    asked = [need(title, requests=half, pods=2)._replace(alone=True) for title in ("prefill", "decode")]
    assert said(nodes(2), *asked) == ""
    assert said(nodes(1), *asked) == "prefill needs 2 nodes: there is 1 node; decode needs 2 nodes: there is 1 node"


def test_transient_node_state_is_ignored_for_lasting_capacity() -> None:
    down = nodes(12, ready=False, alive=False, taints=(Taint("node.kubernetes.io/not-ready", "", "NoExecute"),))
    assert said(down, need(), lasting=True) == ""
    assert said(nodes(12, taints=(TAINT,)), need(), lasting=True) != ""


def test_a_pod_that_tolerates_a_cordon() -> None:
    cordoned = nodes(12, ready=False, taints=(Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"),))
    assert said(cordoned, need(tolerations=(Toleration("", "Exists", "", ""),))) == ""
    assert said(cordoned, need()) != ""


def test_repeated_capacity_question_returns_the_cached_result() -> None:
    found = nodes(16)
    first = find_unplaced((need(selector=labelled(gpu="H300")),), found)
    assert find_unplaced((need(selector=labelled(gpu="H300")),), found) is first


def test_selectors_that_contradict_each_other_are_named() -> None:
    """If the node selectors of a runtime and of a service contradict each other, the message names the label that no node
    has.
    """
    asked = need(selector=labelled(gpu="H100"), terms=(Term((Expression("gpu", "In", ("H200",)),), ()),))
    assert said(nodes(16), asked) == "decode needs 12 nodes with gpu=H200: no node has this label"
    both = need(terms=(Term((Expression("gpu", "Exists", ()), Expression("gpu", "DoesNotExist", ())), ()),))
    assert said(nodes(16), both).startswith("decode needs 12 nodes with the label gpu")


def test_oversized_group_is_refused_immediately() -> None:
    assert said(nodes(16), need(pods=1_000_000_000)) == "decode needs 1000000000 nodes: there are 16 nodes"
    small = (("nvidia.com/gpu", 1), ("pods", 1))
    assert said(nodes(16), need(pods=10**9, requests=small)).endswith("there are 16 nodes, for 128 pods")


def test_a_node_with_ten_thousand_labels_is_a_node() -> None:
    crowd = {f"example.com/label-{at}": "x" * 63 for at in range(10_000)}
    found = {**nodes(11), **nodes(1, 11, labels={**crowd, "gpu": "H100"})}
    assert said(found, need(selector=labelled(gpu="H100"))) == ""
    found = {**nodes(11), **nodes(1, 11, labels=crowd)}
    sentence = said(found, need(selector=labelled(gpu="H100")))
    assert sentence == "decode needs 12 nodes with gpu=H100: 11 of the 12 nodes have it"


@pytest.mark.parametrize(
    ("room", "fits"),
    [
        ((), True),
        ((("nvidia.com/gpu", 10**18), ("pods", 110)), True),
        ((("nvidia.com/gpu", 0), ("pods", 110)), False),
        ((("nvidia.com/gpu", -8), ("pods", 110)), False),
        ((("nvidia.com/gpu", 8), ("pods", 0)), False),
        ((("pods", 110),), False),
    ],
)
def test_reported_amounts_of_nodes_are_trusted_and_missing_ones_suffice(room: Any, fits: bool) -> None:
    """Amounts that a node reports are taken as true, as the scheduler does, and amounts that it does not report are taken to
    be sufficient. A group that cannot be scheduled after all releases its nodes after the timeout.
    """
    assert (said(nodes(12, room=room), need()) == "") is fits
