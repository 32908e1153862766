"""Convert a merged pod spec to canonical form: the form in which the API server stores it, without duplicate list entries.

Server-side apply rejects duplicate keys that a plain create accepts (two env entries of one name, two ports with one
number). This module keeps the last of several entries with the same key, and reports the removed entries (decisions 13).
"""

from collections.abc import Mapping
from typing import Any

from ome_operator import quantity
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.podspec.merge import FREE, KEYS

_TEXTS = frozenset({"command", "args"})
_QUANTITY_MAPS = frozenset({"limits", "requests", "overhead"})


def canonical_pod(pod: Manifest) -> tuple[Manifest, tuple[str, ...]]:
    """Return the canonical pod spec, and one sentence for each duplicate entry that was removed."""
    dropped: list[str] = []
    return _tidy(pod, "", dropped), tuple(dropped)


def _tidy(value: Any, field: str, dropped: list[str]) -> Any:
    if isinstance(value, Mapping):
        return _tidy_map(value, field, dropped)
    if isinstance(value, list):
        if field in _TEXTS:
            return [_text(item) for item in value]
        items = [_tidy(item, field, dropped) for item in value]
        items = _unique(items, KEYS[field], field, dropped) if field in KEYS else items
        return _unique(items, ("name",), field, dropped) if field == "ports" else items
    return quantity.canonical_text(value) if field == "sizeLimit" and value is not None else value


def _tidy_map(value: Mapping[str, Any], field: str, dropped: list[str]) -> Manifest:
    if field in _QUANTITY_MAPS:
        return {key: quantity.canonical_text(amount) for key, amount in value.items() if amount is not None}
    if field in FREE:
        return {key: inner for key, inner in value.items() if inner is not None}
    out = {key: _tidy(inner, key, dropped) for key, inner in value.items() if inner is not None}
    if field == "fieldRef":
        out.setdefault("apiVersion", "v1")
    if field == "resourceFieldRef":
        out["divisor"] = quantity.canonical_text(out.get("divisor", "0"))
    if field == "ports":
        out.setdefault("protocol", "TCP")
    if field == "env" and "valueFrom" not in out:
        out["value"] = _text(out.get("value", ""))
    return out


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


def _unique(items: list[Any], parts: tuple[str, ...], field: str, dropped: list[str]) -> list[Any]:
    """Return the items, leaving out each item that a later item with the same key replaces. `parts` are the fields that
    form the key. Items that have none of these fields are all kept.
    """
    seen: dict[Any, Any] = {}
    for number, item in enumerate(items):
        key: Any = tuple(item.get(part) for part in parts) if isinstance(item, Mapping) else repr(item)
        if not any(key):
            key = number
        if key in seen:
            what = "/".join(str(part) for part in key if part is not None) if isinstance(key, tuple) else key
            dropped.append(f"{field} {what} is set twice: the last value is used")
            del seen[key]
        seen[key] = item
    return list(seen.values())
