"""Compute how many seconds each part of a group's last start took, from the times of its pods and from the observations of
the registries of routers (docs/telemetry.md, "The start of a group"). A part whose duration is unknown is left out.

The API reports whole seconds, and the clocks of nodes and of this process differ a little, so a computed duration may be
negative. A duration from -`TOLERANCE` to 0 is taken as 0; a smaller duration is treated as unknown.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from ome_operator import quantity
from ome_operator.core.observed.objects import Pod
from ome_operator.core.observed.telemetry import LeaderStart
from ome_operator.core.recovery.group import Group
from ome_operator.core.recovery.record import READY, GroupRecord

AFTER_START = "firstToken"
"""The only part that does not count for the duration of a start. It depends on when a client sends a request."""
PARTS = (
    "scheduled",
    "volumes",
    "init",
    "image",
    "imports",
    "weights",
    "cache",
    "graphs",
    "engine",
    "warmup",
    "probe",
    "listed",
    AFTER_START,
)
"""The parts of a start, in their order.

* scheduled: until the pod has a node.
* volumes: until the pod has its volumes and its network.
* init: until its init containers have ended, their images included.
* image: until the main container starts, its image included.
* imports: until the engine measures its own start: programs are loaded, and arguments are read.
* weights, cache, graphs: the engine loads the weights, allocates the KV cache, and captures graphs.
* engine: the rest of the start as the engine measures it.
* warmup: from the first answer of the HTTP server until the engine calls itself healthy.
* probe: until Kubernetes reports the leader as ready.
* listed: until a router may send requests to the leader; 0 if that was earlier.
* firstToken: from the moment at which a router lists the leader until a registry reads that its router has counted the first
  answer of the leader to a request."""
RECENT = 300.0
"""Seconds after the leader became ready within which parts are added to the record of a start."""
TOLERANCE = 2.0
DIGITS = 1


def with_start(
    group: Group, before: GroupRecord | None, record: GroupRecord, leader_start: LeaderStart | None, now: datetime
) -> GroupRecord:
    """Return the record with the last start of its group. `before` is the stored record, and `leader_start` the times of the
    leader's start that the registries have observed.
    """
    leader = group.leader
    if record.phase != READY:
        return record
    is_recorded = before is not None and record.incarnation == before.incarnation
    if leader is None or not is_recent(leader, now):
        return record if is_recorded else replace(record, start=None)
    if not is_recorded:
        found = _of_pods(group, leader)
        return replace(record, start=None if found is None else _completed(found, leader, leader_start))
    if not record.start:
        return record
    if record.start.get("time") != leader.times.ready or leader_start is None:
        return record  # the leader was unready for a while, which is not a start
    return replace(record, start=_completed(record.start, leader, leader_start))


def with_expectation(record: GroupRecord, others: Iterable[GroupRecord]) -> GroupRecord:
    """Return the record of a group. If the group was never ready, its record gets a copy of the newest start of another
    group of the component, so that users know how long a start takes. The start is copied because the other group may be
    gone before this group is ready. `others` are the stored records of the service.
    """
    if record.incarnation or record.start:
        return record
    starts = [one.start for one in others if one.component == record.component and one.start]
    return replace(record, start=max(starts, key=lambda start: str(start.get("time")))) if starts else record


def is_recent(leader: Pod, now: datetime) -> bool:
    """Return whether the leader became ready at most `RECENT` seconds ago, so that parts may still be added to the record of
    its start.
    """
    return 0 <= now.timestamp() - _seconds(leader.times.ready) <= RECENT


def _of_pods(group: Group, leader: Pod) -> dict[str, Any] | None:
    """Return the parts of a start that are known from the pods; None if the beginning of the start is unknown. Restarted
    pods are left out, because they have their volumes and images already.
    """
    pods = [pod for pod in group.pods.values() if not pod.restarts]
    begins = [_seconds(pod.times.created) for pod in pods] if leader in pods else [_seconds(leader.times.began)]
    parts = [
        part
        for name in ("scheduled", "volumes", "init", "image")
        if (part := _slowest(name, [(_of_pod(name, pod), pod.rank) for pod in pods], group.size)) is not None
    ]
    total = _part(min(begins), _seconds(leader.times.ready))
    return None if total is None else {"time": leader.times.ready, "seconds": _rounded(total), "parts": parts}


def _of_pod(name: str, pod: Pod) -> float | None:
    times = pod.times
    created, scheduled, network = _seconds(times.created), _seconds(times.scheduled), _seconds(times.network)
    prepared = _seconds(times.initialized) if times.initialized else network
    bounds = {
        "scheduled": (created, scheduled),
        "volumes": (scheduled, network),
        "init": (network, _seconds(times.initialized)),
        "image": (prepared, _seconds(times.began)),
    }
    return _part(*bounds[name])


def _slowest(name: str, found: Iterable[tuple[float | None, int]], size: int) -> dict[str, Any] | None:
    """Return the part of a start with the duration of its slowest rank; None if the duration is unknown for every rank.
    `size` is the number of ranks of the group.
    """
    known = [(seconds, -rank) for seconds, rank in found if seconds is not None]
    if not known:
        return None
    seconds, rank = max(known)
    return {"name": name, "seconds": _rounded(seconds)} | ({"rank": -rank} if size > 1 else {})


def _completed(start: Mapping[str, Any], leader: Pod, leader_start: LeaderStart | None) -> dict[str, Any]:
    """Return the start together with the parts that have become known since it was stored. `leader_start` contains the times
    that registries of routers observed; None if they observed none.
    """
    parts = {part["name"]: part for part in start["parts"]}
    for name, seconds in _of_engine(leader, leader_start).items() if leader_start is not None else ():
        if name not in parts and seconds is not None:
            parts[name] = {"name": name, "seconds": _rounded(seconds)}
    return {**start, "parts": [parts[name] for name in PARTS if name in parts]}


def _of_engine(leader: Pod, leader_start: LeaderStart) -> dict[str, float | None]:
    own, reported = (
        leader_start.parts.get("own"),
        {name: leader_start.parts.get(name) for name in ("weights", "cache", "graphs")},
    )
    ready, nan = _seconds(leader.times.ready), float("nan")
    answers, healthy, listed, succeeded = (nan if at is None else at for at in leader_start[1:])
    return {
        **reported,
        "imports": None if own is None else _part(_seconds(leader.times.began) + own, answers),
        "engine": None if own is None else _part(sum(filter(None, reported.values())), own),
        "warmup": _part(answers, healthy),
        "probe": _part(healthy, ready),
        # Registries list a healthy engine before Kubernetes reports its leader as ready.
        "listed": 0.0 if listed < ready else _part(ready, listed),
        AFTER_START: _part(listed, succeeded),
    }


def start_duration(start: Mapping[str, Any]) -> float:
    """Return the duration of a start in seconds. The start ends when the leader is ready and a router can send requests to
    the leader. If this second time is unknown, the start ends when the leader is ready. The part firstToken is not
    included.
    """
    listed = next((part["seconds"] for part in start.get("parts") or () if part.get("name") == "listed"), 0.0)
    return float(start.get("seconds") or 0.0) + float(listed)


def _part(begin: float, end: float) -> float | None:
    """Return the seconds between two times; None if one of them is unknown, or if they cannot be right."""
    return max(0.0, end - begin) if end - begin >= -TOLERANCE else None


def _rounded(seconds: float) -> float:
    """Return a number as the API server stores it: 2.0 as 2."""
    found = round(seconds, DIGITS)
    return int(found) if found == int(found) else found


def _seconds(moment: str) -> float:
    """Return a time in seconds since the epoch; NaN if the text is not a time."""
    when = quantity.parse_instant(moment)
    return float("nan") if when is None else when.timestamp()
