"""Read from the conditions of an object that belongs to a service why the object cannot do its work."""

from collections.abc import Mapping
from typing import Any

_FAILURES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "Deployment": (("ReplicaFailure", "True"),),
    "HorizontalPodAutoscaler": (("ScalingActive", "False"),),
    "ScaledObject": (("Ready", "False"), ("Fallback", "True")),
}
"""Maps each kind to the types and statuses of the conditions that report why an object of the kind cannot do its work."""


def failure(kind: str, body: Mapping[str, Any]) -> str:
    """Return why the object `body` of the kind `kind` cannot do its work: why a Deployment cannot create pods, or why an
    autoscaler cannot read metrics. Return "" if there is no failure, and for other kinds.

    An autoscaler is disabled while its role has no groups, which is not a failure.
    """
    for condition in (body.get("status") or {}).get("conditions") or ():
        reason = condition.get("reason") or ""
        if (condition.get("type"), condition.get("status")) in _FAILURES.get(kind, ()) and reason != "ScalingDisabled":
            return condition.get("message") or reason or str(condition["type"])
    return ""
