"""Tests of the state that is stored in the status of a service."""

import json
from typing import Any

import pytest

from ome_operator.api.scaling_status import ScalingSummary
from ome_operator.core.demand.decide import decide_size
from ome_operator.core.demand.facts import GROUPS, PREFILL, Configuration, LearnedProperties, ScalingState
from ome_operator.core.demand.learn import observe_point
from ome_operator.core.demand.stored import from_status, to_status
from tests.unit.core.demand.loads import KNOWN, NOW, TARGETS, fleet, samples, state


def test_scaling_state_survives_status_round_trip() -> None:
    _, after = decide_size(samples(20.0), fleet(), TARGETS, state(), NOW)
    stored = json.loads(json.dumps(to_status(after)))
    again = from_status(stored)
    assert (again.wanted, again.changed, again.changes, again.last) == (after.wanted, NOW, (NOW,), after.last)
    assert again.learned.work == after.learned.work and again.learned.starts == after.learned.starts
    assert to_status(again) == stored


def test_measured_configurations_survive_status_round_trip() -> None:
    here, there = Configuration("1a2b3c4d", "8x NVIDIA-H200"), Configuration("5e6f7a8b")
    before = state(
        learned=KNOWN._replace(configurations=(here, here)),
        former=LearnedProperties(shown=(1000.0, 0.25), curve=KNOWN.curve, configurations=(there, Configuration())),
    )
    stored = json.loads(json.dumps(to_status(before)))
    assert stored["learned"]["configurations"] == dict.fromkeys(GROUPS, "1a2b3c4d 8x NVIDIA-H200")
    assert stored["former"]["configurations"] == {PREFILL: "5e6f7a8b"}
    again = from_status(stored)
    assert (again.learned, again.former) == (before.learned, before.former)
    assert ScalingSummary.model_validate(stored).dump() == stored, "the schema of the status contains all of the state"


def test_the_stored_state_of_any_load_is_small() -> None:
    learned = KNOWN._replace(shown=(1000.0, 0.25), request=(1000.0, 100.0), starts=(100.0,) * 5)
    for number in range(2000):
        learned = learned._replace(curve=observe_point(learned.curve, 1.01**number, 0.01 + number))
    named = learned._replace(configurations=(Configuration("1a2b3c4d", "8x NVIDIA-H200"),) * 2)
    assert len(json.dumps(to_status(state(learned=named, former=named)))) < 10_000


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"learned": 3, "wanted": {"prefill": -1}, "changes": ["yesterday"], "decisions": [{"time": "x"}, 7], "changedAt": 4},
        {"learned": {"configurations": {"prefill": 7, "decode": ["x"]}}, "former": "x"},
        {"learned": {"configurations": "x"}, "former": {"prefill": 3, "decode": "y", "configurations": {"prefill": None}}},
        {"learned": {"prefill": {"fixedMilliseconds": 0, "tokenMicroseconds": 0}, "decode": ["x"], "startSeconds": [True]}},
    ],
)
def test_unreadable_stored_state_counts_as_missing(stored: dict[str, Any]) -> None:
    assert from_status(stored) == ScalingState()
