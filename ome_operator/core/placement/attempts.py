"""State machine of a gang: a gang that is not placed completely in time gives its nodes back and is queued
(docs/placement.md).

A gang is a set of groups that have to be on nodes together. Until a service has a group of every role on nodes, these first
groups form one gang; later each group is its own gang. The groups that are not created for now are stored as a number for
each role. Another module chooses which groups these are; groups without any node are chosen first.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from ome_operator import quantity
from ome_operator.core.placement import timing

Numbers = Mapping[str, int]
"""Number of groups by role."""


class Record(NamedTuple):
    """The state in `status.placement` while a service is not placed completely."""

    waiting: Numbers
    """Groups that are not created for now."""
    since: str
    """When the present try, or the wait for the next try, began, in RFC 3339. "" if the time of the try is over and the gang
    holds no node: its pods stay, visible to autoscalers and preemption, until other gangs want the nodes."""
    tries: int = 0
    """Number of consecutive tries that failed although the gang had seemed to fit."""
    first: str = ""
    """When the gang began to wait, with or without pods, regardless of later tries; "" if it has never waited."""
    trying: bool = True
    """True while a gang exists and is not bound completely, False while it waits for admission."""
    sure: bool = False
    """Whether the gang seemed to fit when the present try began."""
    priority: int = 0
    """Priority of the pods, as the API server set it; kept while there are no pods."""
    refused: str = ""
    """Why pods could not be created when the last try ended, for example a quota; the StatefulSets that reported it no
    longer exist."""
    anew: bool = False
    """Whether nothing has served yet, or everything was given back since. The service serves only when every role has a
    ready group at the same time; a group that was ready alone proves nothing."""


class Seen(NamedTuple):
    """The groups of a service as they are observed."""

    wanted: Numbers
    bound: Numbers
    """Groups with every rank on a node, and groups that have served."""
    served: Numbers
    """Groups that have served, whether or not they are complete now: these are not given back."""
    half: bool = True
    """Whether any rank of a group that is not placed is on a node."""


class Decision(NamedTuple):
    """What a pass decides about the gangs of a service."""

    record: Record | None
    """The state to store; None if everything is placed."""
    again: float | None = None
    """Seconds until time alone changes the decision; None if only an event can."""
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
    """Return the next state of a service's gangs.

    turn         None if the gang is not admitted; otherwise whether it seems to fit.
    contested    Whether other gangs wait for nodes that this gang wants: then a first try needs admission too, and pods
                 without a node make way.
    timeout      Seconds in which a gang has to be bound.
    gives_way    Whether groups that had served, and no longer count as served in `seen`, are given back now.
    """
    missing = _missing(seen)
    if not any(missing.values()):
        # Kept until the service serves: if a rank is lost before, the gang is incomplete and has not served.
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
        return Decision(Record({}, told, anew=not any(seen.served.values())), timeout)
    record = record._replace(waiting=_within(record.waiting, missing))
    if record.trying:
        return _tried(record, seen, missing, contested, timeout, now)
    return Decision(record) if turn is None else Decision(_begun(record, seen, turn, now), timeout)


def gang(record: Record | None, seen: Seen) -> Numbers:
    """Return the groups of the next try: a group of every role, or a single group once every role has a group on nodes."""
    waiting = _within(record.waiting, _missing(seen)) if record is not None else {}
    if not _founded(seen):
        return {role: min(1, count) for role, count in waiting.items() if count}
    role = next((role for role, count in waiting.items() if count), "")
    return {role: 1} if role else {}


def trying(record: Record | None, seen: Seen) -> Numbers:
    """Return the groups that exist, or are about to, and are not on nodes yet: capacity is reserved for them."""
    waiting = _within(record.waiting, _missing(seen)) if record is not None else {}
    made = {role: count - waiting.get(role, 0) - _there(seen, role) for role, count in seen.wanted.items()}
    return {role: count for role, count in made.items() if count > 0}


def _tried(record: Record, seen: Seen, missing: Numbers, contested: bool, timeout: float, now: datetime) -> Decision:
    """Return the next state while a gang is being placed. A gang that holds no node gives back only if others want the
    nodes.
    """
    told, idle = now.isoformat(timespec="seconds"), not record.since
    if all(count <= record.waiting.get(role, 0) for role, count in missing.items()):
        # This gang is bound, and other groups of the service wait.
        return Decision(record._replace(since=told, tries=0, first=told, trying=False))
    since = quantity.moment(record.since, now) or now
    left = timeout - (now - since).total_seconds()
    if left > 0 and (seen.half or not idle):
        return Decision(record._replace(since=since.isoformat(timespec="seconds")), left)
    first = record.first or told
    if not (seen.half or contested):
        return Decision(record._replace(since="", first=first))
    waiting, tries = _held_back(missing), record.tries + record.sure
    anew = record.anew or not any(seen.served.values())
    given_back = record._replace(waiting=waiting, since=told, tries=tries, first=first, trying=False, sure=False, anew=anew)
    return Decision(given_back, failed=not idle)


def _begun(record: Record, seen: Seen, sure: bool, now: datetime) -> Record:
    """Return the state after the gang was admitted."""
    unit = gang(record, seen)
    waiting = {role: count - unit.get(role, 0) for role, count in record.waiting.items() if count > unit.get(role, 0)}
    return record._replace(waiting=waiting, since=now.isoformat(timespec="seconds"), trying=True, sure=sure)


def _missing(seen: Seen) -> dict[str, int]:
    """Return the groups that are not placed. A group that is on nodes and has not served counts as not placed until its gang
    is complete.
    """
    placed = seen.served if not _founded(seen) else {role: _there(seen, role) for role in seen.wanted}
    return {role: max(0, count - placed.get(role, 0)) for role, count in seen.wanted.items()}


def _there(seen: Seen, role: str) -> int:
    return max(seen.bound.get(role, 0), seen.served.get(role, 0))


def _founded(seen: Seen) -> bool:
    """Return whether a group of every role is on nodes."""
    return all(_there(seen, role) for role, count in seen.wanted.items() if count)


def _held_back(missing: Numbers) -> dict[str, int]:
    """Return the groups to give back: every group that is not placed. Before the first gang is complete only groups that
    have served count as placed.
    """
    return {role: count for role, count in missing.items() if count}


def _within(waiting: Numbers, missing: Numbers) -> dict[str, int]:
    """Limit the waiting groups to those that are still missing: the service may want fewer groups by now."""
    return {role: min(count, missing.get(role, 0)) for role, count in waiting.items() if min(count, missing.get(role, 0))}


def rested(record: Record, now: datetime) -> bool:
    """Return whether the pause after the last failed try is over."""
    since = quantity.moment(record.since, now) or now
    return now - since >= timing.PAUSES[min(record.tries, len(timing.PAUSES) - 1)]
