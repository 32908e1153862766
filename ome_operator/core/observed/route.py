"""An HTTPRoute of ours as it is stored: where it leads, and since when."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ome_operator import keys

AHEAD = 60.0
"""Seconds that the API server's clock may be ahead of ours. A time that is farther off was not its time."""


def content(body: Mapping[str, Any]) -> dict[str, Any]:
    """`{"weights": {name of a Service: weight}, "changed": when we changed it last, in RFC 3339}`."""
    return {"weights": weights(body), "changed": _changed(body)}


def weights(body: Mapping[str, Any]) -> dict[str, int]:
    """Name of each Service that the route names -> its weight. The Gateway API takes 1 where there is none."""
    out: dict[str, int] = {}
    for rule in (body.get("spec") or {}).get("rules") or ():
        for backend in rule.get("backendRefs") or ():
            weight = backend.get("weight")
            name = str(backend.get("name") or "")
            out[name] = out.get(name, 0) + (1 if weight is None else int(weight))
    return out


def seconds_since(changed: str, now: datetime) -> float:
    """Seconds since a change. Infinite where nobody said when, or where the time cannot be right."""
    try:
        passed = (now - datetime.fromisoformat(changed)).total_seconds()
    except (TypeError, ValueError):
        return float("inf")
    return passed if passed > -AHEAD else float("inf")


def _changed(body: Mapping[str, Any]) -> str:
    """The API server notes when an apply of ours last changed the object."""
    for entry in (body.get("metadata") or {}).get("managedFields") or ():
        if entry.get("manager") == keys.MANAGER and entry.get("operation") == "Apply" and not entry.get("subresource"):
            return str(entry.get("time") or "")
    return ""
