"""What Kubernetes Events state about pods and workloads: pure functions over the bodies of a list of Events.

Both the operator and the commands read Events live; neither watches them.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from ome_operator.core.observed.starts import start_failure
from ome_operator.core.reasons import Why

OLDEST = timedelta(minutes=20)
"""Age after which an Event is about something that is over: controllers repeat a failure at least every 17 minutes."""
FRESH = timedelta(minutes=12)
"""The same age for kubelets, which try a mount every two minutes, and report it at least every five after 25 reports."""
FREQUENT = ("Scheduled", "FailedScheduling", "Pulled", "Created", "Started", "Killing", "Unhealthy", "BackOff")
"""Reasons of the most frequent Events about pods, which state nothing about a pod that has not started on its node."""
SCALE_UP = ("TriggeredScaleUp", "Nominated")
"""Reasons with which cluster-autoscaler and Karpenter report that they make a node for a pod."""


def last_seen(event: Mapping[str, Any]) -> datetime | None:
    """Return the last time that an Event was seen, None if it has no time."""
    series = event.get("series") or {}
    for text in (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime")):
        if text:
            return datetime.fromisoformat(text)
    return None


def newest_messages(events: Iterable[Mapping[str, Any]], now: datetime) -> dict[str, str]:
    """Return the message of the newest Event about each object, by the object's UID, without Events older than OLDEST."""
    newest: dict[str, tuple[datetime, str]] = {}
    for event in events:
        uid, at = _about(event), last_seen(event)
        if at is not None and now - at <= OLDEST and (uid not in newest or newest[uid][0] < at):
            newest[uid] = at, event.get("message") or event.get("reason") or ""
    return {uid: message for uid, (_, message) in newest.items()}


def start_failures(events: Iterable[Mapping[str, Any]], now: datetime) -> dict[str, Why]:
    """Return what keeps pods from starting on their nodes, by UID, for pods whose newest Event states a failure."""
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
    """Return when an autoscaler reported last that it makes a node for a pod, by the pod's UID."""
    reported: dict[str, datetime] = {}
    for event in events:
        uid, at = _about(event), last_seen(event)
        if at is not None and event.get("reason") in SCALE_UP:
            reported[uid] = max(at, reported.get(uid, at))
    return reported


def _about(event: Mapping[str, Any]) -> str:
    """Return the UID of the object that an Event is about."""
    return (event.get("involvedObject") or {}).get("uid") or ""
