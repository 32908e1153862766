"""Read the number of foreign workers, which do not belong to a router's service, from the metrics page of a registry.
Registries of older versions serve no summary that contains the number.
"""

import math
import re

from ome_operator import keys
from ome_operator.core.observed.telemetry import ForeignWorkers

_NUMBER = re.compile(
    rf"^({keys.FOREIGN_WORKERS}_total|{keys.FOREIGN_WORKER_AT}) (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)$", re.ASCII | re.MULTILINE
)
"""Pattern of the two lines that are read from a metrics page. The parser of the Prometheus library raises IndexError for
some malformed pages."""


def foreign_workers(text: str, now: float) -> ForeignWorkers | None:
    """Parse the number of foreign workers and the time when the last foreign worker was found. Return None if a number is
    missing, or if there are no foreign workers. A time in the future is replaced by `now`.
    """
    values = {name: float(number) for name, number in _NUMBER.findall(text)}
    count, at = values.get(f"{keys.FOREIGN_WORKERS}_total", math.nan), values.get(keys.FOREIGN_WORKER_AT, math.nan)
    if not (math.isfinite(count) and math.isfinite(at)) or not 0 < count < 2**53:
        return None
    return ForeignWorkers(int(count), min(max(at, 0.0), now))
