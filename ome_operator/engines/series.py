"""What engines and routers tell Prometheus, and whether a container's engine does. The facts are data."""

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from ome_operator.engines.routers import parts
from ome_operator.engines.servers import server
from ome_operator.util import package_data
from ome_operator.util.kubeyaml import document


class Series(NamedTuple):
    """The series of an engine."""

    flag: str
    """Argument with which alone it tells any; "" where it always does."""
    names: frozenset[str]
    """As a query writes them; those that our panels and alerts may read."""


@cache
def known() -> Mapping[str, Series]:
    """All engines and routers that there are data for, by name."""
    text = package_data.text(__package__, "series.yaml")
    return {name: Series(each["flag"], frozenset(each["series"])) for name, each in document(text).items()}


def lacks(container: Mapping[str, Any]) -> str:
    """The argument without which the engine of a container tells nothing; "" where it tells, or nobody knows."""
    found = server(container)
    flag = known()[found.name].flag if found is not None and found.name in known() else ""
    words = [word for part in parts(container) for word in part.split()]
    return "" if not flag or any(word.partition("=")[0] == flag for word in words) else flag
