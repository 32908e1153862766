"""Tests of how the leader watches its kinds."""

from typing import Any

import pytest

from bench.crowd import encoded
from ome_operator.cache.cluster_cache import RECORD, ClusterCache
from ome_operator.controllers.watched_kinds import WITHOUT_MANAGED_FIELDS, watched
from ome_operator.core.observed.objects import Deps
from ome_operator.util.json_limits import EVENT, fast

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
}


@pytest.mark.parametrize("kind", sorted(WITHOUT_MANAGED_FIELDS))
def test_the_facts_of_an_object_are_the_same_without_its_managed_fields(kind: str) -> None:
    body = {"apiVersion": "v1", "kind": kind, "metadata": METADATA, **BODIES[kind]}
    less = fast(encoded({"type": "ADDED", "object": body}), EVENT)["object"]
    assert "managedFields" not in less["metadata"]
    found, wanted = (ClusterCache(Deps()).seen(kind, each) for each in (less, body))
    assert found is not None and wanted is not None and found.new == wanted.new


def test_managed_fields_are_skipped_only_where_nothing_reads_them() -> None:
    assert {each.kind for each in watched() if not each.managed_fields} == WITHOUT_MANAGED_FIELDS
