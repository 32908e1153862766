"""Tests of how many pods fit at the same time."""

import time

import pytest

from ome_operator.core.placement.packing import Amounts, PodClass, largest_packing, most_pods

GPU = "nvidia.com/gpu"
EIGHT: Amounts = ((GPU, 8),)


def kind(pods: int, gpus: int, *apart: int) -> PodClass:
    """Return a kind of pods: this number of pods, each with this number of GPUs."""
    return PodClass(pods, ((GPU, gpus),), frozenset(apart))


def places(room: Amounts, *takes: int, number: int = 1) -> list[tuple[Amounts, frozenset[int]]]:
    """Return identical nodes."""
    return [(room, frozenset(takes))] * number


@pytest.mark.parametrize(
    ("kinds", "nodes", "found"),
    [
        ([kind(2, 4), kind(1, 8)], places(EIGHT, 0, 1, number=2), None),
        ([kind(2, 4), kind(2, 8)], places(EIGHT, 0, 1, number=2), 3),
        # A kind of pod does not fit on a node that it may not use, however much capacity the node has.
        ([kind(2, 2), kind(2, 2)], [*places(EIGHT, 0), *places(((GPU, 2),), 0, 1)], 3),
        # The first kind must not take capacity that only the other kind can use: 5 and 3, 4 and 4, not 4 and 3.
        ([kind(1, 5), kind(1, 3), kind(2, 4)], places(EIGHT, 0, 1, 2, number=2), None),
        ([kind(2, 1, 0)], places(EIGHT, 0), 1),
        ([kind(1, 1, 1), kind(1, 1, 0)], places(EIGHT, 0, 1), 1),
        ([kind(3, 1)], places((), 0), None),
    ],
)
def test_largest_packing_of_pod_classes(
    kinds: list[PodClass], nodes: list[tuple[Amounts, frozenset[int]]], found: int | None
) -> None:
    assert largest_packing(kinds, nodes) == found


def test_number_of_pods_per_node_is_rounded_down() -> None:
    assert (most_pods(((GPU, 3),), EIGHT, 9), most_pods(((GPU, 3),), EIGHT, 1), most_pods(((GPU, 9),), EIGHT, 9)) == (
        2,
        1,
        0,
    )
    assert most_pods((("rdma/hca", 1),), EIGHT, 9) == 0 and most_pods((("rdma/hca", 1),), (), 9) == 9
    assert most_pods((("pods", 1),), EIGHT, 9) == 9 and most_pods((("pods", 1),), (("pods", 2),), 9) == 2


def test_packing_that_needs_minutes_is_assumed_to_fit_quickly() -> None:
    """If an exact answer would take minutes, the pods are assumed to fit, and the function returns within a moment. Three
    kinds of pods need all GPUs of 300 nodes of different sizes.
    """
    nodes = [(((GPU, 40 + at % 7),), frozenset(range(3))) for at in range(300)]
    began = time.process_time()
    assert largest_packing([kind(1000, 5), kind(1000, 3), kind(699, 7)], nodes) is None
    assert time.process_time() - began < 1
