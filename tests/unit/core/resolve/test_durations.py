"""Tests of durations that users write: every duration of the API, from 0s to more digits than a number can have."""

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from ome_operator import api, quantity
from ome_operator.api.values import Duration
from ome_operator.core.recovery.policy import HANG, SELF_HEAL, START, policy
from ome_operator.core.resolve import durations
from ome_operator.core.rollout import progress_deadline
from tests.support import parts

VALUES = ["0s", "1ns", "5s", "99999999999h", "9" * 63 + "h"]
HANDLED = {
    "hangTimeout": "durations.LIFECYCLE", "instanceReadyTimeout": "durations.LIFECYCLE",
    "selfHealTimeout": "durations.LIFECYCLE", "forceDeleteAfter": "durations.LIFECYCLE",
    "readyTimeout": "durations.READY_TIMEOUT", "coolDown": "durations.COOL_DOWN",
    "timeToFirstToken": "core/rollout/demand_fields.py", "timeBetweenTokens": "core/rollout/demand_fields.py",
    "timeout": "core/moves, which has its own tests",
    "duration": "no effect", "interval": "no effect", "initialDelay": "no effect", "soak": "no effect",
}  # fmt: skip
"""The name of each duration field -> where its range is checked."""


def fields(model: type[BaseModel], seen: set[type]) -> Iterator[str]:
    """Yield the names of the duration fields of a model and of the models inside it."""
    if model in seen:
        return
    seen.add(model)
    for name, field in model.model_fields.items():
        if Duration.__metadata__[1] in field.metadata or _inside(field.annotation, Duration):
            yield field.alias or name
        for inner in _models(field.annotation):
            yield from fields(inner, seen)


def _inside(found: Any, wanted: Any) -> bool:
    return found == wanted or any(_inside(each, wanted) for each in get_args(found))


def _models(found: Any) -> Iterator[type[BaseModel]]:
    if isinstance(found, type) and issubclass(found, BaseModel):
        yield found
    for each in get_args(found):
        yield from _models(each)


def test_every_duration_of_the_api_is_handled() -> None:
    seen: set[type] = set()
    kinds = [each for each in vars(api).values() if isinstance(each, type) and issubclass(each, BaseModel)]
    assert {name for kind in kinds for name in fields(kind, seen)} == HANDLED.keys()


@pytest.mark.parametrize("text", VALUES)
@pytest.mark.parametrize("name", durations.LIFECYCLE)
def test_lifecycle_durations_are_clamped_and_odd_values_give_advice(name: str, text: str) -> None:
    service = parts.service(engine={"lifecycle": {name: text}})
    found, said = policy(service, None, "engine"), list(durations.advice(service, None))
    assert found.hang >= 1 and found.start >= 1 and 0 <= found.self_heal <= quantity.LONGEST
    odd = text not in ("5s", *(["0s", "1ns"] if not durations.LIFECYCLE[name].minimum else []))
    assert [one.startswith(f"spec.engine.lifecycle.{name} is {text}") for one in said] == [True] * odd
    if text == "0s":
        assert (found.hang, found.start) == (HANG, START)
        assert found.self_heal == (0.0 if name == "selfHealTimeout" else SELF_HEAL)


@pytest.mark.parametrize("text", VALUES)
def test_advice_names_the_runtime_unless_the_service_sets_the_duration(text: str) -> None:
    runtime = parts.simple(lifecycle={"hangTimeout": text})
    said = list(durations.advice(parts.service(engine={}), runtime))
    assert len(said) == (text != "5s") and all(f"runtime {runtime.name}: spec.engineConfig" in one for one in said)
    own = parts.service(engine={"lifecycle": {"hangTimeout": "5s"}})
    assert not list(durations.advice(own, runtime)) and policy(own, runtime, "engine").hang == 5.0


@pytest.mark.parametrize(("text", "used"), [("0s", "1h"), ("1ns", "1h"), ("5s", "5s"), ("99999999999h", "99999999999h")])
def test_short_progress_deadline_does_not_fail_a_revision_immediately(text: str, used: str) -> None:
    service = parts.service(engine={}, rollout={"readyTimeout": text})
    assert progress_deadline.time_limit(service) == used
    assert len(list(durations.advice(service, None))) == (used != text)


@pytest.mark.parametrize("text", VALUES)
def test_cool_down_above_a_week_gives_advice(text: str) -> None:
    demand = {"timeToFirstToken": "3s", "timeBetweenTokens": "50ms", "coolDown": text}
    said = list(durations.advice(parts.service(engine={}, scalingPolicy={"demand": demand}), None))
    assert len(said) == (quantity.seconds(text) > durations.WEEK)
