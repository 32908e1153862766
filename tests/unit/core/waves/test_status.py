"""Tests of the status of a shared object about the waves of its edit."""

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.core.catalog.status import accelerator_status, model_status, runtime_status
from ome_operator.core.observed.objects import Ref
from ome_operator.core.waves.status import LISTED, StateCounts, events, status, steps
from ome_operator.core.waves.terms import CurrentWave
from tests.support import parts

UNTIL = datetime(2026, 1, 1, 12, 5, tzinfo=UTC)


def service(number: int) -> Ref:
    return Ref("InferenceService", "team", f"s{number:02}")


def told(wave: int = 1, done: int = 0, rolling: int = 1, waiting: int = 9, failed: int = 0, **more: Any) -> dict[str, Any]:
    turn = CurrentWave(wave, 4, (1, 2, 5, 10)[wave - 1], 0, more.get("until"))
    return status(
        more.get("generation", 3), turn, StateCounts(done, rolling, waiting, tuple(service(n) for n in range(failed)))
    )


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (told(), "Rolling"),
        (told(done=1, rolling=0, until=UNTIL), "Baking"),
        (told(failed=1), "Stopped"),
        (told(4, done=10, rolling=0, waiting=0), "Complete"),
    ],
)
def test_wave_state_is_consistent_with_its_counts(found: dict[str, Any], state: str) -> None:
    assert found["state"] == state
    assert found["services"] == found["done"] + found["rolling"] + found["waiting"] + found["failed"]
    assert ("bakesUntil" in found) == (state == "Baking") and ("failedServices" in found) == (state == "Stopped")


def test_number_of_listed_failed_services_is_limited() -> None:
    found = told(failed=500)
    assert (found["failed"], len(found["failedServices"]), found["services"]) == (500, LISTED, 510)


def test_wave_changes_become_events() -> None:
    baking = told(done=1, rolling=0, until=UNTIL)
    story = [None, told(), baking, told(2, 1), told(2, 1, failed=1), told(2, 2, 0, until=UNTIL), told(3, 2, 3)]
    story += [told(4, 5, 5, 0), told(4, 10, 0, 0), told(4, 10, 0, 0), told(1, 0, generation=4)]
    said = [[(each.type, each.reason) for each in events(*pair)] for pair in pairwise(story)]
    begins, whole = ("Normal", "WaveBegins"), ("Normal", "WaveWhole")
    assert said == [
        [begins], [whole], [begins], [("Warning", "WaveStopped")], [whole], [begins], [begins], [whole], [], [begins],
    ]  # fmt: skip
    (first,), (stopped,) = events(None, told()), events(told(2, 1), told(2, 1, failed=1))
    assert first.message == "wave 1 of 4 of generation 3 begins: it covers the services up to number 1 of 10"
    assert "team/s00 did not complete the rollout of this edit, so no other service starts it" in stopped.message


def test_changed_counts_alone_cause_no_event() -> None:
    assert events(told(3, 2, 3), told(3, 4, 1)) == () and steps(told(3, 2, 3)) == steps(told(3, 4, 1))
    assert events(told(), None) == () and steps(None) != steps(told())


def test_paused_services_give_no_wave_event() -> None:
    """While all services of an object are paused, no Event reports that a wave begins."""
    assert events(None, told(rolling=0)) == ()


@pytest.mark.parametrize(
    "found",
    [
        lambda notes: runtime_status(replace(parts.runtime(), annotations=notes), (), UNTIL),
        lambda notes: model_status(replace(parts.model(), annotations=notes), (), frozenset(), UNTIL),
        lambda notes: accelerator_status(replace(parts.accelerator("a"), annotations=notes), (), UNTIL),
    ],
)
def test_invalid_wave_annotation_gives_advice_on_the_object(found: Any) -> None:
    def advice(**notes: str) -> str:
        return "".join(each["message"] for each in found(notes)["conditions"] if each["type"] == "Advice")

    assert advice(**{keys.WAVES: "1, 50%", keys.BAKE: "1h"}) == ""
    assert "0 is not a wave: write a number of services of at least 1" in advice(**{keys.WAVES: "0, 5%"})
    assert "300% is not a wave" in advice(**{keys.WAVES: "300%"})
    assert "soon is not a duration" in advice(**{keys.BAKE: "soon"})
