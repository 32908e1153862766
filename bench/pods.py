"""Pods in the form in which an API server returns them: with the defaults, managed fields and statuses of a real pod."""

import json
from typing import Any

from bench.scenarios import Manifest

LAST = 3
"""Number of the last step of a pod's start. The steps are: created (0), bound to a node (1), running (2), ready (3)."""
AT = "2026-01-01T00:00:01Z"
CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
TRUE: dict[int, tuple[str, ...]] = {1: CONDITIONS[4:], 2: (*CONDITIONS[:2], CONDITIONS[4]), 3: CONDITIONS}
"""Number of a step -> conditions of the pod that are true after this step."""
TOKEN = {"name": "kube-api-access-x7k2p", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}
FIELD = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
SOURCES = [
    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": FIELD}]}},
]
DEFAULTS = {
    "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "priority": 0,
    "schedulerName": "default-scheduler", "enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority",
    "tolerations": [
        {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for what in ("not-ready", "unreachable")
    ],
}  # fmt: skip
CONTAINER = {
    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent",
}  # fmt: skip
UNREADY = {"reason": "ContainersNotReady", "message": "containers with unready status: [ome-container]"}


def fields_of(value: Any) -> Manifest:
    """Return the FieldsV1 set of an applied value, as the API server stores it: list items are identified by their keys."""
    if isinstance(value, dict):
        return {f"f:{name}": fields_of(below) for name, below in value.items()}
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        for names in (("containerPort",), ("mountPath",), ("port",), ("uid",), ("name",)):
            if all(name in item for item in value for name in names):
                return {
                    f"k:{json.dumps({name: item[name] for name in names}, separators=(',', ':'))}": {
                        ".": {},
                        **fields_of(item),
                    }
                    for item in value
                }
    return {}


def managed_fields_entry(manager: str, operation: str, fields: Manifest, subresource: str = "") -> Manifest:
    """Return an entry of managedFields."""
    entry = {"manager": manager, "operation": operation, "apiVersion": "v1", "time": AT, "fieldsType": "FieldsV1"}
    return entry | {"fieldsV1": fields} | ({"subresource": subresource} if subresource else {})


def pod_of(workload: Manifest, ordinal: int) -> Manifest:
    """Return a new pod as the controller creates it and the API server completes it."""
    owner, template = workload["metadata"], workload["spec"]["template"]
    kind, name = workload["kind"], owner["name"]
    labels = {"apps.kubernetes.io/pod-index": str(ordinal), "controller-revision-hash": f"{name}-5d4f8c7b9"}
    if kind == "Deployment":
        kind, name, labels = "ReplicaSet", f"{name}-5d4f8c7b9", {"pod-template-hash": "5d4f8c7b9"}
    volumes = [*template["spec"].get("volumes", ()), {"name": TOKEN["name"], "projected": {"sources": SOURCES}}]
    boxes = [
        CONTAINER | box | {"volumeMounts": [*box.get("volumeMounts", ()), TOKEN]} for box in template["spec"]["containers"]
    ]
    spec = template["spec"] | DEFAULTS | {"hostname": f"{name}-{ordinal}", "volumes": volumes, "containers": boxes}
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": owner["uid"], "controller": True}
    made = {
        "labels": template["metadata"]["labels"] | labels, "annotations": template["metadata"].get("annotations", {}),
        "ownerReferences": [reference | {"blockOwnerDeletion": True}],
    }  # fmt: skip
    entry = managed_fields_entry(
        "kube-controller-manager", "Update", {"f:metadata": fields_of(made), "f:spec": fields_of(spec)}
    )
    metadata = made | {
        "name": f"{name}-{ordinal}", "namespace": owner["namespace"], "uid": f"pod-of-{name}-{ordinal}", "generation": 1,
        "creationTimestamp": AT, "managedFields": [entry],
    }  # fmt: skip
    status = {"phase": "Pending", "qosClass": "Guaranteed"}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}


def at_stage(pod: Manifest, stage: int, version: int) -> Manifest:
    """Return the pod in the state after step `stage` (0 to LAST) of its start."""
    metadata = pod["metadata"] | {"resourceVersion": str(version)}
    if stage == 0:
        return pod | {"metadata": metadata}
    conditions = [
        {"type": each, "status": "True", "observedGeneration": 1, "lastProbeTime": None, "lastTransitionTime": AT}
        | ({} if each in TRUE[stage] else {"status": "False", **UNREADY})
        for each in (CONDITIONS if stage > 1 else TRUE[1])
    ]
    status: Manifest = {"phase": "Running" if stage > 1 else "Pending", "conditions": conditions, "qosClass": "Guaranteed"}
    if stage > 1:
        boxes = [_container_status(box, stage == LAST) for box in pod["spec"]["containers"]]
        status |= {
            "hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}], "podIP": "10.1.0.7", "podIPs": [{"ip": "10.1.0.7"}],
            "startTime": AT, "containerStatuses": boxes,
        }  # fmt: skip
    entry = managed_fields_entry("kubelet", "Update", {"f:status": fields_of(status)}, "status")
    metadata["managedFields"] = [pod["metadata"]["managedFields"][0], entry]
    return pod | {"metadata": metadata, "spec": pod["spec"] | {"nodeName": "node-1"}, "status": status}


def _container_status(box: Manifest, ready: bool) -> Manifest:
    image, state = box["image"], {"running": {"startedAt": AT}}
    return {
        "name": box["name"], "image": image, "imageID": f"{image}@sha256:{7:064x}", "containerID": f"containerd://{9:064x}",
        "restartCount": 0, "ready": ready, "started": ready, "lastState": {}, "state": state,
    }  # fmt: skip
