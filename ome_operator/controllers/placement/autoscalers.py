"""Check whether an autoscaler is adding nodes for a gang, or for a lost rank, shortly before the timeout of its
placement.
"""

import logging
from datetime import datetime, timedelta

from ome_operator import quantity
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.resources import Resource
from ome_operator.controllers.events import EventReader
from ome_operator.controllers.inferenceservice.memory import ServiceMemory
from ome_operator.core.placement import timing
from ome_operator.core.placement.partial_gangs import lost_since
from ome_operator.kube.errors import KubeError

logger = logging.getLogger(__name__)

BEFORE = 5.0
"""Number of seconds before the end of a placement attempt from which the Events of the service's namespace are read."""


async def read_scale_ups(
    told: EventReader[datetime],
    cluster: ClusterCache,
    resource: Resource,
    memory: ServiceMemory,
    *,
    now: datetime,
    lasts: float,
) -> None:
    """Read the Events of the namespace shortly before a placement attempt of `lasts` seconds ends, until an autoscaler has
    reported that it adds a node. The result is stored in `memory`, and is valid until the next attempt.

    An Event about a pod is used as long as the pod exists, because an autoscaler reports only once, and nodes arrive minutes
    later. For a lost rank, the Events are read until the time that an autoscaler is given to add a node has passed.
    """
    since = _since(resource, now)
    began = quantity.moment(since, now) if since and lasts else None
    if began is None or autoscaler_adds_nodes(resource, memory, now) or now - began < timedelta(seconds=lasts - BEFORE):
        return
    if not _tries(resource) and now - began > timedelta(seconds=timing.TRY_ON_DEMAND):
        return
    ref = resource.ref
    try:
        found = await told.values_by_uid(ref.namespace)
    except KubeError as error:
        logger.info("cannot read events in %s: %s", ref.namespace, error)
        return
    pods = cluster.pods_of(ref.namespace, ref.name)
    if any(not pod.node and pod.uid in found for pod in pods):
        memory.coming = since


def autoscaler_adds_nodes(resource: Resource, memory: ServiceMemory, now: datetime) -> bool:
    """Return whether an autoscaler is adding nodes for the service's present placement attempt, or for its lost rank."""
    return bool(memory.coming) and memory.coming == _since(resource, now)


def _since(resource: Resource, now: datetime) -> str:
    """Return the time at which the present placement attempt began. Outside of an attempt, return the earliest time at which
    a group that had served lost a rank; "" if no such group has lost a rank. Times have the format RFC 3339.
    """
    if _tries(resource):
        return str(resource.status["placement"]["since"])
    lost = lost_since(resource.status, now)
    return lost.isoformat() if lost else ""


def _tries(resource: Resource) -> bool:
    stored = resource.status.get("placement") or {}
    return bool(stored.get("trying") and stored.get("since"))
