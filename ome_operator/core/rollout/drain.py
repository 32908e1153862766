"""Groups that are to go serve no new requests before their leader is stopped (decisions 9).

A leader is marked first; the registry takes it out of the routers. When that has surely happened its StatefulSet is deleted:
the leader gets its SIGTERM, finishes what it has within its grace period, and its workers go after it.
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
"""Seconds between the mark and the stop: the registry lists pods every 5 s, and a request on its way arrives."""


class Retained(NamedTuple):
    """What draining makes of the groups that are wanted."""

    numbers: tuple[int, ...]
    """The groups that a role of a slice keeps for now, at least those that are wanted."""
    wanted: tuple[int, ...]
    """The groups that are to stay."""
    patch: tuple[Patch, ...] = ()
    again: float | None = None
    """Seconds until a marked leader may be stopped."""


Held = Mapping[tuple[str, str], Retained]
"""(revision, component) -> the groups that it keeps for now, more than wanted while some are drained."""


def hold(component: str, wanted: tuple[int, ...], slice_: Slice, now: datetime, routed: bool = True) -> Retained:
    """The groups of a role to keep for now, and the marks to set and to take back.

    Without a router in front (`routed`) nobody could take a leader out of it first.
    """
    led = {child.uid for child in sets(component, slice_) if is_leader_set(child)}
    leaders = [pod for pod in slice_.pods if pod.rank == 0 and pod.workload_uid in led and not pod.deleting]
    unmark = tuple(_mark(pod, None) for pod in leaders if pod.draining and pod.group in wanted)
    # One that runs and is not ready may still have requests: a router lists it for a while.
    goes = [pod for pod in leaders if pod.running and pod.group not in wanted] if routed else []
    mark = tuple(_mark(pod, now) for pod in goes if _marked(pod, now) is None)
    left = {pod.group: wait for pod in goes if (wait := _left(pod, now)) > 0}
    numbers = tuple(sorted({*wanted, *left}))
    return Retained(numbers, wanted, (*unmark, *mark), min(left.values(), default=None))


def serving_again(observed: Observed, pods: Iterable[Pod]) -> tuple[Patch, ...]:
    """The marks of all leaders that nobody has stopped yet, taken back."""
    led = {child.uid for child in observed.children.values() if is_leader_set(child) and not child.deleting}
    return tuple(_mark(pod, None) for pod in pods if pod.draining and pod.workload_uid in led and not pod.deleting)


def _left(pod: Pod, now: datetime) -> float:
    """Seconds until the leader may be stopped."""
    since = _marked(pod, now)
    return NOTICE if since is None else NOTICE - (now - since).total_seconds()


def _marked(pod: Pod, now: datetime) -> datetime | None:
    """When the leader was marked; None when it is not, or by somebody who did not say when."""
    return quantity.moment(pod.draining, now)


def _mark(pod: Pod, when: datetime | None) -> Patch:
    value = when.isoformat(timespec="seconds") if when else None
    return Patch("Pod", pod.name, pod.uid, {"metadata": {"annotations": {keys.DRAINING: value}}})
