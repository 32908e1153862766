"""Describes in words what the status of a service contains about its groups: starts, recycles and failures."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from ome_operator import quantity
from ome_operator.core.catalog.node_models import duration
from ome_operator.core.moves.record import Phase, parse_moves
from ome_operator.core.recovery.failure import sentence
from ome_operator.core.recovery.record import (
    FAILED,
    HELD,
    NODE_LOST,
    PENDING,
    READY,
    RECYCLING,
    RESTARTING,
    SILENT,
    STARTING,
    SYSTEMIC,
)
from ome_operator.core.recovery.start import AFTER_START, start_duration
from ome_operator.quantity import moment
from ome_operator.util.wording import count

LEAST = 0.5
"""Minimum duration, in seconds, of a part of a start that the notes mention."""


class GroupNotes(NamedTuple):
    """The notes about a group that are shown to users."""

    note: str
    """How long the group has been starting, the number of its recycles, and its last failure while that failure is
    recent. For a group that moves, the note also names the node that the group leaves, or the group that it replaces."""
    start: str
    """How long the last start of the group took, in total and by parts; "" if the duration is unknown."""


NO_NOTES = GroupNotes("", "")


def group_notes(component: str, revision: str, status: Mapping[str, Any], now: datetime | None) -> dict[int, GroupNotes]:
    """Return the notes about the groups of a component, from the status of the service, by number of the group. Durations
    until now are left out if `now` is None.
    """
    found: dict[int, GroupNotes] = {}
    entries = status.get("groups") or ()
    for entry in entries:
        if (
            entry.get("component") == component
            and entry.get("revision") in (None, revision)
            and entry.get("index") is not None
        ):
            notes = start_note(entry, entries, now), _note(entry)
            found[entry["index"]] = GroupNotes("; ".join(filter(None, notes)), parts(entry.get("start"), entry.get("phase")))
    for number, moves in _moves(component, revision, status):
        before = found.get(number, NO_NOTES)
        found[number] = before._replace(note="; ".join(filter(None, (before.note, moves))))
    return found


def _moves(component: str, revision: str, status: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield a note for each group of a component that moves, and for each group that replaces a moving group. Each note is
    a pair of the group's number and a text.
    """
    move = parse_moves(status).get(component)
    if move is None or move.revision != revision or move.phase is Phase.RETURNED:
        return
    if (group := quantity.whole_number(move.member)) is not None:
        yield group, f"leaves node {move.node} ({move.cause}): {move.phase}"
    if (group := quantity.whole_number(move.replacement)) is not None:
        yield group, f"replaces group {move.member}"


def start_note(entry: Mapping[str, Any], entries: Iterable[Mapping[str, Any]], now: datetime | None) -> str:
    """Return how long a group has been starting, and how long its last start took; "" if the group is not starting. If no
    start of this group is recorded, the newest start of another group of the component is used. `entry` is the group in the
    status of the service, and `entries` are all groups in it. If `now` is None, the result is "".
    """
    since = moment(str(entry.get("since") or ""), now) if now is not None and entry.get("phase") == STARTING else None
    if now is None or since is None:
        return ""
    message = f"starting for {duration(max(0.0, (now - since).total_seconds()))}"
    others = (each.get("start") for each in entries if each.get("component") == entry.get("component"))
    newest = max((start for start in others if start), key=lambda start: str(start.get("time")), default=None)
    last = entry.get("start") or newest
    return f"{message}, last time {duration(start_duration(last))}" if last else message


def parts(start: Mapping[str, Any] | None, phase: Any = READY) -> str:
    """Return how long the last start of a group took, and how long each part of it took; "" if that is unknown. `phase` is
    the phase of the group. If the group is starting, `start` is an earlier start, possibly of another group.
    """
    if not start:
        return ""
    found = [
        f"{part['name']} {part['seconds']:g} s" + (f" (rank {part['rank']})" if part.get("rank") else "")
        for part in start.get("parts") or ()
        if part["seconds"] >= LEAST and part["name"] != AFTER_START
    ]
    head = "the last start took" if phase in _STARTS else "started in"
    first = next((part["seconds"] for part in start.get("parts") or () if part["name"] == AFTER_START), None)
    last = "" if first is None else f"; first token {first:g} s after a router listed it"
    return f"{head} {duration(start_duration(start))}" + (f": {', '.join(found)}" if found else "") + last


_STARTS = frozenset({PENDING, HELD, STARTING})
"""Phases of a group before it is ready."""
_TELLING = frozenset({HELD, NODE_LOST, SILENT, SYSTEMIC, RESTARTING, RECYCLING, FAILED})
"""Phases of groups that explain more than the states of the groups' pods."""


def _note(entry: Mapping[str, Any]) -> str:
    phase, failure = entry.get("phase") or "", entry.get("lastFailure")
    messages = [phase] if phase in _TELLING else []
    if entry.get("recycles"):
        messages.append(f"recycled {count(entry['recycles'], 'time')}")
    if failure and (phase != READY or entry.get("recyclesInARow")):
        messages.append(f"last failure: {sentence(failure)}")
    return "; ".join(messages)
