"""Limit how long a new slice may go without another pod becoming ready, and decide what happens then (decisions 12).

The clock is in the status: the largest number of ready pods so far, and since when. It starts when the slice has engines,
restarts with every further ready pod, and disappears when the slice is complete or while the service is paused. It therefore
survives restarts, and a slice that grows step by step has the whole time for each step.
"""

from collections import Counter
from typing import Any, NamedTuple

from ome_operator import keys, quantity
from ome_operator.api import InferenceService
from ome_operator.core.observed.slices import Slice
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.rollout.target import TargetRevision
from ome_operator.core.waves.shared_edits import whole_before

DEFAULT = "1h"
"""As long as the start-up probes of the shipped runtimes allow (360 times 10 s): loading a terabyte takes that long."""
ROLLBACK = "Rollback"


class Clock(NamedTuple):
    """How long a slice has made no progress."""

    stored: dict[str, Any]
    """`{revision, readyPods, since}` as in the status; empty while the clock does not run."""
    left: float | None = None
    """Seconds until the slice counts as failed, 0 if it does; None while the clock does not run."""
    back: bool = False
    """Whether the last complete revision is to come back when the slice fails: the user asks for it, and there is one."""

    @property
    def again(self) -> float | None:
        """Seconds until the next pass has something to do: the time is over, or a stored rejection takes effect."""
        return self.left if self.left or self.back else None


STOPPED = Clock({})


def clock(snapshot: Snapshot, aim: TargetRevision) -> Clock:
    """Return the clock of the target's slice. A slice that was complete before is not new, and has no clock."""
    service, now = snapshot.service, snapshot.now
    rollout = service.spec.rollout
    paused = rollout is not None and bool(rollout.paused)
    if paused or not snapshot.started(aim.revision) or aim.revision in whole_before(service.status):
        return STOPPED
    ready, wanted = count(snapshot.slices[aim.revision])
    if ready >= wanted:
        return STOPPED
    before = service.status.get("progress") or {}
    most, since = before.get("readyPods", 0), quantity.moment(before.get("since", ""), now)
    if before.get("revision") != aim.revision or ready > most or since is None:
        most, since = ready, now.replace(microsecond=0)
    stored = {"revision": aim.revision, "readyPods": most, "since": since.isoformat()}
    passed = (now - since).total_seconds()
    back = rollout is not None and rollout.on_failure == ROLLBACK and bool(aim.back)
    return Clock(stored, max(0.0, quantity.seconds(allowed(service)) - passed), back)


def allowed(service: InferenceService) -> str:
    """Return the time limit of a slice as a person writes it."""
    return (service.spec.rollout.ready_timeout if service.spec.rollout else None) or DEFAULT


def count(one: Slice) -> tuple[int, int]:
    """Return (ready pods, desired pods) of a slice, over its groups and its router."""
    ready = Counter(_workload(pod.component, pod.workload) for pod in one.pods if pod.ready and not pod.deleting)
    sets = [child for child in one.workloads if child.kind in ("StatefulSet", "Deployment") and not child.deleting]
    return sum(min(child.replicas, ready[child.name]) for child in sets), sum(child.replicas for child in sets)


def _workload(component: str, owner: str) -> str:
    """Return the workload of a pod; the pod of a router belongs to it through a ReplicaSet."""
    return owner.rpartition("-")[0] if component == keys.ROUTER else owner
