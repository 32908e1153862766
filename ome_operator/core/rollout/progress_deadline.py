"""Limit the time that a new revision may take until its next pod becomes ready, and decide what happens after that time
(decisions 12).

The status stores a clock: the largest number of ready pods so far, and the time when this number was reached. The clock
therefore survives restarts of the operator. The clock starts when the revision has engines, and restarts with every further
ready pod, so that a revision that grows step by step has the full time for each step. The clock is removed when the revision
is complete, and while the service is paused.
"""

from collections import Counter
from typing import Any, NamedTuple

from ome_operator import keys, quantity
from ome_operator.api import InferenceService
from ome_operator.core.observed.slices import Slice
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.resolve import durations
from ome_operator.core.rollout.target import TargetRevision
from ome_operator.core.waves.shared_edits import whole_before

DEFAULT = "1h"
"""The default time limit. It is as long as the start-up probes of the shipped runtimes allow (360 times 10 s), because
loading a terabyte takes that long."""
ROLLBACK = "Rollback"


class Clock(NamedTuple):
    """The time for which a revision has made no progress."""

    status_fields: dict[str, Any]
    """The fields `revision`, `readyPods` and `since`, as in the status; empty while the clock does not run."""
    left: float | None = None
    """Seconds until the deadline. The value is 0 if the deadline has passed, so that the revision has failed, and None
    while the clock does not run."""
    back: bool = False
    """Whether the last complete revision is restored when the revision fails. This requires that the user asks for it,
    and that such a revision exists."""

    @property
    def seconds_until_pass(self) -> float | None:
        """Seconds until the next pass is needed: the time until the deadline, or 0 if a stored rejection must take effect.
        None if no pass is needed.
        """
        return self.left if self.left or self.back else None


STOPPED = Clock({})


def clock(snapshot: Snapshot, aim: TargetRevision) -> Clock:
    """Return the clock of the target revision. A revision that was complete before is not new, so its clock does not
    run.
    """
    service, now = snapshot.service, snapshot.now
    rollout = service.spec.rollout
    paused = rollout is not None and bool(rollout.paused)
    if paused or not snapshot.has_engines(aim.revision) or aim.revision in whole_before(service.status):
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
    return Clock(stored, max(0.0, quantity.seconds(time_limit(service)) - passed), back)


def time_limit(service: InferenceService) -> str:
    """Return the time limit for the progress of a revision, as the user wrote it, or the default."""
    written = service.spec.rollout.ready_timeout if service.spec.rollout else None
    return written if written and durations.usable_seconds(written, durations.READY_TIMEOUT) is not None else DEFAULT


def count(one: Slice) -> tuple[int, int]:
    """Return (number of ready pods, number of desired pods) of a revision, including the pods of its router."""
    ready = Counter(_workload(pod.component, pod.workload) for pod in one.pods if pod.ready and not pod.deleting)
    sets = [child for child in one.workloads if child.kind in ("StatefulSet", "Deployment") and not child.deleting]
    return sum(min(child.replicas, ready[child.name]) for child in sets), sum(child.replicas for child in sets)


def _workload(component: str, owner: str) -> str:
    """Return the name of the workload of a pod. The pod of a router belongs to a ReplicaSet, whose name begins with the
    name of the Deployment.
    """
    return owner.rpartition("-")[0] if component == keys.ROUTER else owner
