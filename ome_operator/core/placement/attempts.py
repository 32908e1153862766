"""State machine of the gangs of a service. If a gang is not placed completely within the time limit, its nodes are released
and the gang is queued for admission (docs/placement.md).

A gang is a set of groups that have to be on nodes together. Until a service has a group of every role on nodes, one group of
every role forms the first gang. Later each group is a gang of its own. The state contains only how many groups of each role
are not created for now. Another module chooses these groups, and prefers groups that have no node.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from ome_operator import quantity
from ome_operator.core.placement import timing

Numbers = Mapping[str, int]
"""Number of groups by role."""


class Record(NamedTuple):
    """The state that `status.placement` stores while a service is not placed completely."""

    waiting: Numbers
    """Number of groups by role that are not created for now."""
    since: str
    """Time in RFC 3339 at which the present placement attempt, or the wait for the next attempt, began. "" if the time
    limit of the attempt has passed and no pod of the gang has a node. The pods are then kept, visible to autoscalers and
    preemption, until other gangs need the nodes."""
    tries: int = 0
    """Number of consecutive placement attempts that failed although the gang had seemed to fit when they began."""
    first: str = ""
    """Time in RFC 3339 at which the gang began to wait for nodes, with or without pods; "" if the gang has never waited.
    Later placement attempts do not change this time."""
    trying: bool = True
    """True while the pods of the gang exist and are not all bound to nodes. False while the gang waits for admission."""
    sure: bool = False
    """Whether the gang seemed to fit when the present placement attempt began."""
    priority: int = 0
    """The priority of the gang's pods, as the API server set it. The value is kept while there are no pods."""
    refused: str = ""
    """Why pods could not be created when the last placement attempt failed, for example because of a quota. The reason is
    stored here because the StatefulSets that reported it no longer exist."""
    anew: bool = False
    """Whether the service has not served since its first placement attempt, or since all of its groups were removed to
    release nodes. A service serves once every role has a ready group at the same time; a ready group of a single role
    does not suffice."""


class SeenGroups(NamedTuple):
    """The groups of a service as they are observed, counted by role."""

    wanted: Numbers
    bound_groups: Numbers
    """Number of groups, by role, that have every rank on a node or that have served before."""
    served: Numbers
    """Number of groups, by role, that have served before, whether or not they are complete now. A failed placement attempt
    does not remove these groups."""
    half: bool = True
    """Whether a pod of a group that may still be removed is on a node. A group that has served may not be removed to
    release its nodes. A group that is complete on nodes may not be removed either, if every role has a group that is
    complete on nodes or has served."""


class Decision(NamedTuple):
    """The decision of a pass about the gangs of a service."""

    record: Record | None
    """The state to store; None if the service is placed completely."""
    again: float | None = None
    """Seconds until the decision can change without an event; None if only an event can change it."""
    failed: bool = False
    """Whether a placement attempt failed in this pass."""


def advance(
    record: Record | None,
    seen: SeenGroups,
    *,
    turn: bool | None,
    contested: bool,
    timeout: float,
    now: datetime,
    gives_way: bool = False,
) -> Decision:
    """Return the next state of the gangs of a service.

    record       The stored state; None if none is stored.
    seen         The groups as they are observed.
    turn         None if the gang is not admitted; True if it is admitted and seems to fit; False if it is admitted although
                 it does not seem to fit.
    contested    Whether other gangs wait for nodes that this gang wants. In this case even the first placement attempt
                 needs admission, and pods without a node are removed.
    timeout      Seconds within which all pods of a gang have to be bound to nodes.
    gives_way    Whether the groups that hold nodes without serving are removed now to release these nodes. `seen` does not
                 count these groups as served, even if they served before.
    """
    missing = _missing(seen)
    if not any(missing.values()):
        # The record is kept until the service serves: if a rank is lost before, the gang is incomplete and has not served.
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


def gang(record: Record | None, seen: SeenGroups) -> Numbers:
    """Return the number of groups by role that the next placement attempt covers: one waiting group of every role or, once
    every role has a group on nodes, a single group. `record` is the stored state; None if none is stored.
    """
    waiting = _within(record.waiting, _missing(seen)) if record is not None else {}
    if not _founded(seen):
        return {role: min(1, count) for role, count in waiting.items() if count}
    role = next((role for role, count in waiting.items() if count), "")
    return {role: 1} if role else {}


def to_place(record: Record | None, seen: SeenGroups) -> Numbers:
    """Return the number of groups by role that exist or are about to be created, and that are not on nodes yet. Capacity is
    reserved for these groups. `record` is the stored state; None if none is stored.
    """
    waiting = _within(record.waiting, _missing(seen)) if record is not None else {}
    made = {role: count - waiting.get(role, 0) - _there(seen, role) for role, count in seen.wanted.items()}
    return {role: count for role, count in made.items() if count > 0}


def _tried(record: Record, seen: SeenGroups, missing: Numbers, contested: bool, timeout: float, now: datetime) -> Decision:
    """Return the next state while a gang is being placed. A gang without any pod on a node is removed only if other gangs
    need the nodes (`contested`). `missing` is the number of desired groups by role that are not placed. `timeout` is the
    time limit of a placement attempt in seconds.
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


def _begun(record: Record, seen: SeenGroups, sure: bool, now: datetime) -> Record:
    """Return the state at the beginning of a placement attempt, after the gang was admitted. `sure` states whether the
    gang seems to fit.
    """
    unit = gang(record, seen)
    waiting = {role: count - unit.get(role, 0) for role, count in record.waiting.items() if count > unit.get(role, 0)}
    return record._replace(waiting=waiting, since=now.isoformat(timespec="seconds"), trying=True, sure=sure)


def _missing(seen: SeenGroups) -> dict[str, int]:
    """Return the number of desired groups by role that are not placed. Until every role has a group on nodes, only groups
    that have served count as placed.
    """
    placed = seen.served if not _founded(seen) else {role: _there(seen, role) for role in seen.wanted}
    return {role: max(0, count - placed.get(role, 0)) for role, count in seen.wanted.items()}


def _there(seen: SeenGroups, role: str) -> int:
    return max(seen.bound_groups.get(role, 0), seen.served.get(role, 0))


def _founded(seen: SeenGroups) -> bool:
    """Return whether every desired role has a group on nodes."""
    return all(_there(seen, role) for role, count in seen.wanted.items() if count)


def _held_back(missing: Numbers) -> dict[str, int]:
    """Return the number of groups by role to remove: every group that is not placed. Until every role has a group on
    nodes, only groups that have served count as placed.
    """
    return {role: count for role, count in missing.items() if count}


def _within(waiting: Numbers, missing: Numbers) -> dict[str, int]:
    """Return the waiting groups, limited to the groups that are still missing, because the service may want fewer groups by
    now. Both are the number of groups by role.
    """
    return {role: min(count, missing.get(role, 0)) for role, count in waiting.items() if min(count, missing.get(role, 0))}


def has_rested(record: Record, now: datetime) -> bool:
    """Return whether the pause after the last failed placement attempt is over."""
    since = quantity.moment(record.since, now) or now
    return now - since >= timing.PAUSES[min(record.tries, len(timing.PAUSES) - 1)]
