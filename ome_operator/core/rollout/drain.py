"""Drain groups: a group that has to be removed gets no new requests before its leader is stopped (decisions 9).

First the leader is marked, and the registry sidecar removes it from the routers. Then the StatefulSet of the leader is
deleted, as soon as the registries of all routers report that the leader has no requests, and at the latest after the grace
period of the leader (`Drain.limit`). If nothing is reported, the StatefulSet is deleted after `NOTICE`, when the routers
have certainly removed the leader. The leader gets SIGTERM and finishes its requests within its grace period. Its workers are
removed after it.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from ome_operator import keys, quantity
from ome_operator.core.group_numbers import statefulsets
from ome_operator.core.observed.objects import Observed, Pod
from ome_operator.core.observed.slices import Slice, is_leader_set
from ome_operator.core.observed.telemetry import DrainReport, is_fresh
from ome_operator.core.reconcile.plan import Patch

NOTICE = 15.0
"""Seconds between the marking and the stop of a leader if no registry reports whether the leader has requests. In this
time the registry, which lists pods every 3 s, finds the mark, and requests that are already on their way to the leader
arrive."""


EMPTY_READINGS = 2
"""Number of consecutive readings without requests, at intervals of 5 s, after which an engine is considered empty. One
reading does not suffice, because a request may have been on its way to the engine."""
RECHECK = 10.0
"""Seconds after which a leader with requests is checked again, even if nothing new was reported."""
GRACE = 30
"""Grace period in seconds of a pod whose spec sets no grace period: the default of Kubernetes."""


class Drain(NamedTuple):
    """The reports about the requests in draining leaders, and the time after which these leaders are stopped."""

    reports: Mapping[str, tuple[DrainReport, ...]] = {}
    """The reports of the registries of routers about each leader, by the UID of the leader's pod."""
    limit: float = 0.0
    """Maximum seconds between the mark and the stop of a leader that has requests: the grace period of its pod."""


class RetainedGroups(NamedTuple):
    """The groups of a role of a revision that are kept for now: the desired groups, and groups that are drained before they
    are removed.
    """

    numbers: tuple[int, ...]
    """Numbers of the groups that are kept for now: the desired groups, and the groups that are being drained."""
    wanted: tuple[int, ...]
    """Numbers of the desired groups."""
    patch: tuple[Patch, ...] = ()
    again: float | None = None
    """Seconds until the next marked leader may be stopped; None if no marked leader is waiting."""


Held = Mapping[tuple[str, str], RetainedGroups]
"""The groups to keep for now, by revision and component."""


NOT_KNOWN = Drain()


def retain_groups(
    component: str,
    wanted: tuple[int, ...],
    slice_: Slice,
    now: datetime,
    routed: bool = True,
    drain: Drain = NOT_KNOWN,
) -> RetainedGroups:
    """Return the groups of a role to keep for now, and the patches that mark leaders or remove their marks.

    `wanted` are the numbers of the desired groups, and `drain` contains the reports about marked leaders. `routed` is false
    if there is no router. The leaders are not marked in this case.
    """
    routers = frozenset(pod.uid for pod in slice_.pods if pod.component == keys.ROUTER and not pod.over)
    led = {child.uid for child in statefulsets(component, slice_) if is_leader_set(child)}
    leaders = [pod for pod in slice_.pods if pod.rank == 0 and pod.workload_uid in led and not pod.deleting]
    unmark = tuple(_mark(pod, None) for pod in leaders if pod.draining and pod.group in wanted)
    # A leader that runs but is not ready may still have requests: a router keeps it listed for a while.
    goes = [pod for pod in leaders if pod.running and pod.group not in wanted] if routed else []
    mark = tuple(_mark(pod, now) for pod in goes if _marked(pod, now) is None)
    left = {pod.group: wait for pod in goes if (wait := _left(pod, routers, drain, now)) > 0}
    numbers = tuple(sorted({*wanted, *left}))
    return RetainedGroups(numbers, wanted, (*unmark, *mark), min(left.values(), default=None))


def serving_again(observed: Observed, pods: Iterable[Pod]) -> tuple[Patch, ...]:
    """Return patches that end the draining of those leaders in `pods` that are not being stopped yet: the patches remove the
    marks of these leaders.
    """
    led = {child.uid for child in observed.children.values() if is_leader_set(child) and not child.deleting}
    return tuple(_mark(pod, None) for pod in pods if pod.draining and pod.workload_uid in led and not pod.deleting)


def _left(pod: Pod, routers: Collection[str], drain: Drain, now: datetime) -> float:
    """Return the seconds until a marked leader may be stopped, or until its requests are checked again; 0 or less if the
    leader may be stopped now. `routers` are the UIDs of the pods of the revision's routers.
    """
    since = _marked(pod, now)
    if since is None:
        return NOTICE
    passed = (now - since).total_seconds()
    has_requests = _has_requests(drain.reports.get(pod.uid, ()), routers, now.timestamp())
    if has_requests is None:
        return NOTICE - passed
    return max(NOTICE - passed, min(drain.limit - passed, RECHECK)) if has_requests else 0.0


def _has_requests(reports: Iterable[DrainReport], routers: Collection[str], now: float) -> bool | None:
    """Return True if a marked leader has requests or may still have some, False if it certainly has none, and None if this
    is unknown.

    A report of requests from the registry of a single router suffices for True, because an engine reports the requests of
    all routers. The result is False only if every router has removed the leader from its list, and `EMPTY_READINGS` readings
    after that found no requests. The result is None if the registry of any router reports no such readings.
    """
    known = [report for report in reports if report.router in routers and is_fresh(report.at, now)]
    if any(report.requests for report in known):
        return True
    readings = {report.router: report.empty_readings for report in known if report.empty_readings is not None}
    if not routers or not readings.keys() >= set(routers):
        return None
    return any(number < EMPTY_READINGS for number in readings.values())


def _marked(pod: Pod, now: datetime) -> datetime | None:
    """Return when the leader `pod` was marked; None if it is not marked, or if its mark is not a valid time."""
    return quantity.moment(pod.draining, now)


def _mark(pod: Pod, when: datetime | None) -> Patch:
    value = when.isoformat(timespec="seconds") if when else None
    return Patch("Pod", pod.name, pod.uid, {"metadata": {"annotations": {keys.DRAINING: value}}})
