"""Build `status.traffic`: the metrics of a service, rounded, and written rarely (docs/telemetry.md)."""

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from ome_operator import quantity
from ome_operator.core.observed.telemetry import Buckets
from ome_operator.core.observed.traffic import (
    BucketBounds,
    CombinedMetrics,
    ServiceNumbers,
    by_role,
    client_metrics,
    percentile,
)

PERCENTILES = {"p50": 0.5, "p95": 0.95}
DIGITS = 3
"""Number of significant digits to which a metric is rounded."""
PAUSE = 60.0
"""Minimum number of seconds between two changes of `status.traffic`."""
REPEAT = 600.0
"""Seconds after which the metrics are written although they have hardly changed. Their time then shows that they are
current."""
CHANGE = 0.2
"""Share of the larger value by which a number must have changed to be written before `REPEAT`."""


def traffic_status(service_numbers: ServiceNumbers, now: datetime) -> dict[str, Any] | None:
    """Return `status.traffic`; None if nothing is known about the service. Unknown metrics are left out."""
    service = client_metrics(service_numbers)
    roles = {name: fields for name, numbers in by_role(service_numbers).items() if (fields := _role(numbers))}
    fields = {
        "requestsPerSecond": service.requests,
        "promptTokensPerSecond": service.prompt_tokens,
        "outputTokensPerSecond": service.output_tokens,
    }
    out: dict[str, Any] = {name: round_value(value) for name, value in fields.items() if value is not None}
    times = {"timeToFirstToken": service.first_token, "timeBetweenTokens": service.between_tokens}
    out |= {name: known for name, histograms in times.items() if (known := percentiles(histograms))}
    if roles:
        out["roles"] = [{"name": name, **fields} for name, fields in roles.items()]
    if not out:
        return None
    return {
        "time": quantity.rfc3339(now),
        "routers": service_numbers.routers,
        "routersHeard": service_numbers.routers_heard,
        **out,
    }


def _role(numbers: CombinedMetrics) -> dict[str, Any]:
    if not numbers.with_load and not numbers.with_work:
        return {}
    out: dict[str, Any] = {"leaders": numbers.leaders, "withLoad": numbers.with_load, "withWork": numbers.with_work}
    load = {"running": numbers.running, "waiting": numbers.waiting, "cacheUse": numbers.cache_use}
    return out | {name: round_value(value) for name, value in load.items() if value is not None}


def percentiles(histograms: Iterable[Buckets]) -> dict[str, dict[str, float]]:
    """Return the bounds of the known percentiles of a time, in the form of the status; {} if there are no observations."""
    histograms = [*histograms]
    found = {name: percentile(histograms, share) for name, share in PERCENTILES.items()}
    return {name: _bounds(bounds) for name, bounds in found.items() if bounds is not None}


def _bounds(bounds: BucketBounds) -> dict[str, float]:
    upper = {} if math.isinf(bounds.up_to) else {"upTo": bounds.up_to}
    return {"above": bounds.above, **upper}


def round_value(value: float) -> float:
    """Return the value rounded to `DIGITS` significant digits, but never more coarsely than to a whole number. Whole numbers
    are returned as int, because the API server stores 2.0 as 2.
    """
    places = DIGITS - 1 - math.floor(math.log10(value)) if value > 0 else 0
    found = round(value, max(0, places))
    return int(found) if found == int(found) else found


def next_traffic(before: dict[str, Any] | None, found: dict[str, Any] | None, now: datetime) -> dict[str, Any] | None:
    """Return the next value of `status.traffic`: `before`, the stored value, or `found`, the current metrics. Either is None
    if nothing is known.

    The value changes at most once in `PAUSE` seconds, and before `REPEAT` seconds only if a metric has appeared, has
    disappeared, or has changed by more than the share `CHANGE`. If the time of `before` cannot be read or is in the future,
    it is replaced at once.
    """
    written = quantity.moment(str((before or {}).get("time") or ""), now)
    age = (now - written).total_seconds() if written is not None else -1.0
    if not before or age < 0:
        return found
    if age < PAUSE:
        return before
    return before if found is not None and age < REPEAT and not _moved(before, found) else found


def _moved(before: Any, after: Any) -> bool:
    """Return whether a metric has appeared, has disappeared, or has changed by more than the share `CHANGE`."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return before.keys() != after.keys() or any(_moved(before[name], after[name]) for name in before if name != "time")
    if isinstance(before, list) and isinstance(after, list):
        return len(before) != len(after) or any(map(_moved, before, after))
    if isinstance(before, int | float) and isinstance(after, int | float):
        return abs(after - before) > CHANGE * max(before, after)
    return bool(before != after)
