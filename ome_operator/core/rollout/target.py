"""Determine which revision a service goes to: its pin or what was written last, unless that was rejected (decisions 12).

Every input is stored (revisions, the pin in the spec, rejections and the last complete revision in the status), so an
operator that restarts makes the same decision.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.core.problem import Problem
from ome_operator.core.reasons import ROLLED_OUT, Reason
from ome_operator.core.waves.shared_edits import whole_before


class TargetRevision(NamedTuple):
    """The revision that a service goes to, and why it is not the one that was asked for."""

    revision: str
    """The revision to go to, "" if none is stored."""
    wish: str
    """The revision that the user asks for: the pin, or what was written last."""
    pin: str
    """The stored revision that the spec pins, "" if it pins none."""
    back: str
    """The revision that comes back if the wish is rejected, "" if none was complete before."""
    edit: int
    """Number of what was written last."""
    retry: str
    """Value of the annotation by which users ask to try a rejected revision again, "" without it."""
    rejected: tuple[Mapping[str, Any], ...] = ()
    """The rejections that count, in the form of the status."""
    problems: tuple[Problem, ...] = ()

    @property
    def rejection(self) -> Mapping[str, Any] | None:
        """Why the wish is not the target; None if it is."""
        return None if self.revision == self.wish else _of(self.wish, self.rejected)

    @property
    def named(self) -> bool:
        """Whether the revision is taken from the store, so that it does not depend on what is written now."""
        return bool(self.pin) or self.revision != self.wish

    @property
    def used(self) -> frozenset[str]:
        """Revisions that a later decision may name: they are kept regardless of the history limit."""
        return frozenset({self.revision, self.wish, self.back, *(one["revision"] for one in self.rejected)} - {""})

    def reject(self, reason: str, message: str, now: datetime) -> dict[str, Any]:
        """Return a rejection of the revision in the form of the status: it counts until the next edit or request to try
        again.
        """
        said = {"revision": self.revision, "edit": self.edit, "reason": str(reason), "message": message}
        return {**said, "time": now.isoformat(timespec="seconds"), **({"retry": self.retry} if self.retry else {})}


def target(
    pin: str, numbers: Mapping[str, int], whole: Iterable[str], rejected: Iterable[Mapping[str, Any]], retry: str
) -> TargetRevision:
    """Return the revision that a service goes to.

        numbers     Stored revisions and their order.
        whole       Revisions that were complete last.
        rejected    Rejections in the form of the status.
        retry       As in TargetRevision.

    A rejection never expires: equal inputs are not tried twice.
    """
    newest = max(numbers, key=numbers.__getitem__, default="")
    problems = (_unknown(pin, numbers),) if pin and pin not in numbers else ()
    pin = pin if pin in numbers else ""
    wish = pin or newest
    edit = numbers.get(newest, 0)
    counted = tuple(
        one for one in rejected if one["revision"] in numbers and (one.get("edit"), one.get("retry", "")) == (edit, retry)
    )
    out = {one["revision"] for one in counted} | {wish}
    back = max((one for one in whole if one in numbers and one not in out), key=numbers.__getitem__, default="")
    revision = back if back and _of(wish, counted) is not None else wish
    return TargetRevision(revision, wish, pin, back, edit, retry, counted, problems)


def of(service: InferenceService, numbers: Mapping[str, int]) -> TargetRevision:
    """Return the revision that a service goes to, from its spec, annotations and status."""
    pin = (service.spec.rollout.revision if service.spec.rollout else None) or ""
    rejected, retry = service.status.get("rejected") or (), service.annotations.get(keys.RETRY, "")
    return target(pin, numbers, whole_before(service.status), rejected, retry)


def _of(revision: str, rejected: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    return next((one for one in rejected if one["revision"] == revision), None)


def _unknown(pin: str, numbers: Mapping[str, int]) -> Problem:
    kept = ", ".join(sorted(numbers)) or "none"
    said = f"spec.rollout.revision {pin} is not kept (kept: {kept}): name one of them, or remove the pin"
    return Problem(ROLLED_OUT, Reason.REVISION_NOT_FOUND, said)
