"""Decide whether the storage of a model selects a node, so that the weights must be on the node."""

from collections.abc import Mapping, Sequence
from typing import Any

from ome_operator.core.weights.mount import LOCAL, AnyModel, agents_can_download
from ome_operator.errors import OmeError

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_AFFINITY = f"spec.storage.nodeAffinity.{_REQUIRED}"


class UnreadableSelection(OmeError):
    """Raised if a field of a model has an invalid value that the CRD's schema does not reject. The text names the field."""


def selects_node(model: AnyModel, node: str, labels: Mapping[str, str]) -> bool:
    """Return whether a model's storage selects this node: both the node selector and the node affinity must match.

    Raises UnreadableSelection if the node affinity is invalid.
    """
    storage = model.spec.storage
    if any(labels.get(key) != value for key, value in (storage.node_selector or {}).items()):
        return False
    required = (storage.node_affinity or {}).get(_REQUIRED) or {}
    if not isinstance(required, Mapping):
        raise UnreadableSelection(f"{_AFFINITY} must be a map with nodeSelectorTerms")
    terms = _maps(required.get("nodeSelectorTerms"), f"{_AFFINITY}.nodeSelectorTerms")
    matches = [_term(item, node, labels, f"{_AFFINITY}.nodeSelectorTerms[{number}]") for number, item in enumerate(terms)]
    return not matches or any(matches)


def needs_agent(model: AnyModel) -> bool:
    """Return whether an agent has to download or verify the files of a model."""
    uri = model.spec.storage.storage_uri
    return agents_can_download(uri) or uri.startswith(LOCAL)


def _term(term: Mapping[str, Any], node: str, labels: Mapping[str, str], location: str) -> bool:
    """Return whether a term of a node affinity matches. Every part of the term is evaluated, so that all nodes report the
    same error for an invalid field. `location` is the path of the term in messages.
    """
    candidates = {"matchExpressions": labels, "matchFields": {"metadata.name": node}}
    parts = {part: _maps(term.get(part), f"{location}.{part}") for part in candidates}
    matched = [
        _matches(item, candidates[part], f"{location}.{part}[{at}]")
        for part, some in parts.items()
        for at, item in enumerate(some)
    ]
    return all(matched)


def _maps(value: Any, location: str) -> Sequence[Mapping[str, Any]]:
    if not isinstance(value or [], list) or not all(isinstance(item, Mapping) for item in value or ()):
        raise UnreadableSelection(f"{location} must be a list of maps")
    return value or ()


def _matches(item: Mapping[str, Any], values: Mapping[str, str], location: str) -> bool:
    expected, operator = item.get("values") or [], item.get("operator")
    if not isinstance(item.get("key") or "", str):
        raise UnreadableSelection(f"{location}.key must be a string")
    if not isinstance(expected, list) or not all(isinstance(each, str) for each in expected):
        raise UnreadableSelection(f"{location}.values must be a list of strings: put quotes around numbers, true and false")
    value = values.get(item.get("key") or "")
    if operator == "In":
        return value in expected
    if operator == "NotIn":
        return value not in expected
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator in ("Gt", "Lt") and value is not None and expected:
        try:
            return int(value) > int(expected[0]) if operator == "Gt" else int(value) < int(expected[0])
        except ValueError:
            return False
    return False
