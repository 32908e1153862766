"""Determine the target revision of a service: its pinned revision or the newest revision, unless that revision was
rejected (decisions 12).

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
    """The revision to which a service is rolled out. If this is not the revision that the user asks for, the reason is
    included.
    """

    revision: str
    """The target revision; "" if no revision is stored."""
    wish: str
    """The revision that the user asks for: the pinned revision, or the newest revision."""
    pin: str
    """The stored revision that the spec pins; "" if the spec pins no revision."""
    back: str
    """The revision that is restored if the revision `wish` is rejected; "" if there is none. It is the newest of the
    other revisions that were complete most recently and are not rejected."""
    edit: int
    """Number of the newest revision, which identifies the last edit of the service; 0 if no revision is stored."""
    retry: str
    """Value of the annotation with which users ask for another attempt to roll out a rejected revision; "" if the
    annotation is missing."""
    rejected: tuple[Mapping[str, Any], ...] = ()
    """Rejections that still apply, in the format of the status."""
    problems: tuple[Problem, ...] = ()

    @property
    def rejection(self) -> Mapping[str, Any] | None:
        """The rejection that keeps the revision `wish` from being the target; None if it is the target."""
        return None if self.revision == self.wish else _of(self.wish, self.rejected)

    @property
    def is_named(self) -> bool:
        """Whether the target is a named stored revision, which does not depend on the present spec and inputs: it is
        pinned, or it is restored after a rejection.
        """
        return bool(self.pin) or self.revision != self.wish

    @property
    def used_revisions(self) -> frozenset[str]:
        """Revisions that a later decision may need. They are kept regardless of the history limit."""
        return frozenset({self.revision, self.wish, self.back, *(one["revision"] for one in self.rejected)} - {""})

    def reject(self, reason: str, message: str, now: datetime, lacks: datetime | None = None) -> dict[str, Any]:
        """Return a rejection of the target revision in the format of the status. The rejection applies until the next edit
        of the service, or until the user asks for another attempt. `lacks` is the time since which the pods of the revision
        have waited for something that only their service lacks (`own_lack.waiting_since`); None if they have not.
        """
        entry = {"revision": self.revision, "edit": self.edit, "reason": str(reason), "message": message}
        if lacks is not None:
            entry["lacksSince"] = lacks.isoformat(timespec="seconds")
        return {**entry, "time": now.isoformat(timespec="seconds"), **({"retry": self.retry} if self.retry else {})}


def target(
    pin: str, numbers: Mapping[str, int], whole: Iterable[str], rejected: Iterable[Mapping[str, Any]], retry: str
) -> TargetRevision:
    """Return the target revision of a service.

        pin         The revision that the spec pins; "" if it pins none.
        numbers     The number of each stored revision; the newest revision has the largest number.
        whole       The revisions that were complete most recently.
        rejected    Rejections in the format of the status.
        retry       Value of the annotation that asks for another attempt, as in `TargetRevision.retry`.

    A rejection does not expire with time. It ends with the next edit of the service, or with a new value of `retry`.
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


def find_target(service: InferenceService, numbers: Mapping[str, int]) -> TargetRevision:
    """Return the target revision of a service, from its spec, its annotations and its status. `numbers` maps the names of
    the stored revisions to their numbers.
    """
    pin = (service.spec.rollout.revision if service.spec.rollout else None) or ""
    rejected, retry = service.status.get("rejected") or (), service.annotations.get(keys.RETRY, "")
    return target(pin, numbers, whole_before(service.status), rejected, retry)


def _of(revision: str, rejected: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    return next((one for one in rejected if one["revision"] == revision), None)


def _unknown(pin: str, numbers: Mapping[str, int]) -> Problem:
    kept = ", ".join(sorted(numbers)) or "none"
    message = (
        f"spec.rollout.revision {pin} is not stored (stored: {kept}): name one of the stored revisions, or remove "
        "spec.rollout.revision"
    )
    return Problem(ROLLED_OUT, Reason.REVISION_NOT_FOUND, message)
