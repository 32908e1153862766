"""Tests of `status.traffic`: what it contains, how rarely it changes, and that no decision depends on it."""

import json
import math
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ome_operator.api.traffic_status import TrafficSummary
from ome_operator.core.observed.telemetry import LeaderLoad, WorkRates
from ome_operator.core.observed.traffic import LeaderNumbers, ServiceNumbers
from ome_operator.core.reconcile.sync import sync
from ome_operator.core.status.traffic import PAUSE, REPEAT, next_traffic, traffic_status
from tests.support import parts
from tests.support.simulator import START, World

BUCKETS = {"firstToken": ((0.4, 31.0), (0.6, 9.0)), "betweenTokens": ((0.02, 9.0), (math.inf, 1.0))}
DECODE = LeaderNumbers(
    "decode", LeaderLoad(0.0, 7, 1, 0, 0.41234), WorkRates(0.0, 60.0, {"outputTokens": 310.55, "promptTokens": 0.0}, BUCKETS)
)
SILENT = LeaderNumbers("prefill")


def test_traffic_status_contains_only_known_numbers() -> None:
    found = traffic_status(ServiceNumbers(2, 1, 2.4049, {"d": DECODE, "p": SILENT}, 0.0), START)
    assert found == {
        "time": "2026-01-01T00:00:00Z",
        "routers": 2,
        "routersHeard": 1,
        "requestsPerSecond": 2.4,
        "promptTokensPerSecond": 0,
        "outputTokensPerSecond": 311,
        "timeToFirstToken": {"p50": {"above": 0, "upTo": 0.4}, "p95": {"above": 0.4, "upTo": 0.6}},
        "timeBetweenTokens": {"p50": {"above": 0, "upTo": 0.02}, "p95": {"above": 0.02}},
        "roles": [
            {"name": "decode", "leaders": 1, "withLoad": 1, "withWork": 1, "running": 7, "waiting": 1, "cacheUse": 0.412}
        ],
    }
    TrafficSummary.model_validate(found)


@pytest.mark.parametrize("leaders", [{}, {"p": SILENT}])
def test_traffic_status_is_absent_without_numbers(leaders: dict[str, LeaderNumbers]) -> None:
    assert traffic_status(ServiceNumbers(2, 2, None, leaders, None), START) is None


def test_zero_requests_is_reported_as_a_number() -> None:
    found = traffic_status(ServiceNumbers(1, 1, 0.0, {}, 0.0), START)
    assert found is not None and found["requestsPerSecond"] == 0 and "roles" not in found


@given(st.floats(0, 2.0**53))
def test_numbers_are_rounded_and_whole_numbers_are_integers(value: float) -> None:
    """Every number is rounded, and a whole number is written as an integer, because the API server stores 2.0 as 2. A status
    that differs from the stored one would be written again.
    """
    found = traffic_status(ServiceNumbers(1, 1, value, {}, 0.0), START)
    assert found is not None
    rounded = found["requestsPerSecond"]
    assert abs(rounded - value) <= 0.00501 * value
    assert isinstance(rounded, int) or rounded != int(rounded)
    assert json.loads(json.dumps(found)) == found


# --- how often it changes -----------------------------------------------------------------------------------------------


def seen(requests: float, **more: Any) -> dict[str, Any]:
    """Return `status.traffic` as it was at `START`."""
    return {"time": "2026-01-01T00:00:00Z", "requestsPerSecond": requests, **more}


@pytest.mark.parametrize(
    ("before", "found", "seconds", "changes"),
    [
        (None, seen(1), 0, True),
        (seen(10), seen(99), PAUSE - 1, False),
        (seen(10), None, PAUSE - 1, False),
        (seen(10), seen(11), PAUSE, False),
        (seen(10), seen(13), PAUSE, True),
        (seen(10), seen(7), PAUSE, True),
        (seen(0), seen(1), PAUSE, True),
        (seen(0), seen(0), PAUSE, False),
        (seen(10), None, PAUSE, True),
        (seen(10), seen(10, routers=2), PAUSE, True),
        (seen(10, roles=[{"running": 10}]), seen(10, roles=[{"running": 11}]), PAUSE, False),
        (seen(10, roles=[{"running": 10}]), seen(10, roles=[{"running": 13}]), PAUSE, True),
        (seen(10, roles=[{"running": 10}]), seen(10, roles=[]), PAUSE, True),
        (seen(10, roles=[{"name": "decode"}]), seen(10, roles=[{"name": "engine"}]), PAUSE, True),
        (seen(10), seen(11), REPEAT - 1, False),
        (seen(10), seen(10), REPEAT, True),
        (seen(10), seen(99), -1, True),
        ({**seen(10), "time": "yesterday"}, seen(10), 0, True),
    ],
)
def test_traffic_status_changes_only_after_interval_or_large_difference(
    before: Any, found: Any, seconds: float, changes: bool
) -> None:
    now = START + timedelta(seconds=seconds)
    assert next_traffic(before, found, now) == (found if changes else before)


@given(st.lists(st.tuples(st.floats(1, 30), st.none() | st.floats(0, 1e6)), max_size=200))
def test_traffic_status_changes_at_most_once_a_minute(readings: list[tuple[float, float | None]]) -> None:
    """`status.traffic` changes at most once a minute. A service whose reports arrive irregularly may lose its numbers and
    get them again, each at most once a minute.
    """
    now, field, changes = START, None, list[Any]()
    for pause, requests in readings:
        now += timedelta(seconds=pause)
        found = traffic_status(ServiceNumbers(1, 1, requests, {}, 0.0), now)
        if (after := next_traffic(field, found, now)) != field:
            changes.append((now, after))
        field = after
    for (one, before), (other, _) in pairwise(changes):
        assert before is None or other - one >= timedelta(seconds=PAUSE - 1)


# --- what it decides ----------------------------------------------------------------------------------------------------


def test_traffic_numbers_change_only_the_traffic_field() -> None:
    here = World(parts.service(engine={}, router={}), parts.deps(parts.simple(), parts.model()), 1)
    here.settle()
    observed = here.observed()
    without = sync(here.service, here.deps, observed, here.now)
    plan = sync(here.service, here.deps, replace(observed, traffic=seen(5)), here.now)
    assert plan.status.pop("traffic") == seen(5)
    assert plan == without and not plan.urgent
    stored = replace(here.service, status={**here.service.status, "traffic": seen(5)})
    assert sync(stored, here.deps, observed, here.now) == without, "the stored numbers are no input of a decision"
