"""Kubernetes Events: post Events about services, and read Events about pods that could not be created or started."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from ome_operator import keys, quantity
from ome_operator.cache.resources import Resource
from ome_operator.core.observed import kube_events
from ome_operator.core.reasons import ReasonedMessage
from ome_operator.core.reconcile.plan import Event
from ome_operator.kube.client import Client
from ome_operator.kube.errors import KubeError

logger = logging.getLogger(__name__)
T = TypeVar("T")

REPEAT = 600.0
"""Seconds after which the same Event about the same service may be posted again."""
MOST = 25
"""Maximum number of Events that are posted about a service within `REPEAT`. Further Events are only logged, so that
nobody can fill the API server with Events by repeated edits of a service."""
SHARED = 3.0
"""Seconds for which the result of one read of a namespace's Events is used for all its services. The API server scans all
Events for each read."""
_RARE = ",".join(["involvedObject.kind=Pod", *(f"reason!={reason}" for reason in kube_events.FREQUENT)])


async def post_event(client: Client, resource: Resource, event: Event, now: datetime) -> None:
    """Post an Event about an object. A failure is only logged."""
    stamp = quantity.rfc3339(now.astimezone(UTC))
    manifest = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{resource.ref.name}.", "namespace": resource.ref.namespace or "default"},
        "involvedObject": {
            "apiVersion": keys.API_VERSION,
            "kind": resource.ref.kind,
            **({"namespace": resource.ref.namespace} if resource.ref.namespace else {}),
            "name": resource.ref.name,
            "uid": resource.uid,
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:1024],
        "source": {"component": keys.MANAGER},
        "reportingComponent": keys.MANAGER,
        "reportingInstance": keys.MANAGER,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
    try:
        await client.create(manifest)
    except KubeError as error:
        logger.info("cannot post Event %s about %s/%s: %s", event.reason, resource.ref.namespace, resource.ref.name, error)


class EventReader(Generic[T]):
    """Reads Events of a namespace, at most once in `SHARED` seconds, and extracts a value for each object. Only a limited
    number of Events is read, because a tenant can create any number of them. Namespaces are read one after another.
    """

    def __init__(
        self,
        client: Client,
        clock: Callable[[], float],
        wall: Callable[[], datetime],
        selector: str,
        extract: Callable[[list[dict[str, Any]], datetime], Mapping[str, T]],
    ) -> None:
        self._client, self._clock, self._wall, self._selector, self._extract = client, clock, wall, selector, extract
        self._read: dict[str, tuple[float, Mapping[str, T]]] = {}
        self._lock = asyncio.Lock()

    async def values_by_uid(self, namespace: str) -> Mapping[str, T]:
        """Return the extracted value of each object in a namespace, by UID."""
        async with self._lock:
            at, known = self._read.get(namespace, (float("-inf"), {}))
            if self._clock() - at < SHARED:
                return known
            found = await self._client.list_some("Event", namespace, field_selector=self._selector)
            values = self._extract(found, self._wall())
            self._read = {place: read for place, read in self._read.items() if self._clock() - read[0] < SHARED}
            self._read[namespace] = (self._clock(), values)
            return values


def create_failures(client: Client, clock: Callable[[], float], wall: Callable[[], datetime]) -> EventReader[str]:
    """Return a reader of the reasons why controllers could not create pods, by the UID of the workload (decisions 15)."""
    return EventReader(client, clock, wall, "reason=FailedCreate", kube_events.newest_messages)


def start_failures(client: Client, clock: Callable[[], float], wall: Callable[[], datetime]) -> EventReader[ReasonedMessage]:
    """Return a reader of the reasons why nodes cannot start the containers of a pod, by the UID of the pod."""
    return EventReader(client, clock, wall, _RARE, kube_events.start_failures)


def scale_ups(client: Client, clock: Callable[[], float], wall: Callable[[], datetime]) -> EventReader[datetime]:
    """Return a reader of the time when an autoscaler last reported that it creates a node for a pod, by the UID of the
    pod.
    """
    return EventReader(client, clock, wall, _RARE, lambda events, _: kube_events.scale_ups(events))
