"""Pods as the controllers of Kubernetes would create them from our workloads, for a dry run.

An admission policy, Pod Security or a LimitRange applies to pods and accepts the workload that creates them. Only the
creation of a pod in a dry run shows whether the pod would be refused.

The owner reference of such a pod does not set `blockOwnerDeletion`. Otherwise the admission plugin
OwnerReferencesPermissionEnforcement would require a right on the owner, which only the controllers need.
"""

from typing import Any

from ome_operator import keys
from ome_operator.core.observed.objects import Manifest

POD_NAME = "statefulset.kubernetes.io/pod-name"
TEMPLATE_HASH = "pod-template-hash"
UNKNOWN = "00000000-0000-4000-8000-000000000000"
"""UID that is used for a workload which does not exist yet."""
_HASH = "5c8d9f7b6d"
"""A hash of the length that a Deployment gives to its ReplicaSets."""
_ACCESS = "kube-api-access-"
"""Prefix of the volume that admission adds to a pod for the token of its ServiceAccount."""
_ASSIGNED = ("nodeName", "priority", "preemptionPolicy", "ephemeralContainers", "hostname")
"""Fields of a stored pod's spec that admission, the scheduler or a user has set after the pod was requested."""


def of_stateful_set(manifest: Manifest, ordinal: int) -> Manifest:
    """Return the pod with this ordinal that a StatefulSet would create."""
    spec, name = manifest["spec"], f"{manifest['metadata']['name']}-{ordinal}"
    inner = spec["template"]
    metadata = {
        **inner["metadata"],
        "name": name,
        "labels": {**(inner["metadata"].get("labels") or {}), POD_NAME: name, keys.POD_INDEX: str(ordinal)},
    }
    return _pod(manifest, "StatefulSet", metadata, {**inner["spec"], "hostname": name, "subdomain": spec["serviceName"]})


def of_deployment(manifest: Manifest) -> Manifest:
    """Return a pod that the ReplicaSet of a Deployment would create."""
    inner, name = manifest["spec"]["template"], f"{manifest['metadata']['name']}-{_HASH}"
    labels = {**(inner["metadata"].get("labels") or {}), TEMPLATE_HASH: _HASH}
    metadata = {**inner["metadata"], "generateName": f"{name}-", "labels": labels}
    replica_set = {"metadata": {**manifest["metadata"], "name": name}}
    return _pod(replica_set, "ReplicaSet", metadata, inner["spec"])


def of_pod(live: Manifest) -> Manifest:
    """Return a stored pod as it was requested: without its state, and without what admission and the scheduler set."""
    metadata, spec = live["metadata"], live["spec"]
    token = {volume["name"] for volume in spec.get("volumes") or () if volume["name"].startswith(_ACCESS)}
    kept = {name: value for name, value in spec.items() if name not in _ASSIGNED}
    kept["volumes"] = [volume for volume in spec.get("volumes") or () if volume["name"] not in token]
    for part in ("containers", "initContainers"):
        if part in kept:
            kept[part] = [_without_mounts(container, token) for container in kept[part]]
    owners = [{**owner, "blockOwnerDeletion": False} for owner in metadata.get("ownerReferences") or ()]
    named = {name: metadata[name] for name in ("namespace", "labels", "annotations") if metadata.get(name)}
    prefix = metadata.get("generateName") or f"{metadata['name']}-"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**named, "generateName": prefix, "ownerReferences": owners},
        "spec": kept,
    }


def _without_mounts(container: Manifest, volumes: set[str]) -> Manifest:
    mounts = [mount for mount in container.get("volumeMounts") or () if mount["name"] not in volumes]
    return {**container, "volumeMounts": mounts}


def _pod(owner: Manifest, kind: str, metadata: dict[str, Any], spec: Manifest) -> Manifest:
    reference = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": UNKNOWN,
        "controller": True,
    }
    place = {"namespace": owner["metadata"]["namespace"], "ownerReferences": [reference]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, **place}, "spec": spec}
