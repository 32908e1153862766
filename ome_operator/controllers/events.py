"""Kubernetes Events: ours about services, and others' about pods that could not be created."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ome_operator import keys
from ome_operator.cache.resources import Resource
from ome_operator.core.plan import Event
from ome_operator.kube.client import Client
from ome_operator.kube.errors import KubeError

logger = logging.getLogger(__name__)

REPEAT = 600.0
"""The same event about the same service is told again after so many seconds at the earliest."""
OLDEST = timedelta(minutes=20)
"""Controllers repeat a failure at least every 17 minutes; an older event is about something that is over."""
SHARED = 3.0
"""Events of a namespace are read once for all services that ask within so many seconds: the API server scans them all."""


async def tell(client: Client, resource: Resource, event: Event, now: datetime) -> None:
    """Post an Event about a service. Losing one is no reason to fail."""
    stamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    manifest = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{resource.ref.name}.", "namespace": resource.ref.namespace},
        "involvedObject": {
            "apiVersion": keys.API_VERSION,
            "kind": resource.ref.kind,
            "namespace": resource.ref.namespace,
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
        logger.info("event %s about %s/%s is lost: %s", event.reason, resource.ref.namespace, resource.ref.name, error)


class CreateFailures:
    """Why controllers could not create pods, by the UID of the workload (decisions 15)."""

    def __init__(self, client: Client, clock: Callable[[], float], wall: Callable[[], datetime]) -> None:
        self._client, self._clock, self._wall = client, clock, wall
        self._read: dict[str, tuple[float, dict[str, str]]] = {}
        self._lock = asyncio.Lock()

    async def of(self, namespace: str) -> Mapping[str, str]:
        """UID -> newest message, for a whole namespace."""
        async with self._lock:
            at, known = self._read.get(namespace, (float("-inf"), {}))
            if self._clock() - at < SHARED:
                return known
            found = await self._client.list_objects("Event", namespace, field_selector="reason=FailedCreate")
            messages = newest(found, self._wall())
            self._read = {place: read for place, read in self._read.items() if self._clock() - read[0] < SHARED}
            self._read[namespace] = (self._clock(), messages)
            return messages


def newest(events: list[dict[str, Any]], now: datetime) -> dict[str, str]:
    """UID of the involved object -> message of its newest event that is not too old."""
    found: dict[str, tuple[datetime, str]] = {}
    for event in events:
        uid, at = (event.get("involvedObject") or {}).get("uid") or "", when(event)
        if at is not None and now - at <= OLDEST and (uid not in found or found[uid][0] < at):
            found[uid] = at, event.get("message") or event.get("reason") or ""
    return {uid: message for uid, (_, message) in found.items()}


def when(event: Mapping[str, Any]) -> datetime | None:
    """The last time that an event was seen."""
    series = event.get("series") or {}
    for text in (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime")):
        if text:
            return datetime.fromisoformat(text)
    return None
