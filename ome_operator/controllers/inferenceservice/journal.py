"""Text for the operator's log about a service: created and deleted objects, and changed conditions."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ome_operator.core.reasons import READY, ROLLED_OUT, SCALED
from ome_operator.util.wording import count

MADE, DELETED = "made", "deleted"
_WORKLOADS = ("StatefulSet", "Deployment", "Pod")
"""Kinds whose creations and deletions are logged, because rollouts, scaling and recycled groups change objects of these
kinds."""
_LOGGED = (SCALED, READY, ROLLED_OUT)
_TERMINATING = "because it is being terminated"
"""Part of the message with which an API server refuses new objects in a namespace that is being deleted."""


def describe_writes(did: Mapping[tuple[str, str], int]) -> str:
    """Return a text such as "made 8 StatefulSets, deleted 2 Pods" for these numbers of objects; "" if no workload was
    created or deleted.
    """
    done = [(verb, kind) for verb in (MADE, DELETED) for kind in _WORKLOADS if did.get((verb, kind))]
    return ", ".join(f"{verb} {count(did[verb, kind], kind)}" for verb, kind in done)


def condition_changes(before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each condition in `_LOGGED` whose status or reason has changed."""
    old = {condition.get("type"): _state(condition) for condition in before}
    found = [item for item in after if item["type"] in _LOGGED and old.get(item["type"]) != _state(item)]
    return [f"{item['type']}={item['status']} {item.get('reason')}: {item.get('message')}" for item in found]


def _state(condition: Mapping[str, Any]) -> tuple[Any, Any]:
    return condition.get("status"), condition.get("reason")


def is_expected_refusal(refusal: str) -> bool:
    """Return whether a refusal needs no action by a person, because the namespace is being deleted, and the service with
    it.
    """
    return _TERMINATING in refusal


Deeds = Counter[tuple[str, str]]
"""Maps (MADE or DELETED, kind) to the number of objects."""
