"""Helpers for the conditions of a status. The conditions Stalled and Reconciling, which only summarize the others for
kstatus, are tested in `tests/unit/core/status/test_summary.py`, and other tests leave them out.
"""

from collections.abc import Mapping
from typing import Any

from ome_operator.core.reasons import RECONCILING, STALLED


def plain(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the conditions of a status except Stalled and Reconciling."""
    return [one for one in status["conditions"] if one["type"] not in (RECONCILING, STALLED)]


def summary(status: Mapping[str, Any]) -> str:
    """Return the type of the summarizing condition that is True: Stalled or Reconciling; "" if there is neither."""
    found = [one for one in status.get("conditions") or () if one["type"] in (RECONCILING, STALLED)]
    assert len(found) <= 1 and status["conditions"][: len(found)] == found and all(one["status"] == "True" for one in found)
    return str(found[0]["type"]) if found else ""
