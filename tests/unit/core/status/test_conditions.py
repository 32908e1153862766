"""Tests that the time of a condition changes only when its status does."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from ome_operator.core.status import conditions as cond
from ome_operator.core.status.conditions import MESSAGE_LIMIT, Condition, changed_conditions
from tests.support.conditions import plain

EARLY, LATE = datetime(2026, 1, 1), datetime(2026, 1, 2)


def one(status: bool | None, reason: str = "R", message: str = "m") -> list[Condition]:
    """Return a list with one condition Ready. `status` is True, False, or None for Unknown."""
    return [Condition("Ready", status, reason, message)]


def stamp(
    wanted: Iterable[Condition], before: Iterable[Mapping[str, Any]], generation: int, now: datetime
) -> list[dict[str, Any]]:
    """Return the conditions as they are stored, without Stalled and Reconciling, which summarize the others."""
    return plain({"conditions": cond.format_conditions(wanted, before, generation, now)})


def test_new_condition_has_the_current_time() -> None:
    assert stamp(one(True), (), 3, EARLY) == [
        {
            "type": "Ready",
            "status": "True",
            "reason": "R",
            "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 3,
        }
    ]


def test_transition_time_is_kept_if_only_reason_or_message_changes() -> None:
    (after,) = stamp(one(True, "S", "n"), stamp(one(True), (), 1, EARLY), 2, LATE)
    assert (after["reason"], after["message"], after["observedGeneration"]) == ("S", "n", 2)
    assert after["lastTransitionTime"] == "2026-01-01T00:00:00Z"


def test_transition_time_changes_with_every_status_change() -> None:
    for before, after in ((True, False), (False, None), (None, True)):
        (found,) = stamp(one(after), stamp(one(before), (), 1, EARLY), 1, LATE)
        assert found["lastTransitionTime"] == "2026-01-02T00:00:00Z"


def test_condition_without_value_is_unknown() -> None:
    assert stamp(one(None), (), 1, EARLY)[0]["status"] == "Unknown"


def test_long_condition_message_is_shortened() -> None:
    (found,) = stamp(one(False, "R", "x" * 5000), (), 1, EARLY)
    assert len(found["message"]) == MESSAGE_LIMIT and found["message"].endswith("…")


def test_flips_are_new_conditions_and_changed_statuses_or_reasons() -> None:
    before = stamp(one(False), (), 1, EARLY)
    assert changed_conditions(before, stamp(one(False, message="other"), before, 1, LATE)) == []
    assert len(changed_conditions(before, stamp(one(False, "S"), before, 1, LATE))) == 1
    assert len(changed_conditions((), before)) == 1
