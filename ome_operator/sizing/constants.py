"""The fitted numbers, by name. data/fitted.yaml has them, `python -m ome_operator.sizing.fit` writes it."""

import math
from collections.abc import Mapping
from functools import cache

from ome_operator.util import package_data
from ome_operator.util.kubeyaml import document


class Constants:
    """Logarithms of factors. A factor is the product of its base and of deviations for an engine, GPU, precision."""

    def __init__(self, logs: Mapping[str, float]) -> None:
        self.logs = dict(logs)

    def factor(self, *names: str) -> float:
        """The product of these; a deviation that nobody fitted is 1."""
        return math.exp(sum(self.logs.get(name, 0.0) for name in names))


@cache
def fitted() -> Constants:
    """The shipped numbers."""
    text = package_data.text("ome_operator.sizing", "fitted.yaml")
    return Constants(document(text)["constants"])
