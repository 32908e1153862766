"""The stored state of a group: an entry of `status.groups`. Nothing else is stored, so a restart of the operator loses
nothing.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from ome_operator import quantity
from ome_operator.core.observed.objects import Pod
from ome_operator.util.memoize import memoize_by_identity

PENDING, HELD, STARTING, READY = "Pending", "Preflight", "Starting", "Ready"
NOT_READY, NODE_LOST, RESTARTING = "NotReady", "NodeLost", "Restarting"
SILENT, SYSTEMIC, RECYCLING, FAILED = "Silent", "SystemicFault", "Recycling", "Failed"
"""Phases of a group.

* PENDING: not every pod is on a node.
* HELD: every pod is on a node, and a preflight check keeps the engine of a rank from starting.
* STARTING: every pod is on a node, and the engines are loading.
* READY: the group serves.
* NOT_READY: the group served before, and its leader is not ready.
* SILENT: the group served before, and its leader is ready, but answers no probe of the routers' registries.
* NODE_LOST: the group served before, its leader is not ready, and the node of the leader does not report.
* RESTARTING: the main containers of ranks restart by themselves.
* SYSTEMIC: the leader is not ready, and neither are leaders of other groups of the role.
* RECYCLING: pods of the recorded start are being deleted.
* FAILED: the group was recycled as often as is allowed.
"""
PHASES = (PENDING, HELD, STARTING, READY, NOT_READY, SILENT, NODE_LOST, RESTARTING, SYSTEMIC, RECYCLING, FAILED)

UID = 8
"""Number of characters of a UID that are stored. They suffice to distinguish two pods of a group."""


def start_mark(pod: Pod) -> str:
    """Return the mark of the present start of a pod's main container: the first characters of the pod's UID, and the
    number of restarts.
    """
    return f"{pod.uid[:UID]}.{pod.restarts}"


@dataclass(frozen=True)
class GroupRecord:
    """The stored state of a group: its recorded start, and how often and why it was recycled."""

    name: str
    component: str
    revision: str
    index: int
    phase: str = PENDING
    since: str = ""
    """When the phase began, in RFC 3339, like all times of this class."""
    incarnation: int = 0
    """Number of starts that were recorded; 0 before the first recorded start."""
    ready_since: str = ""
    """When the present start was recorded, or when the group became ready again; "" if the start in `members` was never
    ready."""
    members: dict[str, str] = field(default_factory=dict)
    """Maps each rank to the mark (`start_mark`) of the pod and the restart with which the group was last seen ready. In the
    phase RECYCLING, these are the marks of the pods that are being deleted.
    """
    node: str = ""
    """Name of the node of the leader."""
    recycles: int = 0
    in_a_row: int = 0
    """Number of recycles since the group was last ready for `policy.STABLE` seconds."""
    recycled_at: str = ""
    failure: dict[str, Any] | None = None
    """The last failure, in the format of `status.groups[].lastFailure`."""
    start: dict[str, Any] | None = None
    """The last start, in the format of `status.groups[].start`; None if no start was observed."""

    def in_phase(self, phase: str, now: datetime) -> "GroupRecord":
        """Return the record with the phase `phase`. `since` changes only if the phase changes."""
        return self if phase == self.phase and self.since else replace(self, phase=phase, since=quantity.rfc3339(now))

    def without_future_times(self, now: datetime) -> "GroupRecord":
        """Return the record with `now` in place of times in the future. A time is in the future if a clock was set back. A
        timeout that is measured from such a time would end too late.
        """
        times = {name: getattr(self, name) for name in ("since", "ready_since", "recycled_at")}
        late: dict[str, Any] = {name: quantity.rfc3339(now) for name, time in times.items() if seconds_since(time, now) < 0}
        return replace(self, **late) if late else self


def seconds_since(since: str, now: datetime) -> float:
    """Return the seconds since a time; infinity if `since` is not a time."""
    when = quantity.parse_instant(since)
    return float("inf") if when is None else (now.astimezone(UTC) - when).total_seconds()


@memoize_by_identity(1024)
def parse_records(status: Mapping[str, Any]) -> Mapping[str, GroupRecord]:
    """Return the records in the stored status of a service, by the name of the group."""
    return {one["name"]: _read(one) for one in status.get("groups") or ()}


def _read(one: Mapping[str, Any]) -> GroupRecord:
    return GroupRecord(
        name=one["name"],
        component=one.get("component") or "",
        revision=one.get("revision") or "",
        index=one.get("index") or 0,
        phase=one.get("phase") or PENDING,
        since=one.get("since") or "",
        incarnation=one.get("incarnation") or 0,
        ready_since=one.get("readySince") or "",
        members=one.get("members") or {},
        node=one.get("node") or "",
        recycles=one.get("recycles") or 0,
        in_a_row=one.get("recyclesInARow") or 0,
        recycled_at=one.get("recycledAt") or "",
        failure=one.get("lastFailure"),
        start=one.get("start"),
    )


def format_records(records: Iterable[GroupRecord]) -> list[dict[str, Any]]:
    """Return the records in the format of the status, sorted, without empty fields."""
    return [_written(one) for one in sorted(records, key=_order)]


def with_first_starts(stored: Sequence[dict[str, Any]], groups: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Return the entries of `status.groups` that are stored during a freeze. These are the entries `stored`, which the
    freeze keeps. Only the entry of a group whose first start is not stored yet is taken from `groups`, which contains
    the entries that would be stored without a freeze.

    The first start of a group is the only proof that the group has ever served, and it can only be observed while all ranks
    run. Storing this start does not announce a recycle: the group is recycled only if it fails, like a group that served
    before the freeze.
    """
    known = {one["name"] for one in stored if one.get("incarnation")}
    first = {one["name"]: one for one in groups if one.get("incarnation") and one["name"] not in known}
    if not first:
        return tuple(stored)
    kept = [one for one in stored if one["name"] not in first]
    return limit_records(sorted((*kept, *first.values()), key=lambda one: _order(_read(one))))[0]


def _order(record: GroupRecord) -> tuple[str, str, int]:
    return record.component, record.revision, record.index


LARGEST = 900 * 1024
"""Largest number of bytes of all groups in a status: etcd stores no object above 1.5 MiB, and the spec and the conditions
need space too."""
WORDS = 200
"""Number of characters to which the messages of failures are shortened if the groups together exceed LARGEST bytes."""


def limit_records(entries: Sequence[dict[str, Any]]) -> tuple[tuple[dict[str, Any], ...], int]:
    """Reduce the result of `format_records` to LARGEST bytes, and return it with the number of groups that are left out.

    The messages of failures are shortened first, and the starts are left out. If that does not suffice, the last groups
    are left out.
    """
    if sum(map(_most, entries)) <= LARGEST:
        return tuple(entries), 0
    found, left = [], LARGEST
    for each in map(_short, entries):
        left -= len(json.dumps(each, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")) + 1
        if left < 0:
            break
        found.append(each)
    return tuple(found), len(entries) - len(found)


def _most(group: dict[str, Any]) -> int:
    """Return an upper bound of the number of bytes of a group in the status."""
    words = sum(map(len, map(str, (group.get("lastFailure") or {}).values())))
    names = len(group["name"]) + len(group.get("node") or "")
    start = 100 + 60 * len((group.get("start") or {}).get("parts") or ())
    return 400 + start + 2 * names + 30 * len(group.get("members") or ()) + 6 * words


def _short(group: dict[str, Any]) -> dict[str, Any]:
    failure, group = group.get("lastFailure"), {name: value for name, value in group.items() if name != "start"}
    return {**group, "lastFailure": {**failure, "message": str(failure.get("message") or "")[:WORDS]}} if failure else group


def _written(one: GroupRecord) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": one.name,
        "component": one.component,
        "revision": one.revision,
        "index": one.index,
        "phase": one.phase,
        "since": one.since,
        "incarnation": one.incarnation,
    }
    more: dict[str, Any] = {
        "readySince": one.ready_since,
        "members": one.members,
        "node": one.node,
        "recycles": one.recycles,
        "recyclesInARow": one.in_a_row,
        "recycledAt": one.recycled_at,
        "lastFailure": one.failure,
        "start": one.start,
    }
    return entry | {key: value for key, value in more.items() if value}
