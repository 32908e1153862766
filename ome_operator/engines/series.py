"""The Prometheus metrics of engines and routers, and whether the engine in a container exposes them. The facts are stored
as data.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from ome_operator.engines.routers import parts
from ome_operator.engines.servers import server
from ome_operator.util import package_data
from ome_operator.util.kubeyaml import document


class Series(NamedTuple):
    """The Prometheus metrics of an engine or router."""

    flag: str
    """Argument that enables the metrics; "" if they are always enabled."""
    names: frozenset[str]
    """Names of the series, as in a query. Only series that our panels and alerts may read are included."""


@cache
def known_series() -> Mapping[str, Series]:
    """Return the metrics of all engines and routers for which data exists, by name of the engine or router."""
    text = package_data.text(__package__, "series.yaml")
    return {name: Series(entry["flag"], frozenset(entry["series"])) for name, entry in document(text).items()}


def missing_flag(container: Mapping[str, Any]) -> str:
    """Return the argument that is missing for the engine in a container to expose metrics. Return "" if the engine
    exposes them or is unknown.
    """
    engine = server(container)
    flag = known_series()[engine.name].flag if engine is not None and engine.name in known_series() else ""
    words = [word for part in parts(container) for word in part.split()]
    return "" if not flag or any(word.partition("=")[0] == flag for word in words) else flag
