"""Read the weights of the operator's HTTPRoute as it is stored, and the time of the last change of the weights."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ome_operator import quantity
from ome_operator.core.observed.field_managers import applied_entry

CLOCK_TOLERANCE = 60.0
"""Seconds by which the API server's clock may be ahead of the operator's clock. A time that is further in the future is
considered invalid."""


def content(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return `{"weights": {name of a Service: weight}, "changed": time of the operator's last change in RFC 3339}` for the
    HTTPRoute `body`.
    """
    return {"weights": weights(body), "changed": _changed(body)}


def weights(body: Mapping[str, Any]) -> dict[str, int]:
    """Return the weight of each Service to which the route refers, by the name of the Service. If the route sets no weight,
    it is 1, the default of the Gateway API.
    """
    out: dict[str, int] = {}
    for rule in (body.get("spec") or {}).get("rules") or ():
        for backend in rule.get("backendRefs") or ():
            weight = backend.get("weight")
            name = str(backend.get("name") or "")
            out[name] = out.get(name, 0) + (1 if weight is None else int(weight))
    return out


def seconds_since(changed: str, now: datetime) -> float:
    """Return the seconds from `changed`, the time of a change in RFC 3339, until `now`. The result is infinite if the time
    is unknown ("") or invalid.
    """
    when = quantity.parse_instant(changed)
    passed = float("inf") if when is None else (now - when).total_seconds()
    return passed if passed > -CLOCK_TOLERANCE else float("inf")


def _changed(body: Mapping[str, Any]) -> str:
    """Return the time when the operator's last apply changed the object, as the API server recorded it; "" if it is
    unknown.
    """
    return str((applied_entry(body.get("metadata") or {}) or {}).get("time") or "")
