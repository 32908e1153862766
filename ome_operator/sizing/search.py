"""The smallest number of nodes that does what is asked for."""

from collections.abc import Sequence
from dataclasses import replace

from ome_operator.sizing.constants import Constants
from ome_operator.sizing.layouts import Layout, PlanRequest, check, try_all, why_none
from ome_operator.sizing.refused import PlanRefused

STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128)


def smallest(request: PlanRequest, c: Constants) -> tuple[PlanRequest, Sequence[Layout]]:
    """Return the request with the fewest nodes of STEPS that have a good layout, and its layouts, best first.

    Raises PlanRefused with the reason for the largest number of nodes if none has.
    """
    most = request.place.shape.experts or 256
    check(request)
    for nodes in (nodes for nodes in STEPS if nodes <= most):
        sized = replace(request, nodes=nodes)
        tried = try_all(sized, c)
        if tried.good:
            return sized, tried.good
    raise PlanRefused(why_none(sized, tried, c))
