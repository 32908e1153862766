"""Read the fitted constants of the model from data/fitted.yaml, which `python -m ome_operator.sizing.fit` writes."""

import math
from collections.abc import Iterable, Mapping
from functools import cache

from ome_operator.util import package_data
from ome_operator.util.kubeyaml import document


class Constants:
    """The fitted constants, stored as logarithms. A factor of the model is the product of a base constant and its
    deviations for an engine, a GPU and a precision.
    """

    def __init__(self, logs: Mapping[str, float]) -> None:
        self.logs = dict(logs)

    def factor(self, *names: str) -> float:
        """Return the product of the constants with these names. A name that was not fitted counts as 1."""
        return math.exp(sum(self.logs.get(name, 0.0) for name in names))

    @classmethod
    def of_data_sheets(cls, families: Iterable[str]) -> "Constants":
        """Return constants with which every kernel and message reaches the rates of the data sheet."""
        return cls({f"decode.weights.{family}": 0.0 for family in families})

    def knows(self, family: str) -> bool:
        """Return whether the constants were fitted to rows of this family of GPUs."""
        return f"decode.weights.{family}" in self.logs


@cache
def shipped_constants() -> Constants:
    """Return the constants that the package ships."""
    text = package_data.text("ome_operator.sizing", "fitted.yaml")
    return Constants(document(text)["constants"])
