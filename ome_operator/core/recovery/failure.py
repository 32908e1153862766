"""Determine why a group failed: the container that ended first, as the kubelet reports it. The failure is stored, so that
it remains known when its pod no longer exists.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from ome_operator import quantity
from ome_operator.core.observed.objects import Pod
from ome_operator.core.recovery.group import Group, uid_of
from ome_operator.core.recovery.record import UID, GroupRecord, start_mark
from ome_operator.core.termination import most_informative_line

Failure = dict[str, Any]
"""A failure, in the format of `status.groups[].lastFailure`."""

DELETED, REPLACED, MISSING = "PodDeleted", "PodReplaced", "PodMissing"
HUNG, QUIET, LATE, DRIFTED = "NotReady", "Silent", "NotReadyInTime", "TemplateDrift"
_WEAK = frozenset({DELETED, REPLACED, MISSING, HUNG, QUIET})
"""Reasons of failures that are visible only from outside of a container. The exit of a container is stronger evidence
than such a reason."""
_PLAIN = frozenset({"Error", "Completed"})


def find_failure(group: Group, record: GroupRecord, lost: Callable[[str], bool], now: datetime) -> Failure | None:
    """Return the failure to store. This is the container that ended first since the recorded start. If no container has
    ended, it is the stored failure, unless the group became ready after it. Otherwise it is a failure that is visible
    from outside or, without one, the older stored failure. Return None if there is no failure.
    """
    known = record.failure
    current = known if known is not None and known.get("time", "") >= record.ready_since else None
    endings = [_ended(pod, now) for rank, pod in group.pods.items() if _failed(pod, rank, record)]
    strong = [one for one in endings if one is not None and one["time"] >= record.ready_since]
    if current is not None and current.get("reason") not in _WEAK:
        strong.append(current)
    if strong:
        return min(strong, key=lambda one: str(one["time"]))
    return current or next(_seen(group, record, lost, now), None) or known


def group_failure(group: Group, reason: str, message: str, now: datetime) -> Failure:
    """Return a failure of the group as a whole, reported for its leader pod."""
    return {"podName": group.name, "reason": reason, "message": message, "time": quantity.rfc3339(now)}


def sentence(failure: Failure) -> str:
    """Return the failure as a human-readable sentence."""
    pod, reason, message = failure.get("podName"), failure.get("reason") or "", failure.get("message") or ""
    if failure.get("exitCode") is None:
        return f"pod {pod}: {message or reason}" if reason in _WEAK else f"pod {pod}: {reason}, {message}".rstrip(", ")
    how = f"container {failure.get('containerName')} of pod {pod} exited with code {failure['exitCode']}"
    if reason not in _PLAIN:
        how += f" ({reason})"
    return f"{how}: {words}" if (words := most_informative_line(message)) else how


def start_failure(group: Group, message: str, now: datetime) -> Failure:
    """Return why a group does not become ready: the latest exit of a container of its pods. If no container has ended, the
    result is a failure with the message `message`.
    """
    endings = [one for pod in group.pods.values() if (one := _ended(pod, now)) is not None]
    return max(endings, key=lambda one: str(one["time"]), default=group_failure(group, LATE, message, now))


def _failed(pod: Pod, rank: int, record: GroupRecord) -> bool:
    """Return whether the pod that was recorded for a rank still exists, but its main container has ended or restarted
    since the recorded start, or is about to end.
    """
    same = uid_of(record, rank) == pod.uid[:UID]
    return same and (record.members[str(rank)] != start_mark(pod) or pod.deleting or pod.over or not pod.running)


def _ended(pod: Pod, now: datetime) -> Failure | None:
    if pod.ending is None:
        return None
    one = pod.ending
    out = {"podName": pod.name, "reason": one.reason, "message": one.message, "time": one.time or quantity.rfc3339(now)}
    return out if one.code is None else out | {"containerName": one.container, "exitCode": one.code}


def _seen(group: Group, record: GroupRecord, lost: Callable[[str], bool], now: datetime) -> Iterator[Failure]:
    """Yield the failures of ranks that are visible from outside: the recorded pod is missing, is being deleted, or was
    replaced.
    """
    for rank in range(group.size):
        pod = group.pods.get(rank)
        if str(rank) not in record.members:
            continue
        if pod is None:
            yield group_failure(group, MISSING, f"rank {rank} has no pod", now)
        elif pod.deleting or pod.over:
            where = f" on node {pod.node}, which does not report" if lost(pod.node) else ""
            yield group_failure(group, DELETED, f"it is being deleted{where}", now) | {"podName": pod.name}
        elif uid_of(record, rank) != pod.uid[:UID]:
            yield group_failure(group, REPLACED, "the pod was deleted and replaced by a new pod", now) | {
                "podName": pod.name
            }
