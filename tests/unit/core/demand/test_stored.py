"""The state in the status of a service."""

import json
from typing import Any

import pytest

from ome_operator.core.demand.decide import decide
from ome_operator.core.demand.facts import ScalingState
from ome_operator.core.demand.stored import from_status, to_status
from tests.unit.core.demand.loads import NOW, TARGETS, fleet, samples, state


def test_a_state_survives_the_status() -> None:
    _, after = decide(samples(20.0), fleet(), TARGETS, state(), NOW)
    stored = json.loads(json.dumps(to_status(after)))
    again = from_status(stored)
    assert (again.wanted, again.changed, again.changes, again.last) == (after.wanted, NOW, (NOW,), after.last)
    assert again.learned.work == after.learned.work and again.learned.starts == after.learned.starts
    assert to_status(again) == stored


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"learned": 3, "wanted": {"prefill": -1}, "changes": ["yesterday"], "decisions": [{"time": "x"}, 7], "changedAt": 4},
        {"learned": {"prefill": {"fixedMilliseconds": 0, "tokenMicroseconds": 0}, "decode": ["x"], "startSeconds": [True]}},
    ],
)
def test_what_cannot_be_read_counts_as_missing(stored: dict[str, Any]) -> None:
    assert from_status(stored) == ScalingState()
