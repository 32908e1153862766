"""Tests that the benchmark measures a service in a steady state, and that the floor, with which it compares the operator,
consists of the objects that the operator would create.
"""

import asyncio
from collections import Counter

import pytest

from bench import alone, offline
from bench.api import run_in_lanes
from bench.scenarios import PAIRS, SCALED, SINGLE, SPLIT


def test_kimi_service_reaches_a_steady_state() -> None:
    service, observed = alone.steady_state(*alone.kimi())
    assert len(observed.pods) == 17
    assert next(one for one in service.status["conditions"] if one["type"] == "Ready")["status"] == "True"


@pytest.mark.parametrize(
    ("scenario", "sets", "more"),
    [
        (SINGLE[1], 10, {"Deployment": 1, "ControllerRevision": 1}),
        (PAIRS.times(1), 2, {"ControllerRevision": 1}),
        (SPLIT.times(1), 12, {"Deployment": 1, "ControllerRevision": 1}),
        (SCALED.times(1), 2, {"RoleScale": 1, "HorizontalPodAutoscaler": 1}),
    ],
)
def test_floor_consists_of_the_objects_that_a_service_needs(scenario: object, sets: int, more: dict[str, int]) -> None:
    (objects,) = offline.objects(scenario)  # type: ignore[arg-type]
    kinds = Counter(one["kind"] for one in objects)
    assert kinds["StatefulSet"] == sets
    assert {kind: kinds[kind] for kind in more} == more


def test_pods_of_a_scenario_sum_up() -> None:
    assert (SINGLE[100].pods, PAIRS.pods, SPLIT.pods) == (1100, 200, 1300)
    assert SINGLE[100].nodes * 8 >= 1000 and PAIRS.nodes >= 200 and SPLIT.nodes * 8 >= 1200
    assert PAIRS.times(10).key == "10-pairs"


def test_offline_owner_reference_is_replaced() -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s", "uid": "u"}}
    changed = offline.with_owner({"metadata": {"name": "x", "ownerReferences": [{"uid": "old"}]}}, owner)
    assert [one["uid"] for one in changed["metadata"]["ownerReferences"]] == ["u"]


async def test_tasks_run_in_order_with_limited_concurrency() -> None:
    order: list[int] = []
    busy = most = 0

    async def work(item: int) -> None:
        nonlocal busy, most
        order.append(item)
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(0)
        busy -= 1

    await run_in_lanes(range(10), 3, work)
    assert order == list(range(10))
    assert most == 3
