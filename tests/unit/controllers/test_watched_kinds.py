"""Tests of how the leader watches its kinds."""

from typing import Any

import pytest

from bench.crowd import encoded
from ome_operator.cache.cluster_cache import RECORD, ClusterCache
from ome_operator.controllers.watched_kinds import DECODERS, watches_of
from ome_operator.core.observed.objects import Deps
from ome_operator.util.json_limits import FULL_DECODERS, decode_json

METADATA = {
    "name": "a", "namespace": "b", "uid": "c", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z",
    "labels": {"l": "1"}, "annotations": {"n": "1"}, "deletionTimestamp": "2026-01-02T00:00:00Z",
    "deletionGracePeriodSeconds": 30,
    "ownerReferences": [{"kind": "StatefulSet", "name": "w", "uid": "u", "controller": True}],
    "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {}}}],
}  # fmt: skip
BODIES: dict[str, dict[str, Any]] = {
    "Pod": {
        "spec": {"nodeName": "node-0", "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
    },
    RECORD: {
        "spec": {"prefetch": ["a"]},
        "status": {"models": [{"kind": "BaseModel", "name": "m", "state": "Ready"}], "prefetch": {"limit": "1"}},
    },

    "StatefulSet": {
        "spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "main"}]}}},
        "status": {"observedGeneration": 1, "updateRevision": "w-1"},
    },
    "Node": {
        "spec": {"unschedulable": True, "taints": [{"key": "gpu", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"nvidia.com/gpu": "7"}, "capacity": {"nvidia.com/gpu": "8"},
            "conditions": [{"type": "KernelDeadlock", "status": "True"}], "images": [{"names": ["a"]}],
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(DECODERS))
def test_skipped_fields_do_not_change_the_facts_of_an_object(kind: str) -> None:
    body = {"apiVersion": "v1", "kind": kind, "metadata": METADATA, **BODIES[kind]}
    less = decode_json(encoded({"type": "ADDED", "object": body}), DECODERS[kind].event)["object"]
    assert less != body
    found, wanted = (ClusterCache(Deps()).store_observed(kind, each) for each in (less, body))
    assert found is not None and wanted is not None and found.new == wanted.new


def test_fields_are_skipped_only_where_nothing_reads_them() -> None:
    assert {each.kind: each.decoders for each in watches_of() if each.decoders is not FULL_DECODERS} == DECODERS
