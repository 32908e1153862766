"""Lists the stored revisions of a service. The list shows what changed in each revision, and which revisions run."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.core.observed.slices import Revision
from ome_operator.core.resolve.identity import CHOSEN, equivalent
from ome_operator.core.rollout.target import TargetRevision
from ome_operator.describe.edits import edits

NAMED = 3
"""Maximum number of changes that a line names."""


class HistoryEntry(NamedTuple):
    """A stored revision in the list of revisions."""

    number: int
    revision: str
    state: str
    """State of the revision, such as running or pinned; "" if the revision is only stored."""
    changed: str
    """The differences between the inputs of this revision and the inputs of the previous revision, as text."""


def history_entries(known: list[Revision], aim: TargetRevision, slices: Iterable[Mapping[str, Any]]) -> list[HistoryEntry]:
    """Return an entry for each of the stored revisions `known`, oldest first. `aim` states the requested and the rejected
    revisions, and `slices` is the field `slices` of the service's status.
    """
    inputs = [item.data.get("inputs") or {} for item in known]
    pairs = zip(known, [None, *inputs], inputs, strict=False)
    return [
        HistoryEntry(item.number, item.name, _state(item.name, aim, slices), summarize_changes(old, new))
        for item, old, new in pairs
    ]


def undo_target(known: list[Revision], aim: TargetRevision) -> str:
    """Return the revision to which an undo would return. This is the last complete revision. If no revision was complete,
    it is the newest revision that is older than the requested revision and was not rejected. Return "" if there is no
    such revision.
    """
    rejected = {item["revision"] for item in aim.rejected}
    older = itertools.takewhile(lambda item: item.name != aim.wish, known)
    return aim.back or next((item.name for item in reversed(list(older)) if item.name not in rejected), "")


def summarize_changes(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> str:
    """Return a summary of the differences between the inputs of two revisions. `before` is None for the oldest stored
    revision.
    """
    if before is None:
        return "the oldest stored revision"
    found = differences(before, after)
    more = f", and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return ", ".join(found[:NAMED]) + more


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return every difference between the inputs of two revisions. Each difference is prefixed with the input that contains
    it.
    """
    called = {part: (_name(part, before), _name(part, after)) for part in ("runtime", "model")}
    found = [f"{part} {was} → {will}" for part, (was, will) in called.items() if was and will and was != will]
    for part in [*before, *(part for part in after if part not in before)]:
        if part == CHOSEN or equivalent({part: before.get(part)}, {part: after.get(part)}):
            continue
        subject = f"{_FIELDS.get(part, part)} {called[part][1] if part in called else ''}".strip()
        joint = "." if part in (keys.ENGINE, keys.DECODER) else " "
        if part in before and part in after:
            every = [edit for edit in edits(before[part], after[part]) if edit.path != "name"]
            found += [f"{subject}{joint if edit.path else ' '}{edit}" for edit in every]
        else:
            found.append(f"{subject} {'added' if part in after else 'removed'}")
    return found


def _name(part: str, inputs: Mapping[str, Any]) -> str:
    """Return the name of the runtime or model to which a part of the inputs belongs."""
    return str((inputs.get(CHOSEN if part == "runtime" else part) or {}).get("name") or "")


_FIELDS = {keys.ENGINE: "spec.engine", keys.DECODER: "spec.decoder", "restartedAt": "restarted: spec.rollout.restartedAt"}


def _state(revision: str, aim: TargetRevision, slices: Iterable[Mapping[str, Any]]) -> str:
    out = []
    for item in slices:
        if item.get("revision") == revision:
            counts = (f"{role} {item[role]}" for role in _ROLES if role in item)
            out.append(f"runs ({', '.join(counts)} pods ready)")
    if revision == aim.pin:
        out.append("pinned")
    elif revision == aim.revision:
        out.append("wanted")
    out += ["rejected" for item in aim.rejected if item["revision"] == revision]
    return ", ".join(out)


_ROLES = ("prefill", "decode", keys.ENGINE, keys.DECODER, keys.ROUTER)
