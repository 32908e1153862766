"""Tests that Events show what happened to pods: the newest Event counts, for a limited time."""

from datetime import UTC, datetime, timedelta
from typing import Any

from ome_operator.core.observed import kube_events
from ome_operator.core.reasons import ReasonedMessage
from tests.unit.core.observed.test_starts import NO_DIRECTORY

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def event(uid: str, reason: str = "FailedMount", message: str = NO_DIRECTORY, minutes: float = 1.0) -> dict[str, Any]:
    """Return an Event about an object, from this number of minutes ago."""
    at = (NOW - timedelta(minutes=minutes)).isoformat()
    return {"involvedObject": {"uid": uid}, "reason": reason, "message": message, "lastTimestamp": at}


def test_newest_event_of_each_pod_is_used_until_it_expires() -> None:
    pulls = [event("a", minutes=3), event("a", "Pulling", "pulling", minutes=2)]
    stays = [event("b", minutes=2), event("b", "Pulling", "pulling", minutes=3), event("b", "BackOff", "x", minutes=1)]
    found = kube_events.start_failures([*pulls, *stays, event("c", minutes=13)], NOW)
    assert found == {"b": ReasonedMessage("FailedMount", NO_DIRECTORY)}


def test_the_newest_message_about_each_object_counts_for_twenty_minutes() -> None:
    events = [event("a", message="new", minutes=3), event("a", message="old", minutes=9), event("b", minutes=21)]
    assert kube_events.newest_messages([*events, event("c", "FailedCreate", "")], NOW) == {"a": "new", "c": "FailedCreate"}


def test_the_last_report_of_an_autoscaler_counts() -> None:
    events = [event("a", "TriggeredScaleUp", minutes=9), event("a", "Nominated", minutes=3), event("b", "NotTriggerScaleUp")]
    assert kube_events.scale_ups([*events, {"reason": "Nominated"}]) == {"a": NOW - timedelta(minutes=3)}


def test_last_time_of_an_event_series_is_preferred_to_first_time() -> None:
    first, last = NOW - timedelta(minutes=5), NOW
    series = {"series": {"lastObservedTime": last.isoformat()}, "eventTime": first.isoformat()}
    assert kube_events.last_seen(series) == last
    assert kube_events.last_seen({"series": None, "eventTime": first.isoformat()}) == first
    assert kube_events.last_seen({}) is None
