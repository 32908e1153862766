"""Drain groups: a group that is to be removed gets no new requests before its leader is stopped (decisions 9).

First the leader is marked, and the registry sidecar removes it from the routers. When this has certainly happened, the
StatefulSet of the leader is deleted. The leader gets SIGTERM and finishes its requests within its grace period. Its workers
are removed after it.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from ome_operator import keys, quantity
from ome_operator.core.group_numbers import sets
from ome_operator.core.observed.objects import Observed, Pod
from ome_operator.core.observed.slices import Slice, is_leader_set
from ome_operator.core.reconcile.plan import Patch

NOTICE = 15.0
"""Seconds between the mark and the stop of a leader: the registry lists pods every 5 s, and requests that are already on
their way to the leader have to arrive."""


class Retained(NamedTuple):
    """The groups of a role of a slice that are kept for now, because groups are drained before they are removed."""

    numbers: tuple[int, ...]
    """Numbers of the groups that are kept for now: the desired groups, and the groups that are being drained."""
    wanted: tuple[int, ...]
    """Numbers of the desired groups."""
    patch: tuple[Patch, ...] = ()
    again: float | None = None
    """Seconds until the next marked leader may be stopped; None if no marked leader is waiting."""


Held = Mapping[tuple[str, str], Retained]
"""The groups to keep for now, by revision and component."""


def hold(component: str, wanted: tuple[int, ...], slice_: Slice, now: datetime, routed: bool = True) -> Retained:
    """Return the groups of a role to keep for now, and the patches that mark leaders or remove their marks.

    `routed` is false if there is no router. The leaders are not marked in this case.
    """
    led = {child.uid for child in sets(component, slice_) if is_leader_set(child)}
    leaders = [pod for pod in slice_.pods if pod.rank == 0 and pod.workload_uid in led and not pod.deleting]
    unmark = tuple(_mark(pod, None) for pod in leaders if pod.draining and pod.group in wanted)
    # A leader that runs but is not ready may still have requests: a router keeps it listed for a while.
    goes = [pod for pod in leaders if pod.running and pod.group not in wanted] if routed else []
    mark = tuple(_mark(pod, now) for pod in goes if _marked(pod, now) is None)
    left = {pod.group: wait for pod in goes if (wait := _left(pod, now)) > 0}
    numbers = tuple(sorted({*wanted, *left}))
    return Retained(numbers, wanted, (*unmark, *mark), min(left.values(), default=None))


def serving_again(observed: Observed, pods: Iterable[Pod]) -> tuple[Patch, ...]:
    """Return patches that remove the marks of all leaders that have not been stopped yet."""
    led = {child.uid for child in observed.children.values() if is_leader_set(child) and not child.deleting}
    return tuple(_mark(pod, None) for pod in pods if pod.draining and pod.workload_uid in led and not pod.deleting)


def _left(pod: Pod, now: datetime) -> float:
    """Return the seconds until the leader may be stopped."""
    since = _marked(pod, now)
    return NOTICE if since is None else NOTICE - (now - since).total_seconds()


def _marked(pod: Pod, now: datetime) -> datetime | None:
    """Return when the leader was marked; None if it is not marked, or if the mark has no valid time."""
    return quantity.moment(pod.draining, now)


def _mark(pod: Pod, when: datetime | None) -> Patch:
    value = when.isoformat(timespec="seconds") if when else None
    return Patch("Pod", pod.name, pod.uid, {"metadata": {"annotations": {keys.DRAINING: value}}})
