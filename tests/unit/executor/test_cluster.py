"""Facts of the cluster, and which keys a change makes dirty."""

from typing import Any

import pytest

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.cluster import Cluster
from ome_operator.facts import Ref
from ome_operator.resolve.inputs import model_refs, runtime_refs

SERVICE = Ref("InferenceService", "ns", "kimi")
MODEL = Ref("ClusterBaseModel", "", "k2")


class Told:
    """A cluster and what it has enqueued."""

    def __init__(self) -> None:
        self.dirty: list[tuple[Ref, bool]] = []
        self.cluster = Cluster(lambda ref, edit: self.dirty.append((ref, edit)), model_refs, runtime_refs)
        self.versions = 0

    def see(self, kind: str, name: str, **parts: Any) -> list[tuple[Ref, bool]]:
        """What seeing a body makes dirty."""
        self.versions += 1
        self.dirty.clear()
        self.cluster.seen(kind, body(name, self.versions, **parts))
        return list(self.dirty)


def body(name: str, version: int, **parts: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": str(version), "generation": 1}
    return {"metadata": {**metadata, **parts.pop("metadata", {})}, **parts}


def child_labels() -> dict[str, Any]:
    return {"labels": {keys.SERVICE: "kimi", keys.MANAGED_BY: keys.MANAGER}}


@pytest.fixture
def told() -> Told:
    made = Told()
    made.see("ClusterBaseModel", "k2", metadata={"namespace": ""}, spec=MODEL_SPEC)
    made.see("InferenceService", "kimi", spec=SPEC)
    return made


MODEL_SPEC = {"modelFormat": {"name": "safetensors"}, "storage": {"storageUri": "hf://a/b"}}
SPEC = {"model": {"name": "k2", "kind": "ClusterBaseModel"}, "runtime": {"name": "rt"}, "engine": {}}


def test_an_edit_of_a_service_is_its_own_key_and_those_of_what_it_names(told: Told) -> None:
    assert (SERVICE, True) in told.see("InferenceService", "kimi", spec={"engine": {}}, metadata={"generation": 2})
    assert (MODEL, False) in told.dirty, "one user less"
    assert told.cluster.users(MODEL) == ()


def test_an_edit_of_a_model_concerns_exactly_its_users(told: Told) -> None:
    told.see("InferenceService", "other", spec={"engine": {}})
    edited = told.see("ClusterBaseModel", "k2", metadata={"namespace": "", "generation": 2}, spec=MODEL_SPEC)
    assert edited == [(MODEL, True), (SERVICE, True)]
    assert told.see("ClusterBaseModel", "k2", metadata={"namespace": "", "generation": 2}, spec=MODEL_SPEC) == []


def test_a_service_without_a_runtime_looks_at_every_runtime(told: Told) -> None:
    told.see("InferenceService", "any", spec={"engine": {}})
    dirty = [ref for ref, _ in told.see("ClusterServingRuntime", "new", metadata={"namespace": ""}, spec={})]
    assert dirty == [Ref("ClusterServingRuntime", "", "new"), Ref("InferenceService", "ns", "any")]


@pytest.mark.parametrize("kind", ["ServiceAccount", "Pod"])
def test_what_is_labelled_for_another_service_concerns_the_one_that_lost_it(told: Told, kind: str) -> None:
    other = Ref("InferenceService", "ns", "other")
    told.see(kind, "w", metadata=child_labels())
    assert told.see(kind, "w", metadata={"labels": {keys.SERVICE: "other"}}) == [(other, False), (SERVICE, False)]


def test_a_child_concerns_its_service_when_its_facts_change(told: Told) -> None:
    assert told.see("StatefulSet", "w", metadata=child_labels(), spec={"replicas": 1}) == [(SERVICE, False)]
    assert told.see("StatefulSet", "w", metadata=child_labels(), spec={"replicas": 1}, status={"replicas": 1}) == []
    assert told.see("StatefulSet", "w", metadata=child_labels(), spec={"replicas": 2}) == [(SERVICE, False)]
    assert told.cluster.children_of("ns", "kimi")["StatefulSet", "w"].replicas == 2
    told.dirty.clear()
    told.cluster.gone("StatefulSet", "uid-w")
    assert told.dirty == [(SERVICE, False)]
    assert told.cluster.children_of("ns", "kimi") == {}


def test_a_hpa_whose_status_moves_is_no_news(told: Told) -> None:
    kind = "HorizontalPodAutoscaler"
    assert told.see(kind, "h", metadata=child_labels(), status={"currentReplicas": 1}) == [(SERVICE, False)]
    for number in range(3):
        assert told.see(kind, "h", metadata=child_labels(), status={"currentReplicas": number}) == []


def test_a_node_concerns_models_only_when_what_it_holds_changes(told: Told) -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    label = {keys.MODEL_LABEL_PREFIX + "clusterbasemodel.k2": "Ready"}
    assert told.see("Node", "n", status=ready) == []
    assert told.see("Node", "n", status=ready, metadata={"labels": label}) == [(MODEL, False), (SERVICE, False)]
    assert told.cluster.deps().holders == {"models.ome.io/clusterbasemodel.k2": frozenset({"n"})}
    assert told.see("Node", "n", status={**ready, "images": []}, metadata={"labels": label}) == []
    same = told.cluster.deps()
    told.see("Node", "n", status={**ready, "images": []}, metadata={"labels": label})
    assert told.cluster.deps() is same


def test_our_own_status_write_is_no_news_and_is_read_at_once(told: Told) -> None:
    answer = body("kimi", 50, spec=SPEC, status={"url": "x"})
    told.dirty.clear()
    told.cluster.wrote("InferenceService", answer)
    kept = told.cluster.find(SERVICE)
    assert kept is not None
    assert isinstance(kept.parsed, InferenceService)
    assert kept.parsed.status == {"url": "x"}
    told.cluster.seen("InferenceService", answer)
    assert told.dirty == []


def test_an_edit_just_before_our_status_write_is_looked_at(told: Told) -> None:
    """Its own event comes after our answer, is older, and tells nothing any more."""
    edited = {"generation": 2}
    told.dirty.clear()
    told.cluster.wrote("InferenceService", body("kimi", 50, spec=SPEC, status={"url": "x"}, metadata=edited))
    assert told.dirty == [(SERVICE, True)]
    told.cluster.seen("InferenceService", body("kimi", 49, spec=SPEC, metadata=edited))
    assert told.dirty == [(SERVICE, True)]


def test_an_answer_that_is_older_than_what_was_seen_is_no_edit(told: Told) -> None:
    told.cluster.seen("InferenceService", body("kimi", 60, spec={"engine": {}}, metadata={"generation": 2}))
    told.dirty.clear()
    told.cluster.wrote("InferenceService", body("kimi", 50, spec=SPEC, status={"url": "x"}))
    assert told.dirty == [] and told.cluster.users(MODEL) == ()


def test_an_invalid_spec_is_kept_as_such(told: Told) -> None:
    told.see("InferenceService", "bad", spec={"engine": {"minReplicas": "two"}})
    kept = told.cluster.find(Ref("InferenceService", "ns", "bad"))
    assert kept is not None
    assert "minReplicas" in kept.parsed.why


def test_a_name_that_was_used_before_means_the_newest_object(told: Told) -> None:
    told.see("InferenceService", "kimi", metadata={"uid": "second"}, spec=SPEC)
    kept = told.cluster.find(SERVICE)
    assert kept is not None
    assert kept.uid == "second"
    told.cluster.gone("InferenceService", "uid-kimi")
    assert told.cluster.users(MODEL) == (SERVICE,), "the old incarnation takes nothing of the new one along"


def test_our_own_status_of_a_model_reaches_its_short_form() -> None:
    dirty: list[tuple[Ref, bool]] = []
    cluster = Cluster(lambda ref, edit: dirty.append((ref, edit)), model_refs, runtime_refs)
    metadata = {"name": "chat", "uid": "short", "resourceVersion": "5"}
    cluster.seen("ShortModel", {"metadata": metadata, "spec": {"source": {"huggingface": {"repo": "a/b"}}}})
    dirty.clear()
    body = {"metadata": {**metadata, "uid": "model", "resourceVersion": "7"}, "status": {"state": "Ready"}}
    cluster.wrote("ClusterBaseModel", {**body, "spec": {"storage": {"storageUri": "hf://a/b"}}})
    assert dirty == [(Ref("ShortModel", "", "chat"), False)]


def test_a_record_concerns_its_node_and_the_models_that_it_names(told: Told) -> None:
    entry = {"kind": "ClusterBaseModel", "name": "k2", "uri": "hf://a/b", "state": "Updating", "bytes": 1}
    node = Ref("NodeModels", "", "n")
    here = {"namespace": ""}
    assert told.see("NodeModels", "n", metadata=here, status={"models": [entry]}) == [(node, False), (MODEL, False)]
    assert told.cluster.holdings(MODEL)["n"].bytes == 1
    assert told.see("NodeModels", "n", metadata=here, status={"models": [entry]}) == []
    assert told.see("NodeModels", "n", metadata=here) == [(node, False), (MODEL, False)], "it is gone from there"
    assert told.cluster.holdings(MODEL) == {}


def test_a_label_of_one_revision_concerns_its_model(told: Told) -> None:
    label = {keys.MODEL_LABEL_PREFIX + "clusterbasemodel.k2.0123abcd": "Ready"}
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    assert told.see("Node", "n", status=ready, metadata={"labels": label}) == [(MODEL, False), (SERVICE, False)]
