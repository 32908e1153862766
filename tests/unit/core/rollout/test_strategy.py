"""Tests that a service's rollout strategy follows from its spec."""

from typing import Any

import pytest

from ome_operator.core.rollout.planner import Bounds
from ome_operator.core.rollout.strategy import BLUE_GREEN, RECREATE, ROLLING, Strategy, strategy
from tests.support import parts

WANTED = {"engine": 2, "decoder": 4}


def asked(rollout: dict[str, Any] | None = None, **engine: Any) -> Strategy:
    """Return the strategy of a service with these fields of `rollout` and of its engine."""
    more = {"rollout": rollout} if rollout else {}
    return strategy(parts.service(engine=engine, decoder={}, router={}, **more), parts.simple(decoder=True))


EVERY = ["engine", "decoder", "router"]
CASES: dict[str, tuple[Strategy, tuple[str, int | str, int | str]]] = {
    "nothing": (asked(), (ROLLING, 0, 1)),
    "short": (asked({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": "25%"}}), (ROLLING, 1, "25%")),
    "rolling with the defaults": (asked({"rollingUpdate": {}}), (ROLLING, 0, 1)),
    "blue and green": (asked({"blueGreen": {}}), (BLUE_GREEN, 0, 1)),
    "recreate": (asked({"recreate": {}}), (RECREATE, 0, 1)),
    "a group": (asked({"groups": [{"components": EVERY, "blueGreen": {}}]}), (BLUE_GREEN, 0, 1)),
    "OME's": (asked(deploymentStrategy={"type": "Recreate"}), (RECREATE, 0, 1)),
    "OME's with bounds": (
        asked(deploymentStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "50%"}}),
        (ROLLING, "50%", 1),
    ),
    "the block counts more": (asked({"blueGreen": {}}, deploymentStrategy={"type": "Recreate"}), (BLUE_GREEN, 0, 1)),
    "a block without a strategy": (asked({"paused": True}, deploymentStrategy={"type": "Recreate"}), (RECREATE, 0, 1)),
}


@pytest.mark.parametrize("case", CASES)
def test_rollout_strategy_is_read_from_spec(case: str) -> None:
    found, wanted = CASES[case]
    assert (found.name, found.surge, found.unavailable) == wanted
    assert found.advice == ()


def test_strategy_may_come_from_the_runtime() -> None:
    runtime = parts.simple(deploymentStrategy={"type": "Recreate"})
    assert strategy(parts.service(engine={}), runtime).name == RECREATE
    assert strategy(parts.service(engine={}), None).name == ROLLING


def test_pause_is_part_of_the_strategy() -> None:
    assert asked({"paused": True}).paused and not asked({"paused": False}).paused


LOOSER = ([["engine"], ["decoder", "router"]], [["engine", "router"]])


@pytest.mark.parametrize("groups", LOOSER)
def test_rollout_groups_of_separate_components_give_advice(groups: list[list[str]]) -> None:
    (said,) = asked({"groups": [{"components": components} for components in groups]}).advice
    assert said.startswith("spec.rollout.groups: all components")


def test_percentage_above_100_gives_advice() -> None:
    (said,) = asked({"rollingUpdate": {"maxSurge": "150%", "maxUnavailable": "100%"}}).advice
    assert said == 'spec.rollout.rollingUpdate.maxSurge 150% is more than 100 %: write "100%" for all groups'
    (said,) = asked(deploymentStrategy={"rollingUpdate": {"maxUnavailable": "101%"}}).advice
    assert said.startswith("spec.engine.deploymentStrategy.rollingUpdate.maxUnavailable 101% ")


def test_unknown_strategy_type_gives_advice() -> None:
    found = asked(deploymentStrategy={"type": "Sometimes"})
    assert found.name == ROLLING and "Sometimes is unknown: write RollingUpdate or Recreate" in found.advice[0]


BOUNDS = {
    "default": (Strategy(), Bounds({"engine": 0, "decoder": 0}, {"engine": 1, "decoder": 1})),
    "percent: surge up, missing down": (
        Strategy(surge="30%", unavailable="30%"),
        Bounds({"engine": 1, "decoder": 2}, {"engine": 0, "decoder": 1}),
    ),
    "a role that could not move": (
        Strategy(surge=0, unavailable="25%"),
        Bounds({"engine": 0, "decoder": 0}, {"engine": 1, "decoder": 1}),
    ),
    "nothing may be missing": (
        Strategy(surge=1, unavailable=0),
        Bounds({"engine": 1, "decoder": 1}, {"engine": 0, "decoder": 0}),
    ),
    "blue and green": (Strategy(BLUE_GREEN), Bounds(WANTED, {}, whole=True)),
    "recreate": (Strategy(RECREATE), Bounds({}, WANTED, alone=True)),
}


@pytest.mark.parametrize("case", BOUNDS)
def test_bounds_in_groups_per_role(case: str) -> None:
    found, wanted = BOUNDS[case]
    assert found.bounds(WANTED) == wanted
