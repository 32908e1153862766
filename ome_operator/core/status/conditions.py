"""Conditions: set by one function, and their time moves only when their status flips."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from ome_operator.core.reasons import ADVICE, Reason

MESSAGE_LIMIT = 1024
ADVICE_LIMIT = 8 * MESSAGE_LIMIT
"""Advice has a sentence for each thing that is wrong: what is cut is silent."""


class Condition(NamedTuple):
    """One condition before it has a time."""

    type: str
    status: bool | None
    """None is Unknown."""
    reason: str
    message: str


def stamp(
    wanted: Iterable[Condition], before: Iterable[Mapping[str, Any]], generation: int, now: datetime
) -> list[dict[str, Any]]:
    """The conditions as the API stores them; `before` are those stored now."""
    old = {one.get("type"): one for one in before}
    return [_stamp(one, old.get(one.type), generation, now) for one in wanted]


def advice(sentences: Iterable[str]) -> list[Condition]:
    """The condition Advice with what a user should know of an object; none without any sentence."""
    said = "; ".join(sentences)
    return [Condition(ADVICE, True, Reason.NO_EFFECT, said)] if said else []


def _stamp(one: Condition, old: Mapping[str, Any] | None, generation: int, now: datetime) -> dict[str, Any]:
    limit = ADVICE_LIMIT if one.type == ADVICE else MESSAGE_LIMIT
    status = "Unknown" if one.status is None else str(one.status)
    kept = old.get("lastTransitionTime") if old and old.get("status") == status else None
    return {
        "type": one.type,
        "status": status,
        "reason": str(one.reason),
        "message": one.message if len(one.message) <= limit else one.message[: limit - 2] + " …",
        "lastTransitionTime": kept or now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "observedGeneration": generation,
    }


def is_true(type_: str, status: Mapping[str, Any]) -> bool:
    """Whether a status says so by a condition of this type."""
    return any((one["type"], one["status"]) == (type_, "True") for one in status.get("conditions") or ())


def flips(before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Conditions of `after` whose status or reason differs from `before`, and those that are new."""
    old = {one.get("type"): (one.get("status"), one.get("reason")) for one in before}
    return [one for one in after if old.get(one["type"]) != (one["status"], one["reason"])]
