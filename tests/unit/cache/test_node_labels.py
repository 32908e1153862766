"""Tests of the cost of many labels and records: only the models concerned are processed (S7 of the review)."""

from collections.abc import Iterator
from typing import Any

import pytest

from ome_operator import names
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.event_handler import EventHandler
from ome_operator.core.observed.objects import Deps, Ref
from tests.support import yamls
from tests.support.parts import change_deps

NODES, TEAMS, EACH = 4, 5, 40


def bodies() -> Iterator[dict[str, Any]]:
    """Yield BaseModels of several namespaces."""
    for number in range(TEAMS * EACH):
        metadata = {
            "name": f"m-{number:03}",
            "namespace": f"team-{number % TEAMS}",
            "uid": f"u{number}",
            "resourceVersion": "1",
        }
        yield {**yamls.model(), "kind": "BaseModel", "metadata": metadata}


@pytest.fixture
def cluster() -> ClusterCache:
    made = ClusterCache(change_deps(Deps(), models_per_namespace=100))
    for body in bodies():
        made.store_observed("BaseModel", body)
    return made


def test_node_with_2000_labels_causes_one_lookup_per_model(cluster: ClusterCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with 2,000 labels causes one look-up for each model. Previously, every label was computed again for every
    model, which took 10 s.
    """
    places = [(body["metadata"]["namespace"], body["metadata"]["name"]) for body in bodies()]
    labels = {names.model_label("BaseModel", *place): "Ready" for place in places}
    labels |= {names.revision_label("BaseModel", *place, "a" * 32): "Ready" for place in places}
    made: list[str] = []
    real = names.model_label
    monkeypatch.setattr(names, "model_label", lambda *ref: (made.append(""), real(*ref))[1])
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    handler = EventHandler(cluster, lambda *_: None, lambda _: (), lambda _: ())
    handler.handle_observed(
        "Node", {"metadata": {"name": "n", "uid": "n", "resourceVersion": "1", "labels": labels}, "status": status}
    )
    assert 0 < len(made) <= 3 * len(labels)


def test_model_entries_in_records_are_found_by_key(cluster: ClusterCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache finds the entry of a model in the nodes' records by its key. Reported: for every model, it searched all
    entries of all records.
    """
    said = {"kind": "BaseModel", "uri": "hf://a/b", "state": "Ready"}
    entries = [{**said, **{key: body["metadata"][key] for key in ("namespace", "name")}} for body in bodies()]

    def record(node: str, version: int, listed: list[dict[str, str]]) -> None:
        metadata = {"name": node, "uid": f"of-{node}", "resourceVersion": str(version)}
        cluster.store_observed("NodeModels", {"metadata": metadata, "status": {"models": listed}})

    for number in range(NODES):
        record(f"n{number}", 1, entries)
    read: list[str] = []
    real = cluster.record
    monkeypatch.setattr(cluster, "record", lambda node: (read.append(node), real(node))[1])
    refs = [Ref("BaseModel", entry["namespace"], entry["name"]) for entry in entries]
    assert all(len(cluster.holdings(ref)) == NODES for ref in refs)
    assert read == []
    record("n0", 2, entries[1:])
    assert len(cluster.holdings(refs[0])) == NODES - 1 and len(cluster.holdings(refs[1])) == NODES
    cluster.remove_deleted("NodeModels", "of-n1")
    assert len(cluster.holdings(refs[0])) == NODES - 2
