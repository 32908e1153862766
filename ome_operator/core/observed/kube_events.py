"""Evaluate Kubernetes Events about pods and workloads, which are passed as JSON. All functions are pure.

Both the operator and the commands read Events from the API server when they need them; neither watches Events.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from ome_operator import quantity
from ome_operator.core.observed.starts import start_failure
from ome_operator.core.reasons import ReasonedMessage

OLDEST = timedelta(minutes=20)
"""Age after which an Event is ignored because its cause is over. Controllers repeat the Event of a persistent failure at
least every 17 minutes."""
FRESH = timedelta(minutes=12)
"""Age after which an Event of a kubelet is ignored. A kubelet tries a mount every two minutes. After 25 reports, it still
reports the failure at least every five minutes."""
FREQUENT = ("Scheduled", "FailedScheduling", "Pulled", "Created", "Started", "Killing", "Unhealthy", "BackOff")
"""Reasons of the most frequent Events about pods. They do not state why a pod has not started on its node."""
SCALE_UP = ("TriggeredScaleUp", "Nominated")
"""Reasons with which cluster-autoscaler and Karpenter report that they create a node for a pod."""


def last_seen(event: Mapping[str, Any]) -> datetime | None:
    """Return the time when an Event was seen last; None if the Event contains no time."""
    series = event.get("series") or {}
    for text in (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime")):
        if (when := quantity.parse_instant(text)) is not None:
            return when
    return None


def newest_messages(events: Iterable[Mapping[str, Any]], now: datetime) -> dict[str, str]:
    """Return the message of the newest Event about each object, by the object's UID. Events older than OLDEST are left
    out.
    """
    newest: dict[str, tuple[datetime, str]] = {}
    for event in events:
        uid, at = _about(event), last_seen(event)
        if at is not None and now - at <= OLDEST and (uid not in newest or newest[uid][0] < at):
            newest[uid] = at, event.get("message") or event.get("reason") or ""
    return {uid: message for uid, (_, message) in newest.items()}


def start_failures(events: Iterable[Mapping[str, Any]], now: datetime) -> dict[str, ReasonedMessage]:
    """Return the reasons why pods cannot start on their nodes, by the UID of the pod. Only pods whose newest Event reports a
    failure are included.
    """
    by_pod: dict[str, list[tuple[datetime, str, str]]] = {}
    for event in events:
        uid, at = _about(event), last_seen(event)
        if at is not None and now - at <= FRESH and event.get("reason") not in FREQUENT:
            by_pod.setdefault(uid, []).append((at, event.get("reason") or "", event.get("message") or ""))
    failures = {
        uid: start_failure(report[1:] for report in sorted(reports, reverse=True)) for uid, reports in by_pod.items()
    }
    return {uid: why for uid, why in failures.items() if why is not None}


def scale_ups(events: Iterable[Mapping[str, Any]]) -> dict[str, datetime]:
    """Return the times when an autoscaler last reported that it creates a node for a pod, by the UID of the pod."""
    reported: dict[str, datetime] = {}
    for event in events:
        uid, at = _about(event), last_seen(event)
        if at is not None and event.get("reason") in SCALE_UP:
            reported[uid] = max(at, reported.get(uid, at))
    return reported


def _about(event: Mapping[str, Any]) -> str:
    """Return the UID of the object that an Event is about; "" if the Event contains no UID."""
    return (event.get("involvedObject") or {}).get("uid") or ""
