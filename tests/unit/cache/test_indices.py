"""Tests that incrementally updated indices equal a computation over all objects, and that an event causes no unrelated
work.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ome_operator import keys, names
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.event_handler import Urgency
from ome_operator.cache.node_labels import LabelIndex, label_names_model
from ome_operator.core.observed.objects import Deps, Ref
from ome_operator.core.placement.demand import Demand
from ome_operator.core.placement.fit import find_unplaced
from ome_operator.core.placement.need import Need
from tests.unit.cache.test_event_handler import MODEL, MODEL_SPEC, SERVICE, SPEC, QueuedEvents, body


@pytest.fixture
def told() -> QueuedEvents:
    made = QueuedEvents()
    made.see("ClusterBaseModel", "k2", metadata={"namespace": ""}, spec=MODEL_SPEC)
    made.see("InferenceService", "kimi", spec=SPEC)
    return made


KINDS = st.sampled_from([("ClusterBaseModel", ""), ("BaseModel", "team"), ("BaseModel", "a-very-long-namespace" * 2)])
NAMES = st.text("ab.", min_size=1, max_size=3).map(lambda text: f"m{text}m") | st.sampled_from(["long" * 12, "long" * 15])
DIRECTORIES = st.sampled_from(["", "0" * 8, "0" * 32])


@given(st.lists(st.tuples(KINDS, NAMES, DIRECTORIES), max_size=8), st.integers(0, 8))
def test_label_index_finds_the_models_of_a_label(models: list[Any], removed: int) -> None:
    index = LabelIndex()
    refs = list(dict.fromkeys(Ref(*kind, name) for kind, name, _ in models))
    for ref in refs:
        index.add(ref)
    for ref in refs[:removed]:
        index.remove(ref)
    for kind, name, directory in models:
        label = names.revision_label(*kind, name, directory) if directory else names.model_label(*kind, name)
        assert set(index.models_of_label(label)) == {ref for ref in refs[removed:] if label_names_model(label, ref)}


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["Node", "NodeModels", "Pod"]),
        st.sampled_from(["a", "b", "gone"]),
        st.sampled_from(["n1", "n2"]),
        st.lists(st.sampled_from(["k1", "k2", "k3"]), unique=True),
    ),
    max_size=20,
)


@given(EVENTS)
def test_incremental_indices_equal_a_full_computation(events: list[Any]) -> None:
    """The incrementally updated indices equal those that are computed from all objects, although objects are replaced by
    others of the same name, events arrive late, and objects are deleted.
    """
    cluster = ClusterCache(Deps())
    for version, (kind, uid, name, models) in enumerate(events, start=1):
        if uid == "gone":
            cluster.remove_deleted(kind, f"{kind}-{name}-a", version)
            continue
        cluster.store_observed(kind, _told(kind, uid, name, models, version))
    nodes = {name: found.node for name in ("n1", "n2") if (found := cluster.node(name)) is not None}
    deps = cluster.deps()
    assert deps.nodes == nodes
    labels = {label for node in nodes.values() for label in node.labels}
    assert deps.holders == {label: {name for name, node in nodes.items() if label in node.labels} for label in labels}
    records = [found for name in ("n1", "n2") if (found := cluster.record(name)) is not None]
    for ref in {Ref("ClusterBaseModel", "", name) for name in ("k1", "k2", "k3")}:
        held = {record.node: each for record in records for each in record.holdings if each.ref == ref}
        assert cluster.holdings(ref) == held
    for name in ("n1", "n2"):
        assert set(cluster._index.on_node(name)) == {pod.uid for pod in cluster.pods if pod.node == name}


def _told(kind: str, uid: str, name: str, models: list[str], version: int) -> dict[str, Any]:
    labels = {f"{keys.MODEL_LABEL_PREFIX}clusterbasemodel.{model}": "Ready" for model in models}
    made = body(name, version, metadata={"uid": f"{kind}-{name}-{uid}", "namespace": ""})
    if kind == "Node":
        made["metadata"]["labels"] = labels
    if kind == "Pod":
        made["metadata"]["labels"] = {keys.SERVICE: "s", keys.COMPONENT: "engine", keys.REVISION: "r"}
        made["metadata"]["ownerReferences"] = [{"name": "s-engine-r-0", "uid": "set", "controller": True}]
    made["status"] = {"models": [{"kind": "ClusterBaseModel", "name": model, "bytes": version} for model in models]}
    made["spec"] = {"nodeName": name}
    return made


def test_node_event_computes_label_names_only_of_its_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event of a node computes the names of labels only for models whose labels the node has. Previously, it computed
    the names for all models, which stopped an operator with 300 nodes and 207 models for ten seconds.
    """
    told = QueuedEvents()
    for number in range(50):
        told.see("ClusterBaseModel", f"k{number}", metadata={"namespace": ""}, spec=MODEL_SPEC)
    made: list[str] = []
    whole = names.model_label
    monkeypatch.setattr(names, "model_label", lambda *ref: made.append(ref[2]) or whole(*ref))
    label = {keys.MODEL_LABEL_PREFIX + "clusterbasemodel.k7": "Ready"}
    assert told.see("Node", "n", metadata={"labels": label}) == [(Ref("ClusterBaseModel", "", "k7"), Urgency.SOON)]
    assert set(made) <= {"k7"}


def test_record_enqueues_only_models_with_a_changed_entry() -> None:
    told = QueuedEvents()
    entries = [{"kind": "ClusterBaseModel", "name": name, "bytes": 1} for name in ("k1", "k2")]
    told.see("NodeModels", "n", metadata={"namespace": ""}, status={"models": entries})
    later = [entries[0], {**entries[1], "bytes": 2}]
    dirty = told.see("NodeModels", "n", metadata={"namespace": ""}, status={"models": later})
    assert [ref for ref, _ in dirty] == [Ref("NodeModels", "", "n"), Ref("ClusterBaseModel", "", "k2")]


def test_readiness_flip_of_a_node_enqueues_no_model() -> None:
    """A node that becomes NotReady and Ready again holds the same models as before, so no model is reconciled. Otherwise a
    node pool that restarts would cause a reconciliation of every model and each of its services.
    """
    told = QueuedEvents()
    told.see("ClusterBaseModel", "k2", metadata={"namespace": ""}, spec=MODEL_SPEC)
    label = {"labels": {keys.MODEL_LABEL_PREFIX + "clusterbasemodel.k2": "Ready"}}
    told.see("Node", "n", metadata=label)
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    assert told.see("Node", "n", metadata=label, status=ready) == []


@pytest.mark.parametrize(("labels", "concerned"), [({"gpu": "h200"}, True), ({"gpu": "b200"}, False)])
def test_node_enqueues_the_accelerator_classes_that_count_it(labels: dict[str, str], concerned: bool) -> None:
    told = QueuedEvents()
    spec = {"vendor": "nvidia", "discovery": {"nodeSelector": {"gpu": "h200"}}, "capabilities": {"memoryGB": "141"}}
    told.see("AcceleratorClass", "h200", metadata={"namespace": ""}, spec=spec)
    accelerator = [(Ref("AcceleratorClass", "", "h200"), Urgency.SOON)] if concerned else []
    assert told.see("Node", "n", metadata={"labels": labels}) == accelerator
    assert told.see("Node", "n", metadata={"labels": labels | {"zone": "a"}}) == []
    gpus = {"allocatable": {"nvidia.com/gpu": "8"}}
    assert told.see("Node", "n", metadata={"labels": labels}, status=gpus) == accelerator
    told.dirty.clear()
    told.cluster.handle_deleted("Node", "uid-n")
    assert told.dirty == accelerator


def test_users_of_a_model_are_enqueued_once_until_one_is_reconciled(told: QueuedEvents) -> None:
    """Several events about a model enqueue its services once until the first of them is reconciled. Otherwise a list of
    5,000 nodes would enqueue each of 1,000 services 5,000 times.
    """
    label = {"labels": {keys.MODEL_LABEL_PREFIX + "clusterbasemodel.k2": "Ready"}}
    woken = [(MODEL, Urgency.SOON), (SERVICE, Urgency.SOON)]
    assert told.see("Node", "n1", metadata=label) == woken
    assert told.see("Node", "n2", metadata=label) == []
    assert told.cluster.cache.deps().holders.keys() == label["labels"].keys()
    assert told.see("Node", "n3", metadata=label) == woken
    told.dirty.clear()
    told.cluster.cache.deps()
    told.cluster.handle_deleted("Node", "uid-n1")
    assert told.dirty == woken


def test_cached_node_results_are_dropped_when_any_node_changes() -> None:
    """A result that depends on nodes is cached until any node changes."""
    told, needs = QueuedEvents(), (Need(("decode",), "decode", Demand(requests=(("nvidia.com/gpu", 8), ("pods", 1))), 3),)

    def see(name: str) -> None:
        amounts = {"nvidia.com/gpu": "8", "pods": "110"}
        told.see("Node", name, status={"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]})

    for name in ("a", "b"):
        see(name)
    first = told.cluster.cache.deps().nodes
    assert find_unplaced(needs, first) and told.cluster.cache.deps().nodes is first, "computed once for all services"
    see("c")
    assert find_unplaced(needs, told.cluster.cache.deps().nodes) == ()
    told.cluster.handle_deleted("Node", "uid-c")
    assert find_unplaced(needs, told.cluster.cache.deps().nodes) != ()
