"""The rules by which kstatus (sigs.k8s.io/cli-utils 0.37.2) interprets an object of a kind that it does not know.

`tests/works_with/test_kstatus.py` compares this function with kstatus itself, for every reason.
"""

from collections.abc import Mapping
from typing import Any


def kstatus(body: Mapping[str, Any]) -> str:
    """Return Terminating, InProgress, Failed or Current."""
    metadata, status = body["metadata"], body.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    seen = status.get("observedGeneration")
    if seen is not None and "generation" in metadata and seen != metadata["generation"]:
        return "InProgress"
    conditions = status.get("conditions") or ()
    for condition in conditions:
        if condition["status"] == "True" and condition["type"] in ("Reconciling", "Stalled"):
            return "InProgress" if condition["type"] == "Reconciling" else "Failed"
    ready = next((one["status"] for one in conditions if one["type"] == "Ready"), "True")
    return "Current" if ready == "True" else "InProgress"
