"""Build conditions in the form of the API. Their transition time changes only when their status changes."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from ome_operator.core.reasons import ADVICE, Reason

MESSAGE_LIMIT = 1024
ADVICE_LIMIT = 8 * MESSAGE_LIMIT
"""Maximum length of the message of the condition Advice. It is larger than for other conditions, because the message has
one sentence for each finding, and truncation would hide findings."""


class Condition(NamedTuple):
    """A condition without its transition time."""

    type: str
    status: bool | None
    """Status of the condition; None means Unknown."""
    reason: str
    message: str


def stamp(
    wanted: Iterable[Condition], before: Iterable[Mapping[str, Any]], generation: int, now: datetime
) -> list[dict[str, Any]]:
    """Return the conditions in the form of the API. `before` are the stored conditions; a transition time is kept if the
    status of its condition is unchanged.
    """
    old = {condition.get("type"): condition for condition in before}
    return [_stamp(condition, old.get(condition.type), generation, now) for condition in wanted]


def advice(sentences: Iterable[str]) -> list[Condition]:
    """Return the condition Advice with these sentences, or [] if there are none."""
    message = "; ".join(sentences)
    return [Condition(ADVICE, True, Reason.NO_EFFECT, message)] if message else []


def _stamp(condition: Condition, old: Mapping[str, Any] | None, generation: int, now: datetime) -> dict[str, Any]:
    limit = ADVICE_LIMIT if condition.type == ADVICE else MESSAGE_LIMIT
    status = "Unknown" if condition.status is None else str(condition.status)
    kept = old.get("lastTransitionTime") if old and old.get("status") == status else None
    return {
        "type": condition.type,
        "status": status,
        "reason": str(condition.reason),
        "message": condition.message if len(condition.message) <= limit else condition.message[: limit - 2] + " …",
        "lastTransitionTime": kept or now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "observedGeneration": generation,
    }


def is_true(type_: str, status: Mapping[str, Any]) -> bool:
    """Return whether a status has a condition of this type with the status True."""
    return any((condition["type"], condition["status"]) == (type_, "True") for condition in status.get("conditions") or ())


def changed_conditions(before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the conditions of `after` that are new, or whose status or reason differs from `before`."""
    old = {condition.get("type"): (condition.get("status"), condition.get("reason")) for condition in before}
    return [condition for condition in after if old.get(condition["type"]) != (condition["status"], condition["reason"])]
