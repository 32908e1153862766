"""Who is not placed as a whole gives all of it back, and waits for its turn (docs/placement.md).

A gang is what has to be on nodes together. Until a service has a group of every role there, these first groups are its gang;
later each group is a gang of its own. What waits is kept as a number of groups of each role that are not made for now: which
groups these are is decided elsewhere, and those that are on no node go first.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from ome_operator import quantity
from ome_operator.core.placement import timing

Numbers = Mapping[str, int]
"""Groups by role."""


class Record(NamedTuple):
    """What the status of a service keeps while it is not placed as a whole."""

    waiting: Numbers
    """Groups that are not made for now."""
    since: str
    """When the present try, or the wait for the next, began, in RFC 3339; "" of a try whose time is over and that holds no
    node: its pods stay for autoscalers and preemption to see, until others want the nodes."""
    tries: int = 0
    """Tries in a row that failed although it had seemed to fit."""
    first: str = ""
    """When it began to wait, with pods or without, however often it has tried since; "" where it never has."""
    trying: bool = True
    """Whether a gang is made and not bound as a whole; else the turn is waited for."""
    sure: bool = False
    """Whether it seemed to fit when the present try began."""
    priority: int = 0
    """Of its pods, as the API server gave it to them; kept while it has none."""
    refused: str = ""
    """Why pods could not be created when its last try ended, as with a quota; the objects that were told so are gone."""
    anew: bool = False
    """Whether all of it was given back after it had served: it serves when there is a ready group of every role again."""


class Seen(NamedTuple):
    """The groups of a service as they are."""

    wanted: Numbers
    bound: Numbers
    """Groups of which every rank is on a node, or which have served."""
    served: Numbers
    """Groups that have served, whether they are whole now or not: these are not given back."""
    half: bool = True
    """Whether a rank of what is not placed is on a node."""


class Decision(NamedTuple):
    """What becomes of it in this pass."""

    record: Record | None
    """To be stored; None where everything is placed."""
    again: float | None = None
    """Seconds until time alone changes something."""
    failed: bool = False
    """Whether a try ended in this pass."""


def advance(
    record: Record | None,
    seen: Seen,
    *,
    turn: bool | None,
    contested: bool,
    timeout: float,
    now: datetime,
    gives_way: bool = False,
) -> Decision:
    """The next state of a service's gangs.

    `turn`: of a gang that may try now, whether it seems to fit; else None. `contested`: others wait for nodes that it wants,
    so a first try needs a turn, too, and what holds no node makes way. `timeout`: seconds that a gang has to be bound in.
    `gives_way`: whether groups that had served, and are not `seen` as such any more, are given back for others now.
    """
    missing = _missing(seen)
    if not any(missing.values()):
        # Kept until it serves: with a rank less before that it is half a gang, and none that has served.
        return Decision(record._replace(waiting={}, since="", trying=True) if record is not None and record.anew else None)
    told = now.isoformat(timespec="seconds")
    if gives_way or (record is None and contested):
        before = record or Record({}, told)
        anew = before.anew or (gives_way and not any(seen.served.values()))
        waits = before._replace(
            waiting=_held_back(missing), since=told, tries=0, first=before.first or told, trying=False, sure=False, anew=anew
        )
        return Decision(waits, 0.0)
    if record is None:
        return Decision(Record({}, told), timeout)
    record = record._replace(waiting=_within(record.waiting, missing))
    if record.trying:
        return _tried(record, seen, missing, contested, timeout, now)
    return Decision(record) if turn is None else Decision(_begun(record, seen, turn, now), timeout)


def gang(record: Record | None, seen: Seen) -> Numbers:
    """What the next try is about: of every role a group, or a group of a single role where each has some."""
    waiting = _within(record.waiting, _missing(seen)) if record is not None else {}
    if not _founded(seen):
        return {role: min(1, count) for role, count in waiting.items() if count}
    role = next((role for role, count in waiting.items() if count), "")
    return {role: 1} if role else {}


def trying(record: Record | None, seen: Seen) -> Numbers:
    """Groups that are made, or about to be, and are not on nodes: the room that they need is promised to them."""
    waiting = _within(record.waiting, _missing(seen)) if record is not None else {}
    made = {role: count - waiting.get(role, 0) - _there(seen, role) for role, count in seen.wanted.items()}
    return {role: count for role, count in made.items() if count > 0}


def _tried(record: Record, seen: Seen, missing: Numbers, contested: bool, timeout: float, now: datetime) -> Decision:
    """A gang was made: is it bound by now? Who holds no node gives back for others only."""
    told, idle = now.isoformat(timespec="seconds"), not record.since
    if all(count <= record.waiting.get(role, 0) for role, count in missing.items()):
        # It is, and others of the service wait.
        return Decision(record._replace(since=told, tries=0, first=told, trying=False))
    since = quantity.moment(record.since, now) or now
    left = timeout - (now - since).total_seconds()
    if left > 0 and (seen.half or not idle):
        return Decision(record._replace(since=since.isoformat(timespec="seconds")), left)
    first = record.first or told
    if not (seen.half or contested):
        return Decision(record._replace(since="", first=first))
    waiting, tries = _held_back(missing), record.tries + record.sure
    given_back = record._replace(waiting=waiting, since=told, tries=tries, first=first, trying=False, sure=False)
    return Decision(given_back, failed=not idle)


def _begun(record: Record, seen: Seen, sure: bool, now: datetime) -> Record:
    """Its turn has come."""
    unit = gang(record, seen)
    waiting = {role: count - unit.get(role, 0) for role, count in record.waiting.items() if count > unit.get(role, 0)}
    return record._replace(waiting=waiting, since=now.isoformat(timespec="seconds"), trying=True, sure=sure)


def _missing(seen: Seen) -> dict[str, int]:
    """Groups that are not placed. What is on a node and has not served is not placed while its gang is not whole."""
    placed = seen.served if not _founded(seen) else {role: _there(seen, role) for role in seen.wanted}
    return {role: max(0, count - placed.get(role, 0)) for role, count in seen.wanted.items()}


def _there(seen: Seen, role: str) -> int:
    return max(seen.bound.get(role, 0), seen.served.get(role, 0))


def _founded(seen: Seen) -> bool:
    """Whether there is a group of every role on nodes."""
    return all(_there(seen, role) for role, count in seen.wanted.items() if count)


def _held_back(missing: Numbers) -> dict[str, int]:
    """What gives back: all that is not placed, so everything but what has served before the first gang is whole."""
    return {role: count for role, count in missing.items() if count}


def _within(waiting: Numbers, missing: Numbers) -> dict[str, int]:
    """What waits, of a service that wants fewer groups by now."""
    return {role: min(count, missing.get(role, 0)) for role, count in waiting.items() if min(count, missing.get(role, 0))}


def rested(record: Record, now: datetime) -> bool:
    """Whether the pause after the tries that failed is over."""
    since = quantity.moment(record.since, now) or now
    return now - since >= timing.PAUSES[min(record.tries, len(timing.PAUSES) - 1)]
