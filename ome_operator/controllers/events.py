"""Kubernetes Events: ours about services, and others' about pods that could not be created."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from ome_operator import keys
from ome_operator.cache.resources import Resource
from ome_operator.core.observed.starts import failure
from ome_operator.core.reasons import Why
from ome_operator.core.reconcile.plan import Event
from ome_operator.kube.client import Client
from ome_operator.kube.errors import KubeError

logger = logging.getLogger(__name__)
T = TypeVar("T")

REPEAT = 600.0
"""The same event about the same service is told again after so many seconds at the earliest."""
OLDEST = timedelta(minutes=20)
"""Controllers repeat a failure at least every 17 minutes; an older event is about something that is over."""
FRESH = timedelta(minutes=12)
"""The same for kubelets: they try a mount every two minutes, and tell it at least every five after the first 25 times."""
BESIDE = ("Scheduled", "FailedScheduling", "Pulled", "Created", "Started", "Killing", "Unhealthy", "BackOff")
"""Reasons of the most frequent events about pods, which say nothing of a pod that has not started on its node."""
COMING = ("TriggeredScaleUp", "Nominated")
"""What autoscalers of nodes say about a pod for which they make a node: cluster-autoscaler, Karpenter."""
SHARED = 3.0
"""Events of a namespace are read once for all services that ask within so many seconds: the API server scans them all."""
_RARE = ",".join(["involvedObject.kind=Pod", *(f"reason!={reason}" for reason in BESIDE)])


async def tell(client: Client, resource: Resource, event: Event, now: datetime) -> None:
    """Post an Event about an object. Losing one is no reason to fail."""
    stamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
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
        logger.info("event %s about %s/%s is lost: %s", event.reason, resource.ref.namespace, resource.ref.name, error)


class EventReader(Generic[T]):
    """What the events of a namespace tell about objects, read at most every few seconds."""

    def __init__(
        self,
        client: Client,
        clock: Callable[[], float],
        wall: Callable[[], datetime],
        selector: str,
        tell: Callable[[list[dict[str, Any]], datetime], Mapping[str, T]],
    ) -> None:
        self._client, self._clock, self._wall, self._selector, self._tell = client, clock, wall, selector, tell
        self._read: dict[str, tuple[float, Mapping[str, T]]] = {}
        self._lock = asyncio.Lock()

    async def of(self, namespace: str) -> Mapping[str, T]:
        """UID -> what is told of the object, for a whole namespace."""
        async with self._lock:
            at, known = self._read.get(namespace, (float("-inf"), {}))
            if self._clock() - at < SHARED:
                return known
            found = await self._client.list_objects("Event", namespace, field_selector=self._selector)
            told = self._tell(found, self._wall())
            self._read = {place: read for place, read in self._read.items() if self._clock() - read[0] < SHARED}
            self._read[namespace] = (self._clock(), told)
            return told


def create_failures(client: Client, clock: Callable[[], float], wall: Callable[[], datetime]) -> EventReader[str]:
    """Why controllers could not create pods, by the UID of the workload (decisions 15)."""
    return EventReader(client, clock, wall, "reason=FailedCreate", newest)


def start_failures(client: Client, clock: Callable[[], float], wall: Callable[[], datetime]) -> EventReader[Why]:
    """What keeps nodes from starting the containers of a pod, by the UID of the pod."""
    return EventReader(client, clock, wall, _RARE, unstarted)


def scale_ups(client: Client, clock: Callable[[], float], wall: Callable[[], datetime]) -> EventReader[datetime]:
    """When an autoscaler said last that it makes a node for a pod, by the UID of the pod."""
    return EventReader(client, clock, wall, _RARE, coming)


def coming(events: Iterable[Mapping[str, Any]], _: datetime) -> dict[str, datetime]:
    """UID of a pod -> when an autoscaler spoke of it last."""
    found: dict[str, datetime] = {}
    for event in events:
        uid, at = (event.get("involvedObject") or {}).get("uid") or "", when(event)
        if at is not None and event.get("reason") in COMING:
            found[uid] = max(at, found.get(uid, at))
    return found


def unstarted(events: Iterable[Mapping[str, Any]], now: datetime) -> dict[str, Why]:
    """UID of a pod -> what keeps it from starting, where the last thing that was told about the pod says so."""
    about: dict[str, list[tuple[datetime, str, str]]] = {}
    for event in events:
        uid, at = (event.get("involvedObject") or {}).get("uid") or "", when(event)
        if at is not None and now - at <= FRESH and event.get("reason") not in BESIDE:
            about.setdefault(uid, []).append((at, event.get("reason") or "", event.get("message") or ""))
    found = {uid: failure(said[1:] for said in sorted(told, reverse=True)) for uid, told in about.items()}
    return {uid: why for uid, why in found.items() if why is not None}


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
