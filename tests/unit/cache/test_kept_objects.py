"""Tests that objects of tenants take little of the operator's memory, however large they are (finding U13)."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.agent.parsing import parse_model
from ome_operator.api import InferenceService, Invalid
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.core.observed.objects import Child, Deps, Ref
from tests.support import yamls

SERVICE = Ref("InferenceService", "ns", "s")
WORDS = 140_000
KEPT = 20_000
"""Largest memory of the facts of a large object, in bytes."""


def service(words: int, version: int = 1, **metadata: Any) -> dict[str, Any]:
    body = yamls.service("ns", "s", "r", "engine")
    body["metadata"] |= {"uid": "u", "resourceVersion": str(version), "generation": version, **metadata}
    body["spec"]["engine"]["runner"] = {"name": "main", "image": "i"}
    body["spec"]["engine"]["runner"]["args"] = [f"{number % 9000 + 1000}" for number in range(words)]
    return body


def account(**metadata: Any) -> dict[str, Any]:
    """Return a ServiceAccount with the operator's label. Any tenant may create one."""
    labels = {keys.MANAGED_BY: keys.MANAGER, keys.SERVICE: "s", **metadata.pop("labels", {})}
    return {"metadata": {"name": "x", "namespace": "ns", "uid": "x", "resourceVersion": "1", "labels": labels, **metadata}}


def kept(cache: ClusterCache, kind: str, make: Callable[[], dict[str, Any]]) -> int:
    """Return the number of bytes that the cache keeps of an object."""
    cache.store_observed(kind, {"metadata": {"name": "first", "namespace": "ns", "uid": "first", "resourceVersion": "1"}})
    tracemalloc.start()
    try:
        cache.store_observed(kind, make())
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("InferenceService", lambda: service(WORDS)),
        ("InferenceService", lambda: service(1, annotations={f"k{number}": "v" for number in range(20_000)})),
        ("BaseModel", lambda: service(WORDS)),
        ("ServingRuntime", lambda: service(WORDS)),
        ("BenchmarkJob", lambda: service(WORDS)),
        ("ServiceAccount", lambda: account(labels={f"k{number}": "v" for number in range(60_000)})),
        ("ServiceAccount", lambda: account(annotations={keys.HASH: "x" * 250_000, **{f"k{n}": "v" for n in range(9_000)}})),
        ("Pod", lambda: account(annotations={keys.DRAINING: "x" * 250_000})),
    ],
)
def test_only_a_small_part_of_a_large_object_is_cached(kind: str, make: Callable[[], dict[str, Any]]) -> None:
    """The cache keeps only a small part of a large object. Previously, an InferenceService of 1 MB took 9.8 MiB, and a
    ServiceAccount with labels of 1 MB took 6.9 MiB.
    """
    assert kept(ClusterCache(Deps()), kind, make) < KEPT


def test_large_service_is_invalid_until_it_is_small() -> None:
    cache = ClusterCache(Deps())

    def parsed() -> Any:
        found = cache.find_resource(SERVICE)
        assert found is not None
        return found.parsed

    cache.store_observed("InferenceService", service(WORDS))
    assert isinstance(parsed(), Invalid) and "move large values" in parsed().why
    change = cache.store_observed("InferenceService", {**service(WORDS, 2), "status": {"state": "x"}})
    assert change is not None and isinstance(parsed(), Invalid)
    cache.store_written("InferenceService", service(WORDS, 3))  # the server's answer to the write of the status
    assert isinstance(parsed(), Invalid)
    cache.store_observed("InferenceService", service(10, 4))
    assert isinstance(parsed(), InferenceService)
    cache.store_written("InferenceService", service(WORDS, 5))
    assert isinstance(parsed(), Invalid)


def test_status_change_of_a_large_service_is_not_an_edit() -> None:
    """An event that only changes the status of a large service does not look like an edit. The cache leaves out parts of
    large objects, so events are compared without these parts.
    """
    cache = ClusterCache(Deps())
    labels = {"team": "x"}
    cache.store_observed("InferenceService", service(WORDS, labels=labels))
    body = service(WORDS, labels=labels)
    body["metadata"]["resourceVersion"] = "2"
    change = cache.store_observed("InferenceService", body)
    assert change is not None and not change.matters


def test_the_operators_labels_of_a_child_are_kept() -> None:
    labels = {keys.COMPONENT: "engine", keys.REVISION: "r", keys.GROUP_INDEX: "1", keys.WORKER_INDEX: "0"}
    cache = ClusterCache(Deps())
    cache.store_observed("StatefulSet", account(labels={**labels, "team": "x"}))
    (child,) = cache.children["StatefulSet"]
    assert isinstance(child, Child)
    assert child.labels == {keys.MANAGED_BY: keys.MANAGER, keys.SERVICE: "s", **labels}


def test_agent_does_not_cache_large_models() -> None:
    body = service(WORDS)
    uid, model = parse_model("BaseModel", body)
    assert uid == "u" and isinstance(model, Invalid) and "move large values" in model.why
