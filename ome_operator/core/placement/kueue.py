"""Decide when a gang in a queue of Kueue is created again.

A service in a queue of Kueue takes no part in the admission of gangs to nodes, because the quota of the queue decides, not
the capacity of nodes. Pods that have no node take no node from other services. The pods are therefore created at once and
are not removed, so that they keep their place in the queue. If only a part of its gang was admitted in time, the nodes are
released, and the gang is created again after a pause.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from hashlib import sha256

from ome_operator import quantity
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.placement import timing
from ome_operator.core.placement.attempts import Record
from ome_operator.core.placement.demand import placed_by_other, scheduled_elsewhere
from ome_operator.core.render.statefulsets import StoredRole

WAITS = (
    "its queue: Kueue admitted only some of the pods that have to run together, so the operator released their nodes; it "
    "creates all pods again within minutes"
)
"""What a gang in a queue of Kueue waits for between two placement attempts, worded so that it can follow "waits for"."""


def placed_elsewhere(roles: Mapping[str, StoredRole]) -> bool:
    """Return whether any role has pods that a scheduler other than the scheduler of Kubernetes binds to nodes."""
    return any(map(scheduled_elsewhere, _templates(roles)))


def is_queued(roles: Mapping[str, StoredRole]) -> bool:
    """Return whether any role has pods that wait in a queue of Kueue, or that a scheduler other than the scheduler of
    Kubernetes binds to nodes.
    """
    return any(map(placed_by_other, _templates(roles)))


def timeout(roles: Mapping[str, StoredRole], usual: float) -> float:
    """Return the time limit of a placement attempt in seconds. `usual` is the time limit outside of queues."""
    return usual * timing.IN_QUEUE if is_queued(roles) else usual


def may_create_again(record: Record | None, key: str, now: datetime) -> bool | None:
    """Return True if the gang may be created again; None while its pause lasts, or if no state is stored (`record` is None).
    `key` identifies the service.
    """
    return None if record is None or seconds_until_creation(record, key, now) else True


def seconds_until_creation(record: Record, key: str, now: datetime) -> float:
    """Return the seconds until a gang that released its nodes is created again. The pause is at least a minute, and
    differs between services by up to a minute. `key` identifies the service.
    """
    since = quantity.moment(record.since, now) or now
    jitter = int(sha256(key.encode()).hexdigest()[:4], 16) / 0xFFFF * timing.QUEUE_JITTER
    least = timing.PAUSES[min(max(1, record.tries), len(timing.PAUSES) - 1)].total_seconds()
    return max(0.0, least + jitter - (now - since).total_seconds())


def _templates(roles: Mapping[str, StoredRole]) -> Iterable[Manifest]:
    return [work["spec"]["template"] for role in roles.values() for work in (role.leader, role.worker) if work]
