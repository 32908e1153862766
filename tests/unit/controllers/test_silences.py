"""Tests of how the operator uses the reports of registries about leaders that do not answer any more."""

from datetime import timedelta
from typing import Any

from ome_operator.core.observed.silence import Silence
from ome_operator.names import public_digest, slice_mark
from tests.unit.controllers.test_telemetry import NOW, SELECTOR, SERVICE, Registry, pod, registry, summary

__all__ = ["registry"]

LEADER = pod(component="engine", name="e", uid="leader")


def silent(**more: Any) -> dict[str, Any]:
    """Return a router's summary about one leader that does not answer. `more` replaces fields of the report about its
    silence.
    """
    leader = {"id": public_digest("leader"), "role": "decode", "state": "silent", "listed": False}
    return summary(leaders=[{**leader, **(more or {"silence": {"age": 3, "seconds": 30}})}], upFor=600)


async def test_a_silent_leader_causes_a_reconciliation_and_is_held_after_the_start(registry: Registry) -> None:
    registry.answers(silent())
    await registry.walk()
    assert registry.news == [SERVICE]
    found = registry.telemetry.silences([*registry.pods, LEADER])
    assert found == {
        "leader": Silence(NOW - 30, hold="the operator has been requesting the routers' reports for less than 60 s")
    }
    registry.now += timedelta(seconds=60)
    await registry.walk()
    assert registry.news == [SERVICE], "only numbers have moved"
    assert registry.telemetry.silences([*registry.pods, LEADER]) == {"leader": Silence(NOW + 30)}
    registry.answers(summary(leaders=[]))
    await registry.walk()
    assert registry.news == [SERVICE, SERVICE] and registry.telemetry.silences([*registry.pods, LEADER]) == {}


async def test_paused_leader_is_recognized(registry: Registry) -> None:
    registry.answers(silent(paused=True))
    await registry.walk()
    assert registry.telemetry.silences([*registry.pods, LEADER]) == {"leader": Silence(None)}
    assert registry.telemetry.silences(registry.pods) == {}


async def test_leader_is_not_silent_while_a_router_does_not_report(registry: Registry) -> None:
    registry.answers(silent())
    await registry.walk()
    other = pod(uid="other", name="r2")
    assert registry.telemetry.silences([*registry.pods, other, LEADER]) == {}
    assert registry.telemetry.silences([*registry.pods, other._replace(revision="r2"), LEADER]), "of another slice"
    assert registry.telemetry.silences([*registry.pods, other._replace(deleting=True), LEADER]), "the silence ends"


async def test_recycling_is_held_if_leaders_of_many_services_are_silent(registry: Registry) -> None:
    routers = [pod(uid=f"u{number}")._replace(service=f"s{number}") for number in range(4)]
    for number, each in enumerate(routers):
        registry.pods = [each]
        registry.answers({**silent(), "slice": slice_mark("team", SELECTOR.replace("=svc,", f"=s{number},"))})
        await registry.telemetry._round(registry.through, [each])
    registry.telemetry._started -= 3600
    registry.telemetry._pods = routers
    own = [routers[0], LEADER]
    assert registry.telemetry.silences(own)["leader"].hold.startswith("leaders of 4 of 4 services stopped answering")
    registry.telemetry._pods = routers[:3]
    assert registry.telemetry.silences(own) == {"leader": Silence(NOW - 30)}


async def test_invalid_silence_makes_the_summary_unusable(registry: Registry) -> None:
    for wrong in (-1, "30", None, 1e300):
        registry.answers(silent(silence={"age": 3, "seconds": wrong}))
        await registry.walk()
        assert registry.telemetry.silences([*registry.pods, LEADER]) == {}
