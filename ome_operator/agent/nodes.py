"""Which models a node is to hold."""

from collections.abc import Mapping
from typing import Any

from ome_operator.agent.places import LOCAL
from ome_operator.agent.record import Held
from ome_operator.core.weights.mount import managed


def belongs(model: Held, node: str, labels: Mapping[str, str]) -> bool:
    """Whether a model's storage selects this node: everything that it says has to hold."""
    storage = model.spec.storage
    if any(labels.get(key) != value for key, value in (storage.node_selector or {}).items()):
        return False
    required = (storage.node_affinity or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or ()
    return not terms or any(_term(one, node, labels) for one in terms)


def concerns(model: Held) -> bool:
    """Whether an agent has anything to do for a model."""
    uri = model.spec.storage.storage_uri
    return managed(uri) or uri.startswith(LOCAL)


def _term(term: Mapping[str, Any], node: str, labels: Mapping[str, str]) -> bool:
    fields = {"metadata.name": node}
    on_labels = all(_holds(one, labels) for one in term.get("matchExpressions") or ())
    return on_labels and all(_holds(one, fields) for one in term.get("matchFields") or ())


def _holds(one: Mapping[str, Any], have: Mapping[str, str]) -> bool:
    value, wanted, operator = have.get(one.get("key") or ""), one.get("values") or [], one.get("operator")
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
