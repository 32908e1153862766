"""Tests of pods of other users on nodes: they are read from the API server when they are needed, counted once, and forgotten
after a while.
"""

import asyncio
from typing import Any

from ome_operator.cache.foreign_pods import FRESH, KEPT, MOST, ForeignPods, total_requests
from ome_operator.kube.errors import Forbidden
from tests.support.fake_api import FakeApi

GPU = "nvidia.com/gpu"


def pod(uid: str, gpus: int, phase: str = "Running") -> dict[str, Any]:
    box = {"name": "c", "resources": {"limits": {GPU: str(gpus)}}}
    return {"metadata": {"uid": uid}, "spec": {"containers": [box]}, "status": {"phase": phase}}


def test_own_and_ended_pods_are_not_counted_as_foreign() -> None:
    pods = [pod("theirs", 4), pod("ours", 2), pod("done", 1, "Succeeded"), {}]
    found = total_requests(pods, lambda pod: pod.get("metadata") == {"uid": "ours"})
    assert found == {GPU: 4, "pods": 2}


def test_foreign_pod_result_expires_after_five_minutes() -> None:
    clock = [1000.0]
    api = FakeApi({"list_objects Pod": [pod("theirs", 8)]})
    foreign = ForeignPods(api, lambda: clock[0], lambda _: False)
    asyncio.run(foreign.read_nodes(["n1"]))
    assert [call.selector for call in api.calls] == ["spec.nodeName=n1"]
    assert foreign.pop_changed_nodes() == {"n1"} and foreign.requests_on("n1")[GPU] == 8 and foreign.requests_on("n2") == {}
    asyncio.run(foreign.read_nodes(["n1"]))
    assert len(api.calls) == 1
    clock[0] += FRESH + 1
    asyncio.run(foreign.read_nodes(["n1"]))
    assert len(api.calls) == 2 and foreign.pop_changed_nodes() == {"n1"}
    clock[0] += KEPT + 1
    assert foreign.pop_changed_nodes() == {"n1"} and foreign.requests_on("n1") == {} and foreign.pop_changed_nodes() == set()


def test_number_of_node_reads_is_limited_and_a_refusal_stops_reading() -> None:
    api = FakeApi({"list_objects Pod": []})
    foreign = ForeignPods(api, lambda: 1000.0, lambda _: False)
    asyncio.run(foreign.read_nodes(f"n{at}" for at in range(5000)))
    assert len(api.calls) == MOST
    asyncio.run(foreign.read_nodes(f"n{at}" for at in range(5000)))
    assert len(api.calls) == 2 * MOST, "the next hundred nodes"
    refused = FakeApi({"list_objects Pod": Forbidden("no")})
    foreign = ForeignPods(refused, lambda: 1000.0, lambda _: False)
    asyncio.run(foreign.read_nodes(["n1", "n2"]))
    assert len(refused.calls) == 1 and foreign.requests_on("n1") == {}
