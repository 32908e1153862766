"""Tests of the text about whether a service would fit now, where, and what would have to be removed."""

import pytest

from ome_operator.core.observed.objects import Node
from ome_operator.core.placement.demand import Demand
from ome_operator.core.placement.need import Need
from ome_operator.describe.fit import NO_NODES, FitAnswer, Holder, NodeToFree, PlacedPods, fit_on_nodes, text

NAME = ("team", "svc")


def nodes(number: int, gpus: int = 8) -> dict[str, Node]:
    """Return this number of nodes with GPUs."""
    room = (("nvidia.com/gpu", gpus), ("pods", 110))
    return {f"n{at}": Node(f"n{at}", 1, {}, True, gpus, room=room) for at in range(number)}


def need(pods: int, gpus: int = 8, title: str = "engine", **more: object) -> Need:
    """Return the need of a role for this number of pods."""
    return Need((title,), title, Demand(requests=(("nvidia.com/gpu", gpus), ("pods", 1))), pods, **more)  # type: ignore[arg-type]


def held(**gpus: int) -> dict[str, dict[str, int]]:
    """Return the GPUs that others hold on nodes."""
    return {name: {"nvidia.com/gpu": count, "pods": 1} for name, count in gpus.items()}


def test_service_fits_beside_other_services() -> None:
    found = fit_on_nodes(NAME, (need(2),), nodes(3), held(n1=8), {"n1": [Holder("other/a", 8)]})
    assert found == FitAnswer(
        *NAME, fits=True, why="", places=(PlacedPods("engine", "n0", 1), PlacedPods("engine", "n2", 1))
    )
    assert text(found) == "team/svc fits now.\n  engine: n0, n2"


def test_pods_share_a_node_unless_anti_affinity_forbids() -> None:
    found = fit_on_nodes(NAME, (need(3, 2),), nodes(3), {}, {})
    assert found.places == (PlacedPods("engine", "n0", 3),)
    assert "n0 (3 pods)" in text(found)
    apart = fit_on_nodes(NAME, (need(2, 2, alone=True),), nodes(3), {}, {})
    assert apart.places == (PlacedPods("engine", "n0", 1), PlacedPods("engine", "n1", 1))
    roles = (need(1, 2, "prefill", apart=(1,)), need(1, 2, "decode", apart=(0,)))
    assert [place.node for place in fit_on_nodes(NAME, roles, nodes(3), {}, {}).places] == ["n0", "n1"]


def test_smallest_holder_is_suggested_to_be_removed() -> None:
    on = {"n0": [Holder("big/a", 8)], "n1": [Holder("small/b", 2)], "n2": []}
    found = fit_on_nodes(NAME, (need(2),), nodes(3), held(n0=8, n1=2), on)
    assert not found.fits and found.places == (PlacedPods("engine", "n2", 1),)
    assert found.goes == (NodeToFree("n1", (Holder("small/b", 2),)),)
    assert found.why == "engine needs 2 nodes with 8 free GPUs: 1 is free, 1 is held by big/a, 1 is held by small/b"
    assert text(found).splitlines()[-1] == "  n1: small/b (2 GPUs)"


@pytest.mark.parametrize("busy", [{}, {"n0": 8}])
def test_service_larger_than_the_cluster_is_reported(busy: dict[str, int]) -> None:
    found = fit_on_nodes(NAME, (need(4),), nodes(3), held(**busy), {})
    assert (found.fits, found.goes) == (False, ())
    assert text(found) == "team/svc does not fit now: engine needs 4 nodes: there are 3 nodes."


def test_missing_resources_other_than_gpus_have_no_holder() -> None:
    found = fit_on_nodes(NAME, (need(1),), nodes(1), {"n0": {"pods": 110}}, {})
    assert found.goes == (NodeToFree("n0", ()),)
    assert "n0: nothing that holds GPUs" in text(found)


def test_service_without_groups_fits_without_nodes() -> None:
    """A service that is scaled to zero fits, even if there are no nodes. Without nodes, there is no other reason."""
    assert fit_on_nodes(NAME, (need(0),), {}, {}, {}) == FitAnswer(*NAME, fits=True, why="")
    assert fit_on_nodes(NAME, (), nodes(1), {}, {}) == FitAnswer(*NAME, fits=True, why="")
    assert fit_on_nodes(NAME, (need(1),), {}, {}, {}).why == NO_NODES
