"""Tests that large objects of tenants are reduced to their identity before they fill the memory (finding U13)."""

import json
import sys
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ome_operator import keys
from ome_operator.util.json_limits import estimate_memory
from ome_operator.util.large_objects import LARGEST, NEEDS, memory, reduce, reduce_large_objects, refusal
from tests.support import yamls

SHAPES: dict[str, Any] = {
    "short words": [f"{number % 9000 + 1000}" for number in range(35_000)],
    "variables": [{"name": f"A{number}", "value": "b"} for number in range(8_000)],
    "volumes": [{"name": f"a{number}", "emptyDir": {}} for number in range(7_000)],
    "empty lists": [[] for _ in range(75_000)],
    "empty maps": [{} for _ in range(75_000)],
    "labels": {f"k{number}": "v" for number in range(20_000)},
    "numbers": [number + 1000 for number in range(40_000)],
    "a long word": "x" * 600_000,
    "letters beyond ASCII": ["é" * 50_000, "中" * 50_000, "😀" * 50_000],
}
"""Values of about 250 kB of text. An object may have six times as much."""


def large(kind: str = "InferenceService", namespace: str = "a", **more: Any) -> dict[str, Any]:
    """Return an object of 245 kB whose values need 2 MB."""
    metadata = {"name": "s", "namespace": namespace, "uid": "u", "resourceVersion": "7", "generation": 2, **more}
    body = {"apiVersion": keys.API_VERSION, "kind": kind, "metadata": metadata, "status": {"state": "Ready"}}
    return {**body, "spec": {"engine": {"runner": {"args": SHAPES["short words"]}}}}


@pytest.mark.parametrize("shape", SHAPES)
def test_no_value_needs_more_memory_than_estimated(shape: str) -> None:
    text = json.dumps(SHAPES[shape])
    tracemalloc.start()
    try:
        value = json.loads(text)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used <= memory(value) * 1.05 <= 5 * used


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_memory_estimate_of_a_text_covers_its_values(value: Any) -> None:
    """If a text contains a large object, its estimated memory is large, too: `memory_of` of a text must not be less than
    `memory` of its value, except for values that are neither lists nor maps.
    """
    for ascii_only in (True, False):
        text = json.dumps({"object": value}, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
        assert estimate_memory(text) + 200 >= memory(value)


def test_large_object_is_reduced_to_its_identity() -> None:
    owned = [{"manager": keys.MANAGER, "subresource": "status", "fieldsV1": {}}, {"manager": "kubectl", "fieldsV1": {}}]
    labels = {keys.OPERATOR_CLASS: "b", "team": "x"}
    owner = {"uid": "o", "controller": True}
    body = large(labels=labels, annotations={"note": "y"}, managedFields=owned, ownerReferences=[{"uid": "p"}, owner])
    small = reduce(body)
    assert small["metadata"] == {
        "name": "s", "namespace": "a", "uid": "u", "resourceVersion": "7", "generation": 2,
        "labels": {keys.OPERATOR_CLASS: "b"}, "ownerReferences": [owner], "managedFields": owned[:1],
    }  # fmt: skip
    assert (small["status"], small["spec"]) == ({"state": "Ready"}, {}) and small[NEEDS] > 2 * 10**6
    assert refusal(small).startswith(f"spec, labels and annotations need {small[NEEDS] // 1024:,} KiB of the operator's")
    assert reduce(small) is small and memory(small) < 5000


def test_small_and_cluster_wide_objects_are_not_reduced() -> None:
    service = yamls.service("a", "s", "r", "engine")
    cluster_wide = large("ClusterServingRuntime", "")
    for body in (service, cluster_wide, {}, {"metadata": None}):
        assert reduce(body) is body and refusal(body) == ""


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_large_metadata_also_counts_for_the_limit(where: str) -> None:
    body = {"metadata": {"name": "s", "namespace": "a", where: SHAPES["labels"]}}
    assert refusal(reduce(body)) and len(str(reduce(body))) < 300


def test_large_objects_of_a_list_and_of_an_event_are_reduced() -> None:
    small = yamls.service("a", "t", "r", "engine")
    page = {"kind": "InferenceServiceList", "metadata": {"continue": "c"}, "items": [small, large(), "no object"]}
    found = json.loads(reduce_large_objects(json.dumps(page).encode()))
    assert (found["kind"], found["metadata"], found["items"][0], found["items"][2]) == (
        page["kind"], page["metadata"], small, "no object",
    )  # fmt: skip
    assert found["items"][1]["metadata"]["name"] == "s" and found["items"][1][NEEDS] > LARGEST
    event = json.loads(reduce_large_objects(json.dumps({"type": "ADDED", "object": large()}).encode()))
    assert event["type"] == "ADDED" and event["object"][NEEDS] > LARGEST


@pytest.mark.parametrize("text", [b"", b"[", b"{}" * 300_000, b"[" * 300_000, json.dumps(large(namespace="")).encode()])
def test_other_texts_are_not_changed(text: bytes) -> None:
    assert reduce_large_objects(text) is text


def test_size_limit_permits_the_largest_sample_object() -> None:
    assert LARGEST > 8 * 59_000 and sys.getsizeof("x" * 200_000) < LARGEST // 2
