"""Tests that the data of a stored revision is the object that the operator has sent, if the API server stored exactly it."""

from typing import Any

import pytest

from ome_operator import keys
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.core.observed.managed_fields import digest
from ome_operator.core.observed.objects import Deps, Manifest

LABELS = {keys.MANAGED_BY: keys.MANAGER, keys.SERVICE: "s"}


def sent(data: Any) -> Manifest:
    """Return a ControllerRevision as the operator applies it."""
    metadata = {"name": "s-1", "namespace": "ns", "labels": LABELS}
    body = {"kind": "ControllerRevision", "metadata": metadata, "revision": 1, "data": data}
    return {**body, "metadata": {**metadata, "annotations": {keys.HASH: digest(body)}}}


def answer(manifest: Manifest, data: Any) -> Manifest:
    """Return the API server's answer to the apply of a manifest if it stored `data`."""
    owned = {"f:metadata": {"f:labels": {f"f:{label}": {} for label in LABELS}}, "f:revision": {}, "f:data": {}}
    entry = {"manager": keys.MANAGER, "operation": "Apply", "fieldsV1": owned}
    metadata = {**manifest["metadata"], "uid": "u", "resourceVersion": "5", "managedFields": [entry]}
    return {**manifest, "metadata": metadata, "data": data}


def stored(manifest: Manifest, data: Any) -> Any:
    """Return the data that the cache keeps after the answer to an apply."""
    cache = ClusterCache(Deps())
    cache.store_written("ControllerRevision", answer(manifest, data), manifest)
    child = cache.children_of("ns", "s")["ControllerRevision", "s-1"]
    assert child.content is not None
    return child.content["data"]


def test_stored_data_is_the_object_that_was_sent() -> None:
    manifest = sent({"inputs": {"a": [1, 0.5, "x"]}})
    assert stored(manifest, {"inputs": {"a": [1, 0.5, "x"]}}) is manifest["data"]


@pytest.mark.parametrize("other", [{"a": 2}, {"a": 1.0}, {"a": True}, {"a": 1, "b": 2}, {}])
def test_other_data_of_the_server_is_kept_as_it_is(other: Any) -> None:
    found = stored(sent({"a": 1}), other)
    assert repr(found) == repr(other)
