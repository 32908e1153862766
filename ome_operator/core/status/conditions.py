"""Build conditions in the form of the API. Their transition time changes only when their status changes."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from ome_operator import quantity
from ome_operator.core.reasons import ADVICE, ANOTHER, READY, RECONCILING, ROLLED_OUT, STALLED, Kstatus, Reason, record_of

MESSAGE_LIMIT = 1024
ADVICE_LIMIT = 8 * MESSAGE_LIMIT
"""Maximum length of the message of the condition Advice. The limit is higher than for other conditions, because the
message has one sentence for each finding, and a shorter message would hide findings."""


class Condition(NamedTuple):
    """A condition without its transition time."""

    type: str
    status: bool | None
    """Status of the condition; None means Unknown."""
    reason: str
    message: str


def format_conditions(
    wanted: Iterable[Condition], before: Iterable[Mapping[str, Any]], generation: int, now: datetime
) -> list[dict[str, Any]]:
    """Return the conditions in the form of the API, with their summary. `before` are the stored conditions; a transition
    time is kept if the status of its condition is unchanged.
    """
    before = [*before]
    old = {condition.get("type"): condition for condition in before}
    stamped = [_stamp(condition, old.get(condition.type), generation, now) for condition in wanted]
    return with_summary(stamped, before, generation, now)


def with_summary(
    conditions: Iterable[Mapping[str, Any]],
    before: Iterable[Mapping[str, Any]],
    generation: int,
    now: datetime,
    *,
    ended: bool = False,
) -> list[dict[str, Any]]:
    """Return conditions in the form of the API with their summary in front: Stalled, Reconciling, or neither.

    The summary is derived from the other conditions, so that it causes no write of its own. `before` are the stored
    conditions. `ended` is true if the object makes no progress any more, whatever the reason is.
    """
    others = [dict(condition) for condition in conditions if condition.get("type") not in (STALLED, RECONCILING)]
    found = _summary(others, ended)
    old = next((one for one in before if found is not None and one.get("type") == found.type), None)
    return others if found is None else [_stamp(found, old, generation, now), *others]


def _summary(conditions: Iterable[Mapping[str, Any]], ended: bool) -> Condition | None:
    """Return the condition Stalled or Reconciling; None if no condition reports anything that is missing. `ended` is true if
    the object makes no progress any more.

    Reason and message are copied from one condition: from the first that exists in the order of `_DECIDES`. Ready precedes
    RolledOut, because Ready repeats the most important cause.
    """
    found: dict[Kstatus, list[Mapping[str, Any]]] = {Kstatus.FAILED: [], Kstatus.IN_PROGRESS: [], Kstatus.CURRENT: []}
    for one in conditions:
        if one.get("status") == ("True" if one.get("type") == ANOTHER else "False"):
            kstatus = record_of(str(one.get("reason"))).kstatus
            found[Kstatus.FAILED if ended and kstatus is Kstatus.IN_PROGRESS else kstatus].append(one)
    for type_, kstatus in ((STALLED, Kstatus.FAILED), (RECONCILING, Kstatus.IN_PROGRESS)):
        if causes := found[kstatus]:
            first = min(causes, key=lambda one: _DECIDES.get(str(one.get("type")), len(_DECIDES)))
            return Condition(type_, True, str(first.get("reason")), str(first.get("message") or ""))
    return None


_DECIDES = {ANOTHER: 0, READY: 1, ROLLED_OUT: 2}
"""Maps types of conditions to their rank among the conditions that can decide about the summary. The condition with the
lowest rank decides."""


def advice(sentences: Iterable[str], reason: str = Reason.NO_EFFECT) -> list[Condition]:
    """Return a list with the condition Advice, whose message consists of `sentences`; [] if there are no sentences. `reason`
    is the worst severity of the sentences.
    """
    message = "; ".join(sentences)
    return [Condition(ADVICE, True, reason, message)] if message else []


def _stamp(condition: Condition, old: Mapping[str, Any] | None, generation: int, now: datetime) -> dict[str, Any]:
    limit = ADVICE_LIMIT if condition.type == ADVICE else MESSAGE_LIMIT
    status = "Unknown" if condition.status is None else str(condition.status)
    kept = old.get("lastTransitionTime") if old and old.get("status") == status else None
    return {
        "type": condition.type,
        "status": status,
        "reason": str(condition.reason),
        "message": condition.message if len(condition.message) <= limit else condition.message[: limit - 2] + " …",
        "lastTransitionTime": kept or quantity.rfc3339(now),
        "observedGeneration": generation,
    }


def is_true(type_: str, status: Mapping[str, Any]) -> bool:
    """Return whether the status of an object contains a condition of the type `type_` that is True."""
    return any((condition["type"], condition["status"]) == (type_, "True") for condition in status.get("conditions") or ())


def changed_conditions(before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the conditions of `after` that are new, or whose status or reason differs from `before`."""
    old = {condition.get("type"): (condition.get("status"), condition.get("reason")) for condition in before}
    return [condition for condition in after if old.get(condition["type"]) != (condition["status"], condition["reason"])]
