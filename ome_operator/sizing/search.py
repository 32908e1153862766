"""The smallest number of nodes that does what was asked."""

from dataclasses import replace

from ome_operator.sizing.constants import Constants
from ome_operator.sizing.layouts import Ask, layouts
from ome_operator.sizing.refused import RefusedError

STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128)


def smallest(ask: Ask, c: Constants) -> Ask:
    """The question with the fewest nodes of STEPS that have an answer; what is wrong with the largest where none has."""
    most = ask.place.shape.experts or 256
    last: RefusedError | None = None
    for nodes in (nodes for nodes in STEPS if nodes <= most):
        try:
            layouts(replace(ask, nodes=nodes), c)
        except RefusedError as error:
            last = error
        else:
            return replace(ask, nodes=nodes)
    raise last or RefusedError(f"{ask.place.shape.name} has too few experts for two nodes.")
