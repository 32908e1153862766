"""Find failures of a service's groups for which a node may be to blame, in the service's pods and in `status.groups`."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.core.badnodes.record import Role, time
from ome_operator.core.observed.objects import Pod
from ome_operator.core.termination import most_informative_line

ROUND = 60.0
"""Seconds after a failure of a group during which further exits of its containers count as consequences of this failure.
If one rank ends, the other ranks end, too."""
HANGS = frozenset({"NotReady", "Silent", "NotReadyInTime"})
"""Reasons of recycles for which it is unknown which rank of the group caused the failure."""
_OF_THE_KUBELET = frozenset({"UnexpectedAdmissionError"})
"""Reasons of failed pods that prove a fault of the node although no container has an exit code. All other reasons without
an exit code are evictions, preemptions or shutdowns."""

GroupKey = tuple[str, str, int]
"""Component, revision and number of a group."""
Counted = Mapping[GroupKey, float]
"""For each group, the time in seconds since the epoch up to which the failures of the group have been counted."""


class FailureSign(NamedTuple):
    """A failure of a group for which a node may be to blame."""

    node: str
    role: Role
    kind: str
    time: float
    message: str


class ReadyGroup(NamedTuple):
    """A group that is ready, with its nodes."""

    role: Role
    nodes: frozenset[str]
    since: float


def signs(
    pods: Iterable[Pod], groups: Iterable[Mapping[str, Any]], counted: Counted, floor: float, now: float
) -> tuple[list[FailureSign], dict[GroupKey, float]]:
    """Return the failures of a service's groups that have not been counted yet, and the value of `counted` for the next
    call.

    Of each group, at most one failure is counted within ROUND seconds: the failure of the container that ended first.

    groups      `status.groups` of the service.
    counted     For each group, the time up to which its failures have been counted, in seconds since the epoch.
    floor       The time up to which failures have been counted for groups that are not in `counted`.
    """
    records, found, then = {_key_of(each): each for each in groups}, list[FailureSign](), dict[GroupKey, float]()
    members = _groups(pods)
    for key in {*members, *records}:
        mine, since = members.get(key, []), counted.get(key, floor)
        new = [*_hang(mine, records.get(key) or {}, since), *_endings(mine, since, now)] if mine else []
        found += new
        until = max((sign.time for sign in new), default=since)
        then[key] = max(until, now) if any(pod.deleting for pod in mine) else until
    return sorted(found, key=lambda sign: (sign.time, sign.node)), then


def ready_groups(pods: Iterable[Pod]) -> Iterator[ReadyGroup]:
    """Yield the groups of a service whose leader is ready and none of whose pods is being deleted."""
    for members in _groups(pods).values():
        leader = next((pod for pod in members if pod.rank == 0), None)
        if leader is not None and leader.ready and not any(pod.deleting for pod in members):
            yield ReadyGroup(_role(leader), frozenset(pod.node for pod in members if pod.node), time(leader.times.ready))


def _groups(pods: Iterable[Pod]) -> dict[GroupKey, list[Pod]]:
    found: dict[GroupKey, list[Pod]] = {}
    for pod in pods:
        if pod.component != keys.ROUTER and pod.group >= 0 and pod.rank >= 0:
            found.setdefault((pod.component, pod.revision, pod.group), []).append(pod)
    return found


def _key_of(group: Mapping[str, Any]) -> GroupKey:
    return str(group.get("component") or ""), str(group.get("revision") or ""), int(group.get("index") or 0)


def _role(pod: Pod) -> Role:
    return Role(pod.namespace, pod.service, pod.component, pod.revision)


def _hang(members: list[Pod], record: Mapping[str, Any], since: float) -> Iterator[FailureSign]:
    """Yield a failure for each node of a group that is being recycled because it hangs, unless the group began to hang at or
    before the time `since`.
    """
    failure = record.get("lastFailure") or {}
    at = time(failure.get("time"))
    if record.get("phase") != "Recycling" or failure.get("reason") not in HANGS or at <= since:
        return
    for node in sorted({pod.node for pod in members if pod.node}):
        yield FailureSign(node, _role(members[0]), str(failure["reason"]), at, str(failure.get("message") or ""))


def _endings(members: list[Pod], since: float, now: float) -> Iterator[FailureSign]:
    """Yield the failures of a group's containers since the time `since`, and the findings of preflight checks that keep an
    engine from starting.

    Of containers that end within ROUND seconds of each other, only the first failure is yielded. No failure is yielded while
    a pod of the group is being deleted, or within ROUND seconds after a pod was replaced, because the other pods end as a
    consequence.
    """
    if any(pod.deleting for pod in members):
        return
    created = {pod.uid: time(pod.times.created) for pod in members}
    if max(created.values()) - min(created.values()) > ROUND:
        since = max(since, *created.values())
    for pod in sorted((pod for pod in members if pod.node and _ended(pod)), key=lambda pod: (_ended(pod), pod.rank)):
        at = _ended(pod)
        if pod.ending is not None and since + (ROUND if created[pod.uid] < since else 0.0) < at <= now + ROUND:
            yield FailureSign(
                pod.node, _role(pod), pod.ending.reason, at, most_informative_line(pod.ending.message) or _how(pod)
            )
            since = at
    if now > since + ROUND:
        yield from _held(members, now)


def _ended(pod: Pod) -> float:
    """Return when the main container of a pod last failed, in seconds since the epoch. Return 0 if the container has not
    failed, or if the pod was evicted, preempted or deleted.
    """
    if pod.ending is None or (pod.ending.code is None and pod.ending.reason not in _OF_THE_KUBELET):
        return 0.0
    return time(pod.ending.time) or time(pod.times.created)


def _how(pod: Pod) -> str:
    return f"rank {pod.rank} exited with code {pod.ending.code}" if pod.ending and pod.ending.code is not None else ""


def _held(members: list[Pod], now: float) -> Iterator[FailureSign]:
    """Yield a failure for each node on which a preflight check found a problem that keeps an engine from starting."""
    ranks, seen = {pod.rank: pod for pod in members}, set[str]()
    for pod in members:
        if pod.preflight is None or not pod.preflight.held:
            continue
        for finding in pod.preflight.findings:
            node = (pod if finding.rank < 0 else ranks.get(finding.rank, pod)).node
            if node and node not in seen:
                seen.add(node)
                yield FailureSign(node, _role(pod), "Preflight", now, finding.sentence)
