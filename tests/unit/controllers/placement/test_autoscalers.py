"""Tests that a gang has more time to be placed while an autoscaler creates nodes for its pods."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ome_operator.controllers import events
from ome_operator.controllers.inferenceservice.memory import ServiceMemory
from ome_operator.controllers.placement import autoscalers
from ome_operator.core.observed.objects import Pod, Ref
from tests.support.fake_api import FakeApi
from tests.unit.core.rollout.makers import pod

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
LASTS = 60.0


class Known:
    """A service whose gang is being placed."""

    ref = Ref("InferenceService", "team", "svc")

    def __init__(self, *, trying: bool = True, node: str = "") -> None:
        self.status = {"placement": {"trying": trying, "since": BEGAN.isoformat(timespec="seconds")}}
        self._pod = pod("p", node=node)

    def lost(self) -> "Known":
        """Return the state of a service that was ready and has had an unscheduled rank since then."""
        told = {"name": "g", "component": "engine", "revision": "r", "index": 0, "phase": "Pending", "incarnation": 1}
        self.status = {"groups": [{**told, "since": BEGAN.isoformat()}]}
        return self

    def pods_of(self, *_: str) -> tuple[Pod, ...]:
        return (self._pod,)


def event(reason: str, after: float, uid: str = "uid-p") -> dict[str, Any]:
    at = (BEGAN + timedelta(seconds=after)).isoformat()
    return {"reason": reason, "involvedObject": {"uid": uid}, "lastTimestamp": at}


def looked(known: Any, seconds: float, *told: dict[str, Any]) -> tuple[bool, int]:
    """Read the Events `told` about the pods of a service twice, `seconds` after the attempt began. Return whether an
    autoscaler is known to create nodes, and how many requests for Events were sent.
    """
    memory, now = ServiceMemory(), BEGAN + timedelta(seconds=seconds)
    api = FakeApi({"list_objects Event": list(told)})
    reader = events.scale_ups(api, lambda: 0.0, lambda: now)
    asyncio.run(autoscalers.read_scale_ups(reader, known, known, memory, now=now, lasts=LASTS))
    asyncio.run(autoscalers.read_scale_ups(reader, known, known, memory, now=now, lasts=LASTS))
    return autoscalers.autoscaler_adds_nodes(known, memory, now), len(api.calls)


@pytest.mark.parametrize("reason", ["TriggeredScaleUp", "Nominated"])
@pytest.mark.parametrize("after", [20, -400])
def test_earlier_autoscaler_message_about_a_pod_counts(reason: str, after: float) -> None:
    """A message of an autoscaler about a pod also counts if it is older than the attempt to place the gang. The time of an
    attempt starts only when the first of its nodes exists.
    """
    assert looked(Known(), 58, event(reason, after)) == (True, 1)


@pytest.mark.parametrize(
    "told",
    [
        event("NotTriggerScaleUp", 20),
        event("TriggeredScaleUp", 20, "uid-of-another"),
        {"reason": "TriggeredScaleUp"},
    ],
)
def test_autoscaler_message_about_other_pods_does_not_count(told: dict[str, Any]) -> None:
    assert looked(Known(), 58, told) == (False, 1)


def test_events_are_read_only_near_the_timeout_of_an_attempt() -> None:
    assert looked(Known(), 30, event("TriggeredScaleUp", 20)) == (False, 0)
    assert looked(Known(trying=False), 58, event("TriggeredScaleUp", 20)) == (False, 0)


def test_placed_pods_get_no_extended_timeout() -> None:
    assert looked(Known(node="n1"), 58, event("TriggeredScaleUp", 20)) == (False, 1)


def test_new_process_reads_events_of_an_extended_attempt() -> None:
    assert looked(Known(), 300, event("TriggeredScaleUp", 20)) == (True, 1)
    assert looked(Known().lost(), 300, event("TriggeredScaleUp", 20)) == (True, 1)


def test_lost_rank_also_gets_more_time_for_the_autoscaler() -> None:
    assert looked(Known().lost(), 58, event("TriggeredScaleUp", 20)) == (True, 1)
    assert looked(Known().lost(), 30, event("TriggeredScaleUp", 20)) == (False, 0)
    assert looked(Known().lost(), 1300, event("TriggeredScaleUp", 20)) == (False, 0), "not read after 20 minutes"
