"""Tests of the facts about children and nodes, and of which other clients write a status."""

from datetime import UTC, datetime
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.core.observed import from_api
from ome_operator.core.rollout.applied import set_by_hand


def child(kind: str, **parts: Any) -> from_api.Child:
    metadata = {
        "name": "c",
        "namespace": "ns",
        "uid": "u",
        "resourceVersion": "9",
        "labels": {keys.SERVICE: "kimi"},
        "annotations": {keys.HASH: "h"},
        "ownerReferences": [{"uid": "other"}, {"uid": "owner", "controller": True}],
        **parts.pop("metadata", {}),
    }
    return from_api.child(kind, {"metadata": metadata, **parts})


def test_child_of_statefulset_has_identity_and_replicas() -> None:
    one = child("StatefulSet", spec={"replicas": 3})
    assert (one.kind, one.namespace, one.name, one.uid, one.version) == ("StatefulSet", "ns", "c", "u", 9)
    assert (one.owner, one.hash, one.owned, one.deleting, one.replicas) == ("owner", "h", "", False, 3)
    assert one.content is None


def test_equal_texts_of_several_objects_are_one_object() -> None:
    """Equal texts of several objects are one object in memory, because a fleet has tens of thousands of objects with the
    same namespace, service and labels.
    """
    one, other = (child("StatefulSet", metadata={"labels": {keys.SERVICE: "".join(("ki", "mi"))}}) for _ in range(2))
    assert one.labels[keys.SERVICE] is other.labels[keys.SERVICE]
    body = {"metadata": {"namespace": "".join(("n", "s")), "labels": {keys.SERVICE: "".join(("ki", "mi"))}}}
    pod = from_api.pod(body)
    assert pod.namespace is one.namespace and pod.service is one.labels[keys.SERVICE]


def test_content_of_a_child_is_kept_only_for_the_kinds_that_need_it() -> None:
    revision = child("ControllerRevision", revision=4, data={"a": 1})
    assert revision.content == {"revision": 4, "data": {"a": 1}}
    assert child("RoleScale", status={"replicas": 1}, spec={"replicas": 2}).content == {"replicas": 1}
    assert child("ConfigMap", data={"large": "x"}).content is None


def test_autoscaler_without_metrics_is_reported() -> None:
    def told(reason: str, status: str = "False") -> str:
        said = {"type": "ScalingActive", "status": status, "reason": reason, "message": "no metrics returned"}
        return child("HorizontalPodAutoscaler", status={"conditions": [said]}).message

    assert told("FailedGetResourceMetric") == "no metrics returned"
    assert told("ValidMetricFound", "True") == told("ScalingDisabled") == ""


def test_deployment_that_cannot_create_pods_is_reported() -> None:
    failing = {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]}
    assert child("Deployment", status=failing).message == "exceeded quota"
    assert child("Deployment", status={"conditions": [{"type": "Available", "status": "True"}]}).message == ""


def test_statefulset_template_is_known_after_controller_observed_generation() -> None:
    told = {"observedGeneration": 2, "updateRevision": "svc-5d4b8c9"}
    body = {"metadata": {"name": "svc", "generation": 2}, "spec": {}, "status": told}
    assert from_api.child("StatefulSet", body).template == "svc-5d4b8c9"
    assert from_api.child("StatefulSet", {**body, "metadata": {"name": "svc", "generation": 3}}).template == ""


def test_foreign_writers_of_a_status() -> None:
    def entry(manager: str, subresource: str, time: str = "2026-01-01T00:00:00Z") -> dict[str, str]:
        return {"manager": manager, "subresource": subresource, "time": time}

    entries = [
        entry(keys.MANAGER, "status"),
        entry("kubectl-edit", "status"),
        entry("manager", ""),
        entry("manager", "status"),
        entry("odd", "status", "yesterday"),
    ]
    found = from_api.status_writers({"metadata": {"managedFields": entries}})
    assert found == (("manager", datetime(2026, 1, 1, tzinfo=UTC)),)


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("$(POD_NAME).s-pods.team", ""),
        ("$(POD_NAME).s-pods.other", "other"),
        ("s-engine-r1-$(LWS_GROUP_INDEX)-0.s-pods.other", "other"),
        ("s-engine-r2-$(LWS_GROUP_INDEX)-0.s-pods.other", ""),
        ("lead.example.com", ""),
        (None, ""),
    ],
)
def test_the_namespace_of_the_leader_that_a_pod_contacts(address: str | None, found: str) -> None:
    """The namespace of the leader that a pod contacts is read from the leader's address, if the address has the operator's
    own form.
    """
    labels = {keys.SERVICE: "s", keys.REVISION: "r1", keys.COMPONENT: "engine"}
    env = [{"name": "A"}, {"name": "LWS_LEADER_ADDRESS", "value": address}]
    body = {"metadata": {"name": "p", "namespace": "team", "labels": labels}, "spec": {"containers": [{"env": env}]}}
    assert from_api.pod(body).contacts == found


@pytest.mark.parametrize(
    ("generation", "woken", "by_hand"),
    [(1, "", False), (2, "", True), (2, "2", False), (3, "2", True), (2, "9", True), (2, "soon", True), (1, "9", False)],
)
def test_a_number_of_a_role_scale_is_set_by_hand_unless_a_wake_wrote_it(generation: int, woken: str, by_hand: bool) -> None:
    """The number in a RoleScale counts as set by a user unless a wake wrote it. An annotation states the generation that a
    wake wrote; in a restored RoleScale it does not match, because it belonged to another object.
    """
    notes = {keys.WAKE_GENERATION: woken} if woken else {}
    body = {"metadata": {"name": "svc-decoder", "generation": generation, "annotations": notes}, "spec": {"replicas": 2}}
    assert set_by_hand(from_api.child("RoleScale", body)) is by_hand
