"""What the operator's log says about a service: the objects that a pass made and deleted, and conditions that flipped."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ome_operator.core.reasons import READY, ROLLED_OUT

MADE, DELETED = "made", "deleted"
_WORKLOADS = ("StatefulSet", "Deployment", "Pod")
"""Kinds whose objects are told: a rollout, a scale and a recycled group are these."""
_TOLD = (READY, ROLLED_OUT)
_TERMINATING = "because it is being terminated"
"""How an API server refuses whatever is new in a namespace that is being deleted."""


def deeds(did: Mapping[tuple[str, str], int]) -> str:
    """Such as "made 8 StatefulSets, deleted 2 Pods"; "" when no workload was made or deleted."""
    told = [(verb, did[verb, kind], kind) for verb in (MADE, DELETED) for kind in _WORKLOADS if did.get((verb, kind))]
    return ", ".join(f"{verb} {count} {kind}{'s' if count > 1 else ''}" for verb, count, kind in told)


def turns(before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each condition of _TOLD that has another status or reason."""
    old = {one.get("type"): _state(one) for one in before}
    found = [one for one in after if one["type"] in _TOLD and old.get(one["type"]) != _state(one)]
    return [f"{one['type']}={one['status']} {one.get('reason')}: {one.get('message')}" for one in found]


def _state(condition: Mapping[str, Any]) -> tuple[Any, Any]:
    return condition.get("status"), condition.get("reason")


def expected(refusal: str) -> bool:
    """Whether a refusal says nothing that a person could mend: its namespace is going, and the service with it."""
    return _TERMINATING in refusal


Deeds = Counter[tuple[str, str]]
"""(MADE or DELETED, kind) → how many."""
