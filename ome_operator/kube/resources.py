"""The kinds that the operator reads or writes, and their locations in the API."""

from typing import NamedTuple
from urllib.parse import quote

from ome_operator import keys
from ome_operator.kube import errors


class ApiResource(NamedTuple):
    """The location of a kind in the API."""

    api_version: str
    plural: str
    namespaced: bool

    @property
    def group(self) -> str:
        """The API group; "" for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """The version within the group."""
        return self.api_version.rpartition("/")[2]


def _ours(plural: str, *, namespaced: bool) -> ApiResource:
    return ApiResource(keys.API_VERSION, plural, namespaced)


def _admission(plural: str) -> ApiResource:
    return ApiResource("admissionregistration.k8s.io/v1", plural, namespaced=False)


RESOURCES: dict[str, ApiResource] = {
    "InferenceService": _ours("inferenceservices", namespaced=True),
    "ClusterBaseModel": _ours("clusterbasemodels", namespaced=False),
    "BaseModel": _ours("basemodels", namespaced=True),
    "ClusterServingRuntime": _ours("clusterservingruntimes", namespaced=False),
    "ServingRuntime": _ours("servingruntimes", namespaced=True),
    "AcceleratorClass": _ours("acceleratorclasses", namespaced=False),
    "BenchmarkJob": _ours("benchmarkjobs", namespaced=True),
    "FineTunedWeight": _ours("finetunedweights", namespaced=False),
    "RoleScale": _ours("rolescales", namespaced=True),
    # Group sglang.ai also has a kind ClusterBaseModel, so it has another name here.
    "SglangModel": ApiResource("sglang.ai/v1", "clusterbasemodels", namespaced=False),
    "Serving": ApiResource("sglang.ai/v1", "servings", namespaced=True),
    "NodeModels": _ours("nodemodels", namespaced=False),
    "NodeFaults": _ours("nodefaults", namespaced=False),
    "StatefulSet": ApiResource("apps/v1", "statefulsets", namespaced=True),
    "Deployment": ApiResource("apps/v1", "deployments", namespaced=True),
    "ControllerRevision": ApiResource("apps/v1", "controllerrevisions", namespaced=True),
    "Job": ApiResource("batch/v1", "jobs", namespaced=True),
    "Service": ApiResource("v1", "services", namespaced=True),
    "ConfigMap": ApiResource("v1", "configmaps", namespaced=True),
    "Secret": ApiResource("v1", "secrets", namespaced=True),  # objects of this kind are created and never read
    "ServiceAccount": ApiResource("v1", "serviceaccounts", namespaced=True),
    # `ome diff` checks with the rights of its user whether a claim exists
    "PersistentVolumeClaim": ApiResource("v1", "persistentvolumeclaims", namespaced=True),
    "Pod": ApiResource("v1", "pods", namespaced=True),
    "ResourceQuota": ApiResource("v1", "resourcequotas", namespaced=True),
    "Node": ApiResource("v1", "nodes", namespaced=False),
    "Namespace": ApiResource("v1", "namespaces", namespaced=False),
    "Event": ApiResource("v1", "events", namespaced=True),
    "Role": ApiResource("rbac.authorization.k8s.io/v1", "roles", namespaced=True),
    "RoleBinding": ApiResource("rbac.authorization.k8s.io/v1", "rolebindings", namespaced=True),
    "PodDisruptionBudget": ApiResource("policy/v1", "poddisruptionbudgets", namespaced=True),
    "HorizontalPodAutoscaler": ApiResource("autoscaling/v2", "horizontalpodautoscalers", namespaced=True),
    "ScaledObject": ApiResource("keda.sh/v1alpha1", "scaledobjects", namespaced=True),
    "SelfSubjectReview": ApiResource("authentication.k8s.io/v1", "selfsubjectreviews", namespaced=False),
    "Lease": ApiResource("coordination.k8s.io/v1", "leases", namespaced=True),
    "ValidatingAdmissionPolicy": _admission("validatingadmissionpolicies"),
    "ValidatingAdmissionPolicyBinding": _admission("validatingadmissionpolicybindings"),
    # Only `ome adopt` reads or writes these, with the rights of its user.
    "SubjectAccessReview": ApiResource("authorization.k8s.io/v1", "subjectaccessreviews", namespaced=False),
    "CustomResourceDefinition": ApiResource("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False),
    "MutatingWebhookConfiguration": _admission("mutatingwebhookconfigurations"),
    "ValidatingWebhookConfiguration": _admission("validatingwebhookconfigurations"),
    "EndpointSlice": ApiResource("discovery.k8s.io/v1", "endpointslices", namespaced=True),
    "Ingress": ApiResource("networking.k8s.io/v1", "ingresses", namespaced=True),
    "NetworkPolicy": ApiResource("networking.k8s.io/v1", "networkpolicies", namespaced=True),
    "HTTPRoute": ApiResource("gateway.networking.k8s.io/v1", "httproutes", namespaced=True),
    "LeaderWorkerSet": ApiResource("leaderworkerset.x-k8s.io/v1", "leaderworkersets", namespaced=True),
}

CHILDREN: tuple[str, ...] = (
    "ControllerRevision",
    "StatefulSet",
    "Deployment",
    "Service",
    "RoleScale",
    "PodDisruptionBudget",
    "HorizontalPodAutoscaler",
    "ServiceAccount",
    "Role",
    "RoleBinding",
)
"""Kinds that the operator creates for a service, and watches by the operator's label."""

EXPOSED: tuple[str, ...] = ("Ingress", "HTTPRoute")
"""Kinds that expose services outside of the cluster. The operator creates and watches at most one of them."""
ON_DEMAND: tuple[str, ...] = (*EXPOSED, "NetworkPolicy", "ScaledObject")
"""Kinds that the operator creates for services and watches only if its configuration enables them."""


SHORT_API = "sglang.ai/v1"
_NAMES = {(SHORT_API, "ClusterBaseModel"): "SglangModel"}


def resource_name(api_version: str, kind: str) -> str:
    """Return the name in RESOURCES for the `apiVersion` and `kind` of an object."""
    return _NAMES.get((api_version, kind), kind)


def kind_of_resource(kind: str) -> str:
    """Return the `kind` of objects for a name in RESOURCES."""
    return next((there for (_, there), name in _NAMES.items() if name == kind), kind)


def path(kind: str, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Return the path of an object or a list, below the server's address. A namespaced kind without a namespace means all
    namespaces. Raises Invalid for a namespace or name that no object can have, because the path would lead to something
    else. `subresource` is a part of the object such as `status`; "" for the object itself.
    """
    for part in (namespace, name):
        if part in (".", "..") or "/" in part or "%" in part:
            raise errors.Invalid(f"{kind} {namespace}/{name}: {part} cannot be a name in a path of the API")
    resource = RESOURCES[kind]
    prefix = f"/apis/{resource.api_version}" if "/" in resource.api_version else f"/api/{resource.api_version}"
    if namespace and resource.namespaced:
        prefix += f"/namespaces/{quote(namespace)}"
    tail = f"/{quote(name)}" if name else ""
    return prefix + f"/{resource.plural}" + tail + (f"/{subresource}" if subresource else "")
