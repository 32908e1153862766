"""What is remembered of a group: an entry of `status.groups`, and nothing else. A restart of the operator loses nothing."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from ome_operator.core.observed.objects import Pod
from ome_operator.util.memoize import memoize_by_identity

PENDING, HELD, STARTING, READY = "Pending", "Preflight", "Starting", "Ready"
NOT_READY, NODE_LOST, RESTARTING = "NotReady", "NodeLost", "Restarting"
SYSTEMIC, RECYCLING, FAILED = "SystemicFault", "Recycling", "Failed"
"""Phases of a group: not all pods are on nodes · all are, and a check keeps their engines from starting · all load · serves
· it served, and its leader is not ready · nor does the leader's node report · ranks come back by themselves · it is not
ready, and others of its role neither · pods of the recorded start are being deleted · it was recycled as often as may be."""
PHASES = (PENDING, HELD, STARTING, READY, NOT_READY, NODE_LOST, RESTARTING, SYSTEMIC, RECYCLING, FAILED)

UID = 8
"""Characters of a UID that tell two pods of one group apart."""


def mark(pod: Pod) -> str:
    """One start of a pod's main container."""
    return f"{pod.uid[:UID]}.{pod.restarts}"


@dataclass(frozen=True)
class GroupRecord:
    """One group: its recorded start, and how often and why it was recycled."""

    name: str
    component: str
    revision: str
    index: int
    phase: str = PENDING
    since: str = ""
    """When the phase began, in RFC 3339, as all times here."""
    incarnation: int = 0
    """How many starts were recorded; 0 before the first."""
    ready_since: str = ""
    """When the present start was recorded, or became ready again; "" when `members` never was ready."""
    members: dict[str, str] = field(default_factory=dict)
    """Rank -> mark of the start that was recorded, or, in RECYCLING, that has to go."""
    node: str = ""
    """Of the leader."""
    recycles: int = 0
    in_a_row: int = 0
    """Recycles since the group stayed ready for some time."""
    recycled_at: str = ""
    failure: dict[str, Any] | None = None
    """The last one, as `status.groups[].lastFailure`."""

    def to(self, phase: str, now: datetime) -> "GroupRecord":
        """With this phase; `since` moves only when the phase changes."""
        return self if phase == self.phase and self.since else replace(self, phase=phase, since=stamp(now))

    def believed(self, now: datetime) -> "GroupRecord":
        """With no time that is still to come: a clock was set back since, and a wait would last for as long as that."""
        times = {name: getattr(self, name) for name in ("since", "ready_since", "recycled_at")}
        late: dict[str, Any] = {name: stamp(now) for name, time in times.items() if passed(time, now) < 0}
        return replace(self, **late) if late else self


def stamp(now: datetime) -> str:
    """A time as the API spells it; whole seconds, so it is up to one second early."""
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def passed(since: str, now: datetime) -> float:
    """Seconds since a time; endless since none."""
    try:
        when = datetime.fromisoformat(since)
    except ValueError:
        return float("inf")
    return (now.astimezone(UTC) - when.astimezone(UTC)).total_seconds()


@memoize_by_identity(1024)
def read(status: Mapping[str, Any]) -> Mapping[str, GroupRecord]:
    """The records in a service's stored status, by name."""
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
    )


def written(records: Iterable[GroupRecord]) -> list[dict[str, Any]]:
    """The same for the status, sorted, with only the fields that have something to say."""
    return [_written(one) for one in sorted(records, key=lambda one: (one.component, one.revision, one.index))]


LARGEST = 900 * 1024
"""Bytes of all groups in a status: etcd stores no object of more than 1.5 MiB, and spec and conditions need room."""
WORDS = 200
"""Characters of what a failed group said, where there are too many groups for more."""


def bounded(told: Sequence[dict[str, Any]]) -> tuple[tuple[dict[str, Any], ...], int]:
    """What `written` made, within LARGEST, and how many groups are left out, the last of them: first failures say less."""
    if sum(map(_most, told)) <= LARGEST:
        return tuple(told), 0
    found, left = [], LARGEST
    for each in map(_short, told):
        left -= len(json.dumps(each, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")) + 1
        if left < 0:
            break
        found.append(each)
    return tuple(found), len(told) - len(found)


def _most(group: dict[str, Any]) -> int:
    """More bytes than a group takes."""
    words = sum(map(len, map(str, (group.get("lastFailure") or {}).values())))
    names = len(group["name"]) + len(group.get("node") or "")
    return 400 + 2 * names + 30 * len(group.get("members") or ()) + 6 * words


def _short(group: dict[str, Any]) -> dict[str, Any]:
    failure = group.get("lastFailure")
    return {**group, "lastFailure": {**failure, "message": str(failure.get("message") or "")[:WORDS]}} if failure else group


def _written(one: GroupRecord) -> dict[str, Any]:
    told: dict[str, Any] = {
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
    }
    return told | {key: value for key, value in more.items() if value}
