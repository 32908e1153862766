"""The stored revisions of a service as a list for people: what changed from one to the next, and what runs."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.core.observed.slices import Revision
from ome_operator.core.resolve.identity import CHOSEN, same
from ome_operator.core.rollout.target import TargetRevision
from ome_operator.describe.edits import edits

NAMED = 3
"""Changes that a line names."""


class HistoryEntry(NamedTuple):
    """One stored revision."""

    number: int
    revision: str
    state: str
    """What it is to the service now, "" when it is only kept."""
    changed: str
    """What its inputs have that those before had not."""


def lines(known: list[Revision], aim: TargetRevision, slices: Iterable[Mapping[str, Any]]) -> list[HistoryEntry]:
    """The stored revisions, oldest first; `slices` from the status of the service."""
    inputs = [one.data.get("inputs") or {} for one in known]
    pairs = zip(known, [None, *inputs], inputs, strict=False)
    return [HistoryEntry(one.number, one.name, _state(one.name, aim, slices), changed(old, new)) for one, old, new in pairs]


def before(known: list[Revision], aim: TargetRevision) -> str:
    """Where an undo goes: the revision that was whole last, else the one before what the user asks for; "" for nowhere."""
    rejected = {one["revision"] for one in aim.rejected}
    older = itertools.takewhile(lambda one: one.name != aim.wish, known)
    return aim.back or next((one.name for one in reversed(list(older)) if one.name not in rejected), "")


def changed(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> str:
    """What differs between the inputs of two revisions, in a few words; `before` None for the first that is kept."""
    if before is None:
        return "the oldest that is kept"
    said = differences(before, after)
    more = f", and {len(said) - NAMED} more" if len(said) > NAMED else ""
    return ", ".join(said[:NAMED]) + more


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Everything that differs between the inputs of two revisions, each under the name of what it comes from."""
    called = {part: (_name(part, before), _name(part, after)) for part in ("runtime", "model")}
    found = [f"{part} {was} → {will}" for part, (was, will) in called.items() if was and will and was != will]
    for part in [*before, *(part for part in after if part not in before)]:
        if part == CHOSEN or same({part: before.get(part)}, {part: after.get(part)}):
            continue
        subject = f"{_FIELDS.get(part, part)} {called[part][1] if part in called else ''}".strip()
        if part in before and part in after:
            found += [f"{subject} {edit}" for edit in edits(before[part], after[part]) if edit.path != "name"]
        else:
            found.append(f"{subject} {'added' if part in after else 'removed'}")
    return found


def _name(part: str, inputs: Mapping[str, Any]) -> str:
    """Of the runtime, which stands beside its parts, or of the model."""
    return str((inputs.get(CHOSEN if part == "runtime" else part) or {}).get("name") or "")


_FIELDS = {keys.ENGINE: "spec.engine", keys.DECODER: "spec.decoder", "restartedAt": "spec.rollout.restartedAt"}


def _state(revision: str, aim: TargetRevision, slices: Iterable[Mapping[str, Any]]) -> str:
    out = []
    for one in slices:
        if one.get("revision") == revision:
            counts = (f"{role} {one[role]}" for role in _ROLES if role in one)
            out.append(f"runs ({', '.join(counts)})")
    if revision == aim.pin:
        out.append("pinned")
    elif revision == aim.revision:
        out.append("wanted")
    out += ["rejected" for one in aim.rejected if one["revision"] == revision]
    return ", ".join(out)


_ROLES = ("prefill", "decode", keys.ENGINE, keys.DECODER, keys.ROUTER)
