"""Which models a node is to hold."""

from collections.abc import Mapping, Sequence
from typing import Any

from ome_operator.agent.places import LOCAL
from ome_operator.agent.record import Held
from ome_operator.core.weights.mount import managed

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_AFFINITY = f"spec.storage.nodeAffinity.{_REQUIRED}"


class Odd(Exception):
    """A field of a model that its CRD leaves open says what nobody can read; the sentence names it."""


def belongs(model: Held, node: str, labels: Mapping[str, str]) -> bool:
    """Whether a model's storage selects this node: everything that it says has to hold. Raises Odd."""
    storage = model.spec.storage
    if any(labels.get(key) != value for key, value in (storage.node_selector or {}).items()):
        return False
    required = (storage.node_affinity or {}).get(_REQUIRED) or {}
    if not isinstance(required, Mapping):
        raise Odd(f"{_AFFINITY} must be a map with nodeSelectorTerms")
    terms = _maps(required.get("nodeSelectorTerms"), f"{_AFFINITY}.nodeSelectorTerms")
    found = [_term(item, node, labels, f"{_AFFINITY}.nodeSelectorTerms[{number}]") for number, item in enumerate(terms)]
    return not found or any(found)


def concerns(model: Held) -> bool:
    """Whether an agent has anything to do for a model."""
    uri = model.spec.storage.storage_uri
    return managed(uri) or uri.startswith(LOCAL)


def _term(term: Mapping[str, Any], node: str, labels: Mapping[str, str], where: str) -> bool:
    """Every part is looked at: what cannot be read is said by each node alike."""
    has = {"matchExpressions": labels, "matchFields": {"metadata.name": node}}
    parts = {part: _maps(term.get(part), f"{where}.{part}") for part in has}
    held = [_holds(item, has[part], f"{where}.{part}[{at}]") for part, some in parts.items() for at, item in enumerate(some)]
    return all(held)


def _maps(value: Any, where: str) -> Sequence[Mapping[str, Any]]:
    if not isinstance(value or [], list) or not all(isinstance(item, Mapping) for item in value or ()):
        raise Odd(f"{where} must be a list of maps")
    return value or ()


def _holds(item: Mapping[str, Any], have: Mapping[str, str], where: str) -> bool:
    wanted, operator = item.get("values") or [], item.get("operator")
    if not isinstance(item.get("key") or "", str):
        raise Odd(f"{where}.key must be a text")
    if not isinstance(wanted, list) or not all(isinstance(each, str) for each in wanted):
        raise Odd(f"{where}.values must be a list of texts: put quotes around numbers, true and false")
    value = have.get(item.get("key") or "")
    if operator == "In":
        return value in wanted
    if operator == "NotIn":
        return value not in wanted
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator in ("Gt", "Lt") and value is not None and wanted:
        try:
            return int(value) > int(wanted[0]) if operator == "Gt" else int(value) < int(wanted[0])
        except ValueError:
            return False
    return False
