"""Find layouts for a given number of nodes, or for the smallest number that has a layout within the requested bounds."""

from collections.abc import Sequence
from dataclasses import replace

from ome_operator.sizing.constants import Constants
from ome_operator.sizing.errors import PlanRefused
from ome_operator.sizing.layouts import Layout, check, layouts, try_all, why_none
from ome_operator.sizing.request import PlanRequest

STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128)


def found_layouts(request: PlanRequest, nodes: int | None, c: Constants) -> tuple[PlanRequest, Sequence[Layout]]:
    """Return the request with its number of nodes, and its layouts, best first. If `nodes` is None, the smallest number of
    nodes that has a layout is used.

    Raises PlanRefused with the reason if there is no layout.
    """
    if nodes is None:
        return smallest_request(request, c)
    sized = replace(request, nodes=nodes)
    return sized, layouts(sized, c)


def smallest_request(request: PlanRequest, c: Constants) -> tuple[PlanRequest, Sequence[Layout]]:
    """Return the request with the smallest number of nodes in STEPS that has a layout within the bounds, and its layouts,
    best first.

    Raises PlanRefused if no number of nodes has such a layout. The message states the reason for the largest number.
    """
    most = request.place.shape.experts or 256
    check(request, c)
    for nodes in (nodes for nodes in STEPS if nodes <= most):
        sized = replace(request, nodes=nodes)
        tried = try_all(sized, c)
        if tried.good_layouts:
            return sized, tried.good_layouts
    raise PlanRefused(why_none(sized, tried, c))
