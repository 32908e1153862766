"""Tests of passes over a service whose durations are too short or too long: each pass succeeds, and the engines run."""

from typing import Any

import pytest

from ome_operator.core.resolve import durations
from tests.support.demanded import Demanded, spec

LONG = "9" * 63 + "h"
VALUES = ["0s", "1ns", "5s", "99999999999h", LONG]


@pytest.mark.parametrize("text", VALUES)
def test_reconciliation_succeeds_with_any_duration(text: str) -> None:
    found: dict[str, Any] = spec("Apply", coolDown=text, timeToFirstToken=text, timeBetweenTokens=text)
    lifecycle = dict.fromkeys(durations.LIFECYCLE, text)
    for component in ("engine", "decoder"):
        found[component] = {**found[component], "lifecycle": lifecycle}
    found["rollout"] = {"readyTimeout": text, "onFailure": "Rollback"}
    found["moves"] = {"timeout": text}
    world = Demanded(**found)
    world.decide()
    world.settle()
    assert world.living_pods("engine") and world.living_pods("decoder")
    said = world.condition("Advice").get("message", "") if world.condition("Advice") else ""
    assert ("hangTimeout" in said) == (text != "5s"), said
    assert (f"spec.scalingPolicy.demand.coolDown is {text}" in said) == (text in ("99999999999h", LONG)), said
