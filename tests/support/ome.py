"""Simulates what OME v0.1.5 leaves in a cluster: its CRDs, webhooks, finalizers and children, written with OME's field
manager.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ome_local.cluster import Cluster
from ome_operator.kube.resources import path

Manifest = dict[str, Any]
KINDS = {
    "InferenceService": ("inferenceservices", "Namespaced"),
    "ClusterBaseModel": ("clusterbasemodels", "Cluster"),
    "ClusterServingRuntime": ("clusterservingruntimes", "Cluster"),
    "AcceleratorClass": ("acceleratorclasses", "Cluster"),
    "TrainingJob": ("trainingjobs", "Namespaced"),
    "LeaderWorkerSet": ("leaderworkersets", "Namespaced"),
}
AGO = "2026-01-01T00:00:00Z"
WEBHOOK = {
    "service": {"name": "ome-webhook-server-service", "namespace": "ome", "path": "/validate", "port": 443},
}


def write(cluster: Cluster, *manifests: Mapping[str, Any]) -> list[Manifest]:
    """Create the objects as OME's manager does, and return the stored objects."""
    api = cluster.api()
    where = [path(one["kind"], one["metadata"].get("namespace", "")) + "?fieldManager=manager" for one in manifests]
    return [api.request("POST", at, one) for at, one in zip(where, manifests, strict=True)]


def crd(kind: str, release: str = "", conversion: Mapping[str, Any] | None = None) -> Manifest:
    """Return a CRD of OME. It has a field that this project's CRD does not have, and, for models and runtimes, a default."""
    plural, scope = KINDS[kind]
    open_ = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    spec = {**open_, "properties": {"onlyOme": {"type": "string"}}}
    if kind.startswith("Cluster"):
        spec["properties"]["disabled"] = {"type": "boolean", "default": False}
    version = {
        "name": "v1beta1", "served": True, "storage": True, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": open_}}},
    }  # fmt: skip
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    group = "ome.io"
    if kind == "LeaderWorkerSet":
        group, version["name"] = "leaderworkerset.x-k8s.io", "v1"
    body = {"group": group, "names": names, "scope": scope, "versions": [version]}
    metadata: Manifest = {"name": f"{plural}.{group}"}
    if release:
        metadata["labels"] = {"app.kubernetes.io/managed-by": "Helm"}
        metadata["annotations"] = {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": "ome"}
    if conversion is not None:
        body["conversion"] = conversion
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata, "spec": body}


def dead_conversion() -> Manifest:
    """Return the conversion webhook of a CRD. Its Service does not exist, so every conversion fails."""
    return {"strategy": "Webhook", "webhook": {"clientConfig": WEBHOOK, "conversionReviewVersions": ["v1"]}}


def webhooks(service: str = "ome-webhook-server-service") -> list[Manifest]:
    """Return OME's validating webhook of services, its mutating webhook of services and pods, and a webhook of another
    product, which an adoption must not change.
    """
    target = {"service": {**WEBHOOK["service"], "name": service}}
    rules = {
        "services": {"apiGroups": ["ome.io"], "apiVersions": ["v1beta1"], "operations": ["CREATE", "UPDATE"],
                     "resources": ["inferenceservices"]},
        "pods": {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]},
    }  # fmt: skip

    def hook(name: str, **more: Any) -> Manifest:
        base = {"name": f"{name}.ome.test", "clientConfig": target, "sideEffects": "None", "admissionReviewVersions": ["v1"]}
        return {**base, "rules": [rules[name]], **more}

    pods = hook("pods", objectSelector={"matchExpressions": [{"key": "ome.io/inferenceservice", "operator": "Exists"}]})
    never = hook("pods", objectSelector={"matchLabels": {"nobody": "has-this"}})
    return [
        configuration("Validating", "inferenceservice.ome.io", [hook("services")]),
        configuration("Mutating", "inferenceservice.ome.io", [hook("services"), pods]),
        configuration("Validating", "stranger.example.com", [never]),
    ]


def configuration(kind: str, name: str, hooks: list[Manifest]) -> Manifest:
    """Return a configuration of `Validating` or `Mutating` webhooks."""
    version = "admissionregistration.k8s.io/v1"
    return {"apiVersion": version, "kind": f"{kind}WebhookConfiguration", "metadata": {"name": name}, "webhooks": hooks}


def rights() -> Iterator[Manifest]:
    """Yield the rights of OME's controller by which `ome adopt` recognizes it."""
    group = "rbac.authorization.k8s.io"
    kind = {"apiVersion": f"{group}/v1", "metadata": {"name": "ome-manager-role"}}
    rule = {"apiGroups": ["ome.io"], "resources": ["inferenceservices", "inferenceservices/status"], "verbs": ["*"]}
    yield {**kind, "kind": "ClusterRole", "rules": [rule]}
    role = {"apiGroup": group, "kind": "ClusterRole", "name": "ome-manager-role"}
    account = {"kind": "ServiceAccount", "namespace": "ome", "name": "default"}
    yield {**kind, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [account]}


def controller(replicas: int) -> Manifest:
    """Return OME's Deployment."""
    labels = {"control-plane": "ome-controller-manager"}
    pod = {"containers": [{"name": "manager", "image": "ome:1"}]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": "ome-controller-manager", "namespace": "ome", "labels": labels}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def write_ome_status(cluster: Cluster, service: Manifest) -> None:
    """Write a status with OME's field manager. Its time lies long in the past."""
    api, where = cluster.api(), path("InferenceService", service["metadata"]["namespace"], service["metadata"]["name"])
    merge = "application/merge-patch+json"
    types = ("Ready", "EngineReady", "IngressReady")
    conditions = [{"type": one, "status": "True", "lastTransitionTime": AGO} for one in types]
    status = {"url": "http://kimi.example.com", "conditions": conditions, "observedGeneration": 1}
    said = api.request("PATCH", f"{where}/status?fieldManager=manager", {"status": status}, merge)
    entries = [one | ({"time": AGO} if one["manager"] == "manager" else {}) for one in said["metadata"]["managedFields"]]
    # The API server would ignore a change of times only.
    api.request("PATCH", where, {"metadata": {"managedFields": entries, "annotations": {"long": "ago"}}}, merge)


def group(service: Manifest, name: str) -> Manifest:
    """Return what OME creates for a component of several nodes, whose controller is not installed here."""
    return _owned(service, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name, {"spec": {"replicas": 1}})


def children(service: Manifest, *components: str, groups: int = 1, gpus: int = 0) -> list[Manifest]:
    """Return everything that OME creates for a service in RawDeployment mode."""
    out = [_service(service, service["metadata"]["name"], components[-1], 8080)]
    for one in components:
        out += [*_component(service, one, groups if one == "engine" else 1, gpus if one == "engine" else 0)]
    out.append(_owned(service, "v1", "ConfigMap", f"modelconfig-{service['metadata']['name']}", {"data": {}}))
    return out


def _component(service: Manifest, component: str, replicas: int, gpus: int) -> Iterable[Manifest]:
    name = f"{service['metadata']['name']}-{component}"
    labels = {"app": f"isvc.{name}", "component": component, "ome.io/inferenceservice": service["metadata"]["name"]}
    box: Manifest = {"name": "ome-container", "image": "engine:0"}
    if gpus:
        box["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [box]}}
    selector = {"matchLabels": {"app": f"isvc.{name}"}}
    yield _owned(
        service, "apps/v1", "Deployment", name, {"spec": {"replicas": replicas, "selector": selector, "template": template}}
    )
    yield _service(service, name, component, 8080)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    scaling = {"scaleTargetRef": target, "minReplicas": replicas, "maxReplicas": replicas + 2}
    yield _owned(service, "autoscaling/v2", "HorizontalPodAutoscaler", name, {"spec": scaling})
    yield _owned(service, "policy/v1", "PodDisruptionBudget", name, {"spec": {"maxUnavailable": 1, "selector": selector}})
    yield _owned(service, "v1", "ServiceAccount", name, {})
    if component == "router":
        rbac = "rbac.authorization.k8s.io"
        rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
        subject = {"kind": "ServiceAccount", "name": name, "namespace": service["metadata"]["namespace"]}
        ref = {"apiGroup": rbac, "kind": "Role", "name": name}
        yield _owned(service, f"{rbac}/v1", "Role", name, {"rules": [rule]})
        yield _owned(service, f"{rbac}/v1", "RoleBinding", name, {"roleRef": ref, "subjects": [subject]})


def _service(service: Manifest, name: str, component: str, port: int) -> Manifest:
    selector = {"ome.io/inferenceservice": service["metadata"]["name"], "component": component}
    ports = [{"name": "http", "port": port, "targetPort": port, "protocol": "TCP"}]
    return _owned(service, "v1", "Service", name, {"spec": {"selector": selector, "ports": ports}})


def _owned(service: Manifest, version: str, kind: str, name: str, body: Mapping[str, Any]) -> Manifest:
    owner = {
        "apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "name": service["metadata"]["name"],
        "uid": service["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    labels = {"ome.io/inferenceservice": service["metadata"]["name"], "component": "external-service"}
    metadata = {"name": name, "namespace": service["metadata"]["namespace"], "labels": labels, "ownerReferences": [owner]}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}
