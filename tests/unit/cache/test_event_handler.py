"""Tests of the facts about the cluster, and of which services and models a change adds to the queue."""

from typing import Any

import pytest

from ome_operator import keys
from ome_operator.api import InferenceService, Invalid
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.event_handler import EventHandler, Urgency
from ome_operator.core.observed.objects import Child, Deps, Ref
from ome_operator.core.resolve.inputs import model_refs, runtime_refs
from ome_operator.core.selection.model_profile import profile_of
from tests.support.parts import change_deps

SERVICE = Ref("InferenceService", "ns", "kimi")
MODEL = Ref("ClusterBaseModel", "", "k2")
AWAITED, SHARED, SOON = Urgency.AWAITED, Urgency.SHARED, Urgency.SOON


class QueuedEvents:
    """An event handler, and the keys that it has added to the queue."""

    def __init__(self) -> None:
        self.dirty: list[tuple[Ref, Urgency]] = []
        self.cluster = EventHandler(ClusterCache(Deps()), lambda *told: self.dirty.append(told), model_refs, runtime_refs)
        self.versions = 0

    def see(self, kind: str, name: str, **parts: Any) -> list[tuple[Ref, Urgency]]:
        """Pass a watch event with this body, and return the keys of objects that it adds to the queue."""
        self.versions += 1
        self.dirty.clear()
        self.cluster.handle_observed(kind, body(name, self.versions, **parts))
        return list(self.dirty)


def body(name: str, version: int, **parts: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": str(version), "generation": 1}
    return {"metadata": {**metadata, **parts.pop("metadata", {})}, **parts}


def child_labels() -> dict[str, Any]:
    return {"labels": {keys.SERVICE: "kimi", keys.MANAGED_BY: keys.MANAGER}}


@pytest.fixture
def told() -> QueuedEvents:
    made = QueuedEvents()
    made.see("ClusterBaseModel", "k2", metadata={"namespace": ""}, spec=MODEL_SPEC)
    made.see("InferenceService", "kimi", spec=SPEC)
    return made


MODEL_SPEC = {"modelFormat": {"name": "safetensors"}, "storage": {"storageUri": "hf://a/b"}}
SPEC = {"model": {"name": "k2", "kind": "ClusterBaseModel"}, "runtime": {"name": "rt"}, "engine": {}}


def test_edit_of_a_service_enqueues_it_and_its_referenced_objects(told: QueuedEvents) -> None:
    assert (SERVICE, AWAITED) in told.see("InferenceService", "kimi", spec={"engine": {}}, metadata={"generation": 2})
    assert (MODEL, SOON) in told.dirty, "the model has one user fewer"
    assert told.cluster.users(MODEL) == ()


def test_edit_of_a_model_concerns_exactly_its_users(told: QueuedEvents) -> None:
    told.see("InferenceService", "other", spec={"engine": {}})
    edited = told.see("ClusterBaseModel", "k2", metadata={"namespace": "", "generation": 2}, spec=MODEL_SPEC)
    assert edited == [(MODEL, AWAITED), (MODEL, SHARED)]
    assert told.cluster.services_concerned_by(MODEL) == (SERVICE,)
    assert told.see("ClusterBaseModel", "k2", metadata={"namespace": "", "generation": 2}, spec=MODEL_SPEC) == []


def test_service_without_runtime_is_concerned_by_every_runtime(told: QueuedEvents) -> None:
    told.see("InferenceService", "any", spec={"engine": {}})
    new = Ref("ClusterServingRuntime", "", "new")
    assert told.see("ClusterServingRuntime", "new", metadata={"namespace": ""}, spec={}) == [(new, AWAITED), (new, SHARED)]
    assert told.cluster.services_concerned_by(new) == (Ref("InferenceService", "ns", "any"),)


@pytest.mark.parametrize("kind", ["ServiceAccount", "Pod"])
def test_relabelled_object_enqueues_the_old_and_the_new_service(told: QueuedEvents, kind: str) -> None:
    other = Ref("InferenceService", "ns", "other")
    told.see(kind, "w", metadata=child_labels())
    assert told.see(kind, "w", metadata={"labels": {keys.SERVICE: "other"}}) == [(other, SOON), (SERVICE, SOON)]


def test_child_enqueues_its_service_only_when_its_facts_change(told: QueuedEvents) -> None:
    assert told.see("StatefulSet", "w", metadata=child_labels(), spec={"replicas": 1}) == [(SERVICE, SOON)]
    assert told.see("StatefulSet", "w", metadata=child_labels(), spec={"replicas": 1}, status={"replicas": 1}) == []
    assert told.see("StatefulSet", "w", metadata=child_labels(), spec={"replicas": 2}) == [(SERVICE, SOON)]
    assert told.cluster.cache.children_of("ns", "kimi")["StatefulSet", "w"].replicas == 2
    told.dirty.clear()
    told.cluster.handle_deleted("StatefulSet", "uid-w")
    assert told.dirty == [(SERVICE, SOON)]
    assert told.cluster.cache.children_of("ns", "kimi") == {}


def test_status_change_of_an_autoscaler_enqueues_nothing(told: QueuedEvents) -> None:
    kind = "HorizontalPodAutoscaler"
    assert told.see(kind, "h", metadata=child_labels(), status={"currentReplicas": 1}) == [(SERVICE, SOON)]
    for number in range(3):
        assert told.see(kind, "h", metadata=child_labels(), status={"currentReplicas": number}) == []


def test_node_event_enqueues_exactly_the_services_that_wait_for_nodes(told: QueuedEvents) -> None:
    """An event of a node enqueues exactly the services that wait for nodes, whichever field of the node changes. A heartbeat
    enqueues none.
    """
    ready = {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "1"}], "allocatable": {"cpu": "8"}}
    told.see("InferenceService", "other", spec={"engine": {}})
    told.cluster.waits_for_nodes(SERVICE, True)
    assert told.see("Node", "n", status=ready) == [(SERVICE, SOON)]
    beats = {**ready, "conditions": [{**ready["conditions"][0], "lastHeartbeatTime": "2"}]}  # type: ignore[dict-item]
    assert told.see("Node", "n", status=beats) == []
    assert told.see("Node", "n", status=ready, metadata={"labels": {"gpu": "H100"}}) == [(SERVICE, SOON)]
    taints = [{"key": "a", "effect": "NoSchedule"}]
    assert told.see("Node", "n", status=ready, spec={"taints": taints}) == [(SERVICE, SOON)]
    assert told.see("Node", "n", status={**ready, "allocatable": {"cpu": "9"}}) == [(SERVICE, SOON)]
    told.dirty.clear()
    told.cluster.handle_deleted("Node", "uid-n")
    assert told.dirty == [(SERVICE, SOON)]
    told.cluster.waits_for_nodes(SERVICE, False)
    assert told.see("Node", "m", status=ready) == []


def test_node_event_enqueues_models_only_if_its_holdings_change(told: QueuedEvents) -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    label = {keys.MODEL_LABEL_PREFIX + "clusterbasemodel.k2": "Ready"}
    assert told.see("Node", "n", status=ready) == []
    assert told.see("Node", "n", status=ready, metadata={"labels": label}) == [(MODEL, SOON), (SERVICE, SOON)]
    assert told.cluster.cache.deps().holders == {"models.ome.io/clusterbasemodel.k2": frozenset({"n"})}
    assert told.see("Node", "n", status={**ready, "images": []}, metadata={"labels": label}) == []
    same = told.cluster.cache.deps()
    told.see("Node", "n", status={**ready, "images": []}, metadata={"labels": label})
    assert told.cluster.cache.deps() is same


def test_own_status_write_enqueues_nothing_and_updates_the_cache(told: QueuedEvents) -> None:
    answer = body("kimi", 50, spec=SPEC, status={"url": "x"})
    told.dirty.clear()
    told.cluster.handle_written("InferenceService", answer)
    kept = told.cluster.cache.find_resource(SERVICE)
    assert kept is not None
    assert isinstance(kept.parsed, InferenceService)
    assert kept.parsed.status == {"url": "x"}
    told.cluster.handle_observed("InferenceService", answer)
    assert told.dirty == []


def test_edit_before_own_status_write_is_found_in_the_response(told: QueuedEvents) -> None:
    """A user edits a service just before the operator writes its status. The event of the edit arrives after the response to
    this write and is older, so the handler ignores it. The handler must find the edit in the response.
    """
    edited = {"generation": 2}
    told.dirty.clear()
    told.cluster.handle_written("InferenceService", body("kimi", 50, spec=SPEC, status={"url": "x"}, metadata=edited))
    assert told.dirty == [(SERVICE, AWAITED)]
    told.cluster.handle_observed("InferenceService", body("kimi", 49, spec=SPEC, metadata=edited))
    assert told.dirty == [(SERVICE, AWAITED)]


def test_chosen_runtime_counts_as_used_immediately(told: QueuedEvents) -> None:
    """A runtime that the operator has chosen counts at once as used by the service. The choice is in the status that the
    operator has written itself, and no event reports that status.
    """
    first, second = (Ref("ClusterServingRuntime", "", name) for name in ("first", "second"))
    told.see("InferenceService", "any", spec={"engine": {}})
    told.dirty.clear()
    told.cluster.handle_written("InferenceService", body("any", 50, spec={"engine": {}}, status={"runtime": "first"}))
    assert [ref.name for ref in told.cluster.users(first)] == ["any"] and (first, SOON) in told.dirty
    told.cluster.handle_written("InferenceService", body("any", 51, spec={"engine": {}}, status={"runtime": "second"}))
    assert (told.cluster.users(first), len(told.cluster.users(second))) == ((), 1)


def test_facts_of_changed_model_weights_count_as_new(told: QueuedEvents) -> None:
    """If a model has new weights, its facts count as new even if they are equal, because the previous ones were facts of the
    previous weights.
    """
    spec = {"modelFormat": {"name": "safetensors"}, "storage": {"storageUri": "oci://mirror/a"}}

    def learned(version: int, uri: str) -> dict[str, Any]:
        status = {"weights": {"uri": uri}, "facts": {"architecture": "LlamaForCausalLM"}}
        metadata = {"namespace": "", "generation": 2}
        return body("k2", version, spec=spec, status=status, metadata=metadata)

    told.cluster.handle_observed("ClusterBaseModel", learned(60, "hf://a/b"))
    assert profile_of(told.cluster.cache.deps().models[MODEL]).architecture != "LlamaForCausalLM"
    told.dirty.clear()
    told.cluster.handle_written("ClusterBaseModel", learned(61, "oci://mirror/a"))
    assert profile_of(told.cluster.cache.deps().models[MODEL]).architecture == "LlamaForCausalLM"
    assert (MODEL, SHARED) in told.dirty


def test_delayed_deleted_event_after_relabelling_keeps_the_object(told: QueuedEvents) -> None:
    """A user removes the operator's label from an object, and the operator adds it again. The watch by label then reports
    DELETED for the version without the label. This version is older than the response to the operator's write, so the object
    is kept.
    """
    told.see("ServiceAccount", "w", metadata=child_labels())
    told.cluster.handle_written("ServiceAccount", body("w", 59, metadata=child_labels()))
    told.cluster.handle_deleted("ServiceAccount", "uid-w", 57)
    assert told.cluster.cache.uids("ServiceAccount") == {"uid-w"}
    told.cluster.handle_deleted("ServiceAccount", "uid-w", 60)
    assert told.cluster.cache.uids("ServiceAccount") == set()


def test_late_response_does_not_hide_a_later_change(told: QueuedEvents) -> None:
    def labelled(version: int, team: str, ours: bool) -> dict[str, Any]:
        fields = {"f:metadata": {"f:labels": {f"f:{keys.SERVICE}": {}, **({"f:team": {}} if ours else {})}}}
        metadata = {"labels": {**child_labels()["labels"], "team": team}}
        entry = {"manager": keys.MANAGER, "operation": "Apply", "fieldsV1": fields}
        return body("w", version, metadata={**metadata, "managedFields": [entry]}, spec={"replicas": 1})

    told.cluster.handle_observed("StatefulSet", labelled(60, "a", True))
    right = told.cluster.cache.children_of("ns", "kimi")["StatefulSet", "w"].owned
    told.cluster.handle_observed("StatefulSet", labelled(62, "x", False))
    told.cluster.handle_written("StatefulSet", labelled(61, "a", True))
    repaired = told.cluster.handle_written("StatefulSet", labelled(63, "a", True))
    assert isinstance(repaired, Child) and repaired.owned == right


def test_node_observed_after_its_record_enqueues_the_record(told: QueuedEvents) -> None:
    told.see("NodeModels", "n", metadata={"namespace": ""})
    record, ready = Ref("NodeModels", "", "n"), {"conditions": [{"type": "Ready", "status": "True"}]}
    assert told.see("Node", "n", status=ready) == [(record, SOON)]
    assert told.see("Node", "n", status=ready, metadata={"labels": {"zone": "a"}}) == [(record, SOON)]


@pytest.mark.parametrize("status", ["Unknown", None])
def test_created_or_deleted_node_enqueues_services_of_its_pods(told: QueuedEvents, status: str | None) -> None:
    told.see("Node", "n", status={"conditions": [{"type": "Ready", "status": "True"}]})
    labels = child_labels()["labels"] | {keys.COMPONENT: "engine", keys.REVISION: "r1"}
    told.see("Pod", "kimi-engine-r1-0-0", metadata={"labels": labels}, spec={"nodeName": "n"})
    told.dirty.clear()
    if status is None:
        told.cluster.handle_deleted("Node", "uid-n")
    else:
        told.see("Node", "n", status={"conditions": [{"type": "Ready", "status": status}]})
    assert told.dirty == [(SERVICE, SOON)]


def test_model_label_on_a_cordoned_node_enqueues_the_model_and_its_users(told: QueuedEvents) -> None:
    cordoned = {"spec": {"unschedulable": True}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    label = {keys.MODEL_LABEL_PREFIX + "clusterbasemodel.k2": "Ready"}
    told.see("Node", "n", **cordoned)
    assert told.see("Node", "n", metadata={"labels": label}, **cordoned) == [(MODEL, SOON), (SERVICE, SOON)]


def test_response_older_than_the_observed_object_is_ignored(told: QueuedEvents) -> None:
    told.cluster.handle_observed("InferenceService", body("kimi", 60, spec={"engine": {}}, metadata={"generation": 2}))
    told.dirty.clear()
    told.cluster.handle_written("InferenceService", body("kimi", 50, spec=SPEC, status={"url": "x"}))
    assert told.dirty == [] and told.cluster.users(MODEL) == ()


def test_invalid_spec_is_cached_as_invalid(told: QueuedEvents) -> None:
    told.see("InferenceService", "bad", spec={"engine": {"minReplicas": "two"}})
    kept = told.cluster.cache.find_resource(Ref("InferenceService", "ns", "bad"))
    assert kept is not None
    assert "minReplicas" in kept.parsed.why


def test_recreated_object_replaces_the_former_one(told: QueuedEvents) -> None:
    told.see("InferenceService", "kimi", metadata={"uid": "second"}, spec=SPEC)
    kept = told.cluster.cache.find_resource(SERVICE)
    assert kept is not None
    assert kept.uid == "second"
    told.cluster.handle_deleted("InferenceService", "uid-kimi")
    assert told.cluster.users(MODEL) == (SERVICE,), "the deletion of the old object removes nothing of the new one"


def test_own_status_write_of_a_model_enqueues_its_sglang_model() -> None:
    dirty: list[tuple[Ref, Urgency]] = []
    cluster = EventHandler(ClusterCache(Deps()), lambda *told: dirty.append(told), model_refs, runtime_refs)
    metadata = {"name": "chat", "uid": "short", "resourceVersion": "5"}
    cluster.handle_observed("SglangModel", {"metadata": metadata, "spec": {"source": {"huggingface": {"repo": "a/b"}}}})
    body = {"metadata": {**metadata, "uid": "model"}, "spec": {"storage": {"storageUri": "hf://a/b"}}}
    cluster.handle_observed("ClusterBaseModel", body)
    dirty.clear()
    body["metadata"]["resourceVersion"] = "7"
    cluster.handle_written("ClusterBaseModel", {**body, "status": {"state": "Ready"}})
    assert dirty == [(Ref("SglangModel", "", "chat"), SOON)]


def test_record_enqueues_its_node_and_the_models_it_names(told: QueuedEvents) -> None:
    entry = {"kind": "ClusterBaseModel", "name": "k2", "uri": "hf://a/b", "state": "Updating", "bytes": 1}
    node = Ref("NodeModels", "", "n")
    here = {"namespace": ""}
    assert told.see("NodeModels", "n", metadata=here, status={"models": [entry]}) == [(node, SOON), (MODEL, SOON)]
    assert told.cluster.cache.holdings(MODEL)["n"].bytes == 1
    assert told.see("NodeModels", "n", metadata=here, status={"models": [entry]}) == []
    assert told.see("NodeModels", "n", metadata=here) == [(node, SOON), (MODEL, SOON)], "it is no longer there"
    assert told.cluster.cache.holdings(MODEL) == {}


def test_label_of_a_revision_enqueues_its_model(told: QueuedEvents) -> None:
    label = {keys.MODEL_LABEL_PREFIX + "clusterbasemodel.k2.0123abcd": "Ready"}
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    assert told.see("Node", "n", status=ready, metadata={"labels": label}) == [(MODEL, SOON), (SERVICE, SOON)]


def test_readiness_of_the_last_pod_is_enqueued_urgently(told: QueuedEvents) -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    told.see("Pod", "a", metadata=child_labels())
    told.see("Pod", "b", metadata=child_labels())
    assert told.see("Pod", "a", metadata=child_labels(), status=ready) == [(SERVICE, SOON)]
    assert told.see("Pod", "b", metadata=child_labels(), status=ready) == [(SERVICE, AWAITED)]
    assert told.see("Pod", "b", metadata=child_labels()) == [(SERVICE, SOON)]


def test_models_above_the_namespace_limit_are_not_counted() -> None:
    """Only the oldest models of a namespace count, up to the limit. A model that starts or ceases to count is reconciled,
    and so are the services that use it.
    """
    dirty: list[tuple[Ref, Urgency]] = []
    settled = change_deps(Deps(), models_per_namespace=2)
    cluster = EventHandler(ClusterCache(settled), lambda *told: dirty.append(told), model_refs, runtime_refs)

    def see(name: str, day: int) -> dict[str, Any]:
        one = body(name, day, metadata={"creationTimestamp": f"2026-01-0{day}T00:00:00Z"}, spec=MODEL_SPEC)
        dirty.clear()
        cluster.handle_observed("BaseModel", one)
        return one

    def beyond() -> set[str]:
        return {ref.name for ref, one in cluster.cache.deps().models.items() if isinstance(one, Invalid)}

    user, third = Ref("InferenceService", "ns", "user"), Ref("BaseModel", "ns", "third")
    cluster.handle_observed(
        "InferenceService", body("user", 1, spec={**SPEC, "model": {"name": "third", "kind": "BaseModel"}})
    )
    for day in range(1, 6):
        cluster.handle_observed("ClusterBaseModel", body(f"wide{day}", 1, metadata={"namespace": ""}, spec=MODEL_SPEC))
    see("third", 3)
    second = see("second", 2)
    assert beyond() == set()
    first = see("first", 1)
    assert beyond() == {"third"}
    assert {(third, AWAITED), (third, SHARED)} <= set(dirty)
    assert cluster.services_concerned_by(third) == (user,)
    said = cluster.cache.deps().models[third]
    assert isinstance(said, Invalid) and "the namespace ns has more than 2 BaseModels" in said.why
    see("fourth", 4)
    assert beyond() == {"third", "fourth"}
    cluster.handle_deleted("BaseModel", first["metadata"]["uid"])
    assert beyond() == {"fourth"}
    assert (third, SHARED) in dirty
    dirty.clear()
    cluster.handle_observed("BaseModel", second)
    assert not dirty
