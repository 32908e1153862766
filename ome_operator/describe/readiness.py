"""Reads whether a service is ready from its condition Ready, and compares it with the operator's Lease and the pods."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ome_operator import keys
from ome_operator.core.catalog.node_models import duration
from ome_operator.core.observed.leases import is_alive, renewal_time
from ome_operator.core.reasons import READY, Reason
from ome_operator.describe.words import OUTDATED
from ome_operator.util.visible import make_visible

if TYPE_CHECKING:
    from ome_operator.describe.tree import Tree


class Readiness(NamedTuple):
    """What the condition Ready states about the present generation of a service."""

    ready: bool
    reason: str
    message: str


def readiness(body: Mapping[str, Any]) -> Readiness:
    """Return what the condition Ready of an InferenceService or a Serving states."""
    metadata, status = body["metadata"], body.get("status") or {}
    by_type = {entry.get("type"): entry for entry in status.get("conditions") or ()}
    ready = by_type.get(READY) or {}
    if not ready or ready.get("reason") == Reason.NOT_SEEN:
        message = _unseen(body) if ready or not status else "the service has no condition Ready yet"
        ready = {"status": "Unknown", "reason": str(Reason.NOT_SEEN), "message": message}
    if ready.get("observedGeneration", metadata.get("generation")) != metadata.get("generation"):
        return Readiness(False, OUTDATED, "the operator has not processed the last edit of the service yet")
    return Readiness(ready["status"] == "True", ready.get("reason") or "", ready.get("message") or "")


def _unseen(body: Mapping[str, Any]) -> str:
    of = operator_class(body)
    who = f"no operator of the class {of}, which its label {keys.OPERATOR_CLASS} names," if of else "no operator"
    return f"{who} has processed it yet"


def operator_class(body: Mapping[str, Any]) -> str:
    """Return the class of the operator that handles the service `body`; "" for the operator without a class."""
    return str((body["metadata"].get("labels") or {}).get(keys.OPERATOR_CLASS) or "")


def missing_operator(leases: Iterable[Mapping[str, Any]], now: datetime) -> str:
    """Return a sentence which states that no operator has renewed its Lease in time (core/observed/leases.py). Return "" if
    an operator has renewed its Lease, or if no Lease was ever renewed, for example because the operators run without
    leader election. `leases` are the Leases of all operators that may handle the service.
    """
    known = [(when, lease) for lease in leases if (when := renewal_time(lease)) is not None]
    if not known or any(is_alive(lease, now) for _, lease in known):
        return ""
    last, lease = max(known, key=lambda item: item[0])
    seconds = max(0.0, (now - last).total_seconds())
    where = make_visible(str(lease["metadata"].get("namespace") or ""))
    return (
        f"No operator has renewed its Lease for {duration(seconds)}, so the status may be outdated. To look for the "
        f"operator: kubectl get pods -n {where} (on a cluster of ome local: ome local status --name CLUSTER)"
    )


def with_late_operator(tree: "Tree", late: str) -> "Tree":
    """Return the tree of a service with its field `late` set. `late` is the sentence which states that no operator has
    renewed its Lease; it is "" if an operator has. If `late` is not "", a service whose pods contradict its condition
    Ready is shown as not ready.
    """
    if late and tree.ready and (roles := _down(tree)):
        message = f"the condition Ready is True, but no pod of {' and '.join(roles)} is ready"
        return replace(tree, ready=False, reason=OUTDATED, message=message, late=late)
    return replace(tree, late=late)


def _down(tree: "Tree") -> list[str]:
    """Return the roles that should have groups but have no ready group. The groups of all revisions are counted."""
    wanted: dict[str, int] = {}
    ready: dict[str, int] = {}
    for role in (role for part in tree.slices for role in part.roles):
        wanted[role.role] = wanted.get(role.role, 0) + role.wanted
        ready[role.role] = ready.get(role.role, 0) + role.ready
    return [role for role, number in wanted.items() if number and not ready[role]]
