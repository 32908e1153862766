"""Tests of the facts about nodes, and that 5,000 nodes with 200 labels take little memory."""

import gc
import json
import sys
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ome_operator.core.observed import nodes
from ome_operator.core.observed.nodes import Labels, differing_keys
from ome_operator.core.observed.objects import Node, Taint

BODY: dict[str, Any] = {
    "metadata": {"name": "n", "resourceVersion": "3", "labels": {"a": "b"}},
    "spec": {
        "taints": [
            {"key": "z", "effect": "NoExecute"},
            {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
            {"key": "soft", "effect": "PreferNoSchedule"},
        ]
    },
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "allocatable": {"cpu": "191500m", "memory": "2Ki", "nvidia.com/gpu": "8", "amd.com/gpu": "2", "rdma/ib": "1k"},
    },
}


def test_node_record_has_capacity_and_state() -> None:
    room = (("amd.com/gpu", 2), ("cpu", 191500), ("memory", 2048), ("nvidia.com/gpu", 8), ("rdma/ib", 1000))
    taints = (Taint("gpu", "yes", "NoSchedule"), Taint("z", "", "NoExecute"))
    assert nodes.node(BODY) == ("n", 3, {"a": "b"}, True, 10, frozenset(), True, taints, room, "", "", ())
    cordoned = nodes.node({**BODY, "spec": {"unschedulable": True}})
    assert (cordoned.ready, cordoned.alive, cordoned.taints) == (False, True, ())
    silent = nodes.node({**BODY, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})
    assert (silent.alive, silent.room) == (False, ())


@pytest.mark.parametrize("kind", [Labels, dict])
@pytest.mark.parametrize(
    ("now", "found"),
    [
        ({"a": "1", "b": "2"}, []),
        ({"a": "1", "b": "3"}, ["b"]),
        ({"a": "1"}, ["b"]),
        ({"b": "2", "c": "1"}, ["a", "c"]),
        ({}, ["a", "b"]),
    ],
)
def test_differing_keys_compares_labels_in_both_directions(
    kind: Callable[[dict[str, str]], Mapping[str, str]], now: dict[str, str], found: list[str]
) -> None:
    assert differing_keys(Labels({"a": "1", "b": "2"}), kind(now)) == found
    assert differing_keys(kind(now), Labels({"a": "1", "b": "2"})) == found


def test_labels_behave_like_a_mapping() -> None:
    labels = Labels({"b": "2", "a": "1"})
    assert labels == {"a": "1", "b": "2"} == labels
    assert labels != {"a": "1"} and labels != Labels({"a": "1", "b": "3"}) and labels != Labels({"a": "1", "c": "2"})
    assert labels == Labels({"a": "1", "b": "2"})
    assert (labels.get("a"), labels.get("c"), labels.get("c", "x"), "b" in labels, len(labels)) == ("1", None, "x", True, 2)
    assert {**labels} == dict(labels.items()) == {"a": "1", "b": "2"}


def test_facts_of_200_nodes_with_200_labels_need_little_memory() -> None:
    """The facts of 200 nodes with 200 labels each, whose texts are separate objects, take little memory. The limit
    corresponds to 12 MiB for 5,000 nodes; plain dicts take 150 MiB.
    """
    tracemalloc.start()
    try:
        kept = [nodes.node(json.loads(_text(number))) for number in range(3)]
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        kept += [nodes.node(json.loads(_text(number))) for number in range(3, 203)]
        gc.collect()
        each = (tracemalloc.get_traced_memory()[0] - before) / 200
    finally:
        tracemalloc.stop()
    print(f"{each:.0f} bytes a node", file=sys.stderr)
    assert each < 12 * 2**20 / 5000
    assert kept[0].room is kept[150].room and kept[0].taints is kept[150].taints and kept[0].ours is kept[150].ours
    assert isinstance(kept[0], Node)


def _text(number: int) -> str:
    labels = {f"models.ome.io/clusterbasemodel.some-model-{place}": "Ready" for place in range(200)}
    ours = {"manager": "ome-operator", "operation": "Apply", "fieldsV1": {"f:metadata": {"f:labels": {}}}}
    ours["fieldsV1"]["f:metadata"]["f:labels"] = {f"f:{name}": {} for name in labels}  # type: ignore[index]
    metadata = {"name": f"n{number}", "labels": {**labels, "kubernetes.io/hostname": f"n{number}"}, "managedFields": [ours]}
    return json.dumps({**BODY, "metadata": metadata})
