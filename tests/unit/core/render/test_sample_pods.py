"""Tests that the pods of dry runs are those that the controllers of Kubernetes would create."""

from typing import Any

from ome_operator.core.render.sample_pods import of_deployment, of_pod, of_stateful_set

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
    "spec": {"containers": [{"name": "engine", "image": "i"}]},
}


def workload(kind: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "w", "namespace": "ns", "uid": "u"}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {"template": TEMPLATE, **spec}}


def owner(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod["metadata"]["ownerReferences"]
    return dict(found)


def test_statefulset_pod_gets_name_hostname_and_index() -> None:
    pod = of_stateful_set(workload("StatefulSet", serviceName="pods"), 1)
    assert (pod["metadata"]["name"], pod["metadata"]["namespace"]) == ("w-1", "ns")
    assert pod["metadata"]["labels"] == {
        "a": "b", "statefulset.kubernetes.io/pod-name": "w-1", "apps.kubernetes.io/pod-index": "1"
    }  # fmt: skip
    assert pod["metadata"]["annotations"] == {"c": "d"}
    assert pod["spec"] == {**TEMPLATE["spec"], "hostname": "w-1", "subdomain": "pods"}
    assert (owner(pod)["kind"], owner(pod)["name"], owner(pod)["controller"]) == ("StatefulSet", "w", True)
    assert "blockOwnerDeletion" not in owner(pod), "an owner would require a right on the StatefulSet"


def test_deployment_pod_uses_generate_name() -> None:
    pod = of_deployment(workload("Deployment"))
    assert "name" not in pod["metadata"] and pod["metadata"]["generateName"].startswith("w-")
    assert pod["metadata"]["labels"].keys() == {"a", "pod-template-hash"}
    assert owner(pod)["kind"] == "ReplicaSet" and f"{owner(pod)['name']}-" == pod["metadata"]["generateName"]
    assert pod["spec"] == TEMPLATE["spec"]


def test_stored_pod_is_converted_to_a_request_without_server_fields() -> None:
    mounts = [{"name": "weights", "mountPath": "/w"}, {"name": "kube-api-access-x", "mountPath": "/t"}]
    live = {
        "metadata": {
            "name": "w-x-y", "generateName": "w-x-", "namespace": "ns", "uid": "u", "resourceVersion": "7",
            "labels": {"a": "b"}, "ownerReferences": [{"kind": "ReplicaSet", "uid": "o", "blockOwnerDeletion": True}],
        },
        "spec": {
            "containers": [{"name": "router", "image": "i", "volumeMounts": mounts}],
            "volumes": [{"name": "weights", "emptyDir": {}}, {"name": "kube-api-access-x", "projected": {}}],
            "nodeName": "n", "priority": 7, "preemptionPolicy": "Never", "serviceAccountName": "s",
        },
        "status": {"phase": "Running"},
    }  # fmt: skip
    assert of_pod(live) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "ns", "generateName": "w-x-", "labels": {"a": "b"},
            "ownerReferences": [{"kind": "ReplicaSet", "uid": "o", "blockOwnerDeletion": False}],
        },
        "spec": {
            "containers": [{"name": "router", "image": "i", "volumeMounts": mounts[:1]}],
            "volumes": [{"name": "weights", "emptyDir": {}}],
            "serviceAccountName": "s",
        },
    }  # fmt: skip
