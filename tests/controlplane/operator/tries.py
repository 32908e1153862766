"""Attempts by a client that has the operator's token. Each consists of a request and the expected words of the answer.

They include every attempt of a security review without any weakening, and further attempts. `NODE` in a path stands for a
node of the cluster.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ome_operator import keys
from tests.support import yamls

JSON, MERGE, PATCH, APPLY = (
    f"application/{kind}" for kind in ("json", "merge-patch+json", "json-patch+json", "apply-patch+yaml")
)
NS, SYSTEM, HOME = "infra", "kube-system", "ome"
OURS = {keys.SERVICE: "s", keys.MANAGED_BY: keys.MANAGER}
POLICY, RBAC = "ValidatingAdmissionPolicy", "cannot"
UNLABELLED = "only write and delete objects with the label"
LABELLED = {"labels": OURS}
NOT_HERE = "may not write in this namespace"
ONLY_ASK = "the operator may create pods only in a dry run"
ONLY_LABELS = "only change labels of nodes that begin with models.ome.io/"
ESCALATES = "attempting to grant RBAC permissions not currently held"
PODS = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
RIGHTS = "rbac.authorization.k8s.io"


class Try(NamedTuple):
    """A request, and a part of the message with which it is denied. The message is "" if the request is accepted;
    docs/security.md lists these requests.
    """

    what: str
    said: str
    method: str
    where: str
    body: Any = None
    content: str = JSON
    headers: Mapping[str, str] = {}


def at(kind: str, name: str = "", namespace: str = NS, after: str = "") -> str:
    """Return the path of a kind, or of an object if `name` is given."""
    group, plural = PLACES[kind]
    where = f"namespaces/{namespace}/" if namespace else ""
    return f"/{group}/{where}{plural}" + (f"/{name}" if name else "") + after


PLACES = {
    "Service": ("api/v1", "services"),
    "ServiceAccount": ("api/v1", "serviceaccounts"),
    "Secret": ("api/v1", "secrets"),
    "Pod": ("api/v1", "pods"),
    "Node": ("api/v1", "nodes"),
    "Namespace": ("api/v1", "namespaces"),
    "StatefulSet": ("apis/apps/v1", "statefulsets"),
    "Deployment": ("apis/apps/v1", "deployments"),
    "Job": ("apis/batch/v1", "jobs"),
    "Lease": ("apis/coordination.k8s.io/v1", "leases"),
    "HorizontalPodAutoscaler": ("apis/autoscaling/v2", "horizontalpodautoscalers"),
    "PodDisruptionBudget": ("apis/policy/v1", "poddisruptionbudgets"),
    "Role": (f"apis/{RIGHTS}/v1", "roles"),
    "RoleBinding": (f"apis/{RIGHTS}/v1", "rolebindings"),
    "ClusterRoleBinding": (f"apis/{RIGHTS}/v1", "clusterrolebindings"),
    "InferenceService": ("apis/ome.io/v1beta1", "inferenceservices"),
    "RoleScale": ("apis/ome.io/v1beta1", "rolescales"),
    "BaseModel": ("apis/ome.io/v1beta1", "basemodels"),
    "ClusterBaseModel": ("apis/ome.io/v1beta1", "clusterbasemodels"),
    "ServingRuntime": ("apis/ome.io/v1beta1", "servingruntimes"),
    "NodeModels": ("apis/ome.io/v1beta1", "nodemodels"),
    "ValidatingAdmissionPolicy": ("apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicies"),
}


def of(kind: str, name: str, namespace: str = NS, *, metadata: Any = None, **body: Any) -> Any:
    """Return a manifest."""
    version = PLACES[kind][0].partition("/")[2]
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **place, **(metadata or {})}, **body}


def post(what: str, said: str, body: Any) -> Try:
    """Return the attempt to create an object."""
    return Try(what, said, "POST", at(body["kind"], "", body["metadata"].get("namespace", "")), body)


def owned(version: str, kind: str, name: str) -> Any:
    """Return metadata with the operator's labels and with an owner that does not exist."""
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": "00000000-0000-4000-8000-000000000000"}
    return {**LABELLED, "ownerReferences": [{**owner, "controller": True}]}


def workload(kind: str, name: str, namespace: str = NS, metadata: Any = None) -> Any:
    """Return a workload whose pods run an arbitrary image."""
    pod = {"containers": [{"name": "c", "image": "i"}], **({"restartPolicy": "Never"} if kind == "Job" else {})}
    selector = {} if kind == "Job" else {"selector": {"matchLabels": {"app": name}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": pod}
    return of(kind, name, namespace, metadata=metadata, spec={**selector, "template": template})


def binding(name: str, kind: str, role: str, **subject: str) -> Any:
    """Return a RoleBinding with the operator's labels. Its subject is a ServiceAccount in its namespace, unless `subject`
    names another.
    """
    to = {"kind": "ServiceAccount", "name": "strong", "namespace": NS, **subject}
    ref = {"apiGroup": RIGHTS, "kind": kind, "name": role}
    return of("RoleBinding", name, metadata=LABELLED, roleRef=ref, subjects=[to])


def user(name: str, role: str) -> Any:
    """Return a RoleBinding with the operator's labels for a user."""
    made = binding(name, "Role", role)
    return {**made, "subjects": [{"apiGroup": RIGHTS, "kind": "User", "name": "somebody"}]}


def taken_over(kind: str, name: str) -> list[Try]:
    """Return the attempts to write the operator's labels to a foreign object, by two methods."""
    where, body = at(kind, name), of(kind, name, metadata=LABELLED)
    return [
        Try(f"take over a {kind} by a merge patch", UNLABELLED, "PATCH", where, {"metadata": LABELLED}, MERGE),
        Try(f"take over a {kind} by a forced apply", UNLABELLED, "PATCH", f"{where}?fieldManager=x&force=true", body, APPLY),
    ]


SERVED = yamls.service(NS, "made-up", "none")
OF_SERVING = owned("sglang.ai/v1", "Serving", "made-up")
STORAGE = {"storageUri": "hf://moonshotai/Kimi-K2-Instruct", "path": "/mnt/models/k2"}
EVIL = {"parameters": {"endpoint": "http://evil"}}


def model(said: str, what: str, name: str = "made-up", version: str = "sglang.ai/v1", kind: str = "", **more: Any) -> Try:
    """Return the attempt to create a ClusterBaseModel with an owner that does not exist."""
    metadata = owned(version, kind or "ClusterBaseModel", "made-up")
    return post(what, said, of("ClusterBaseModel", name, "", metadata=metadata, spec={"storage": {**STORAGE, **more}}))


def autoscaler(said: str, what: str, kind: str, version: str, name: str) -> Try:
    """Return the attempt to create a HorizontalPodAutoscaler with the operator's labels."""
    spec = {"scaleTargetRef": {"apiVersion": version, "kind": kind, "name": "web"}, "minReplicas": 7, "maxReplicas": 7}
    return post(what, said, of("HorizontalPodAutoscaler", name, metadata=LABELLED, spec=spec))


def budget(said: str, what: str, name: str, selector: Any) -> Try:
    """Return the attempt to create a PodDisruptionBudget that permits no eviction."""
    spec = {"maxUnavailable": 0, "selector": selector}
    return post(what, said, of("PodDisruptionBudget", name, metadata=LABELLED, spec=spec))


def front(said: str, what: str, name: str, **spec: Any) -> Try:
    """Return the attempt to create a Service with the operator's labels."""
    return post(what, said, of("Service", name, metadata=LABELLED, spec={"ports": [{"port": 80}], **spec}))


def on_node(what: str, body: Any, content: str = MERGE, after: str = "", said: str = ONLY_LABELS) -> Try:
    """Return the attempt to patch a node."""
    return Try(f"node: {what}", said, "PATCH", at("Node", "NODE", "", after), body, content)


SCALE = of("RoleScale", "web", metadata=LABELLED, spec={"replicas": 7})
EXPIRES = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "alone", "namespace": NS}}
DEBUG = {"spec": {"ephemeralContainers": [{"name": "d", "image": "i"}]}}
ALL = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
SECRET = of(
    "Secret", "keys", metadata={**owned("ome.io/v1beta1", "InferenceService", "s")}, type="ome.io/ssh-keys", immutable=True
)
EXTERNAL = {"selector": OURS, "externalIPs": ["8.8.8.8"]}

POD = of("Pod", "x", metadata=LABELLED, spec={"containers": [{"name": "c", "image": "i"}]})
BINDING = of("Pod", "alone") | {"kind": "Binding", "target": {"kind": "Node", "name": "NODE"}}

REFUSED = [
    # --- namespaces without any object of the operator
    post("StatefulSet in kube-system", NOT_HERE, workload("StatefulSet", "x", SYSTEM, LABELLED)),
    post("ServiceAccount in kube-system", NOT_HERE, of("ServiceAccount", "x", SYSTEM, metadata=LABELLED)),
    post(
        "InferenceService in kube-system", NOT_HERE,
        {**SERVED, "metadata": {"name": "made-up", "namespace": SYSTEM, **OF_SERVING}},
    ),
    post("RoleScale in kube-system", NOT_HERE, {**SCALE, "metadata": {"name": "x", "namespace": SYSTEM, **LABELLED}}),
    post("StatefulSet in its own namespace", NOT_HERE, workload("StatefulSet", "x", HOME, LABELLED)),
    # --- objects that do not belong to the operator
    post("unlabelled StatefulSet", UNLABELLED, workload("StatefulSet", "x")),
    post("unlabelled Job", "only write Jobs", workload("Job", "x")),
    post("unlabelled RoleScale", UNLABELLED, of("RoleScale", "x", spec={"replicas": 1})),
    *taken_over("Deployment", "web"),
    *taken_over("Pod", "alone"),
    *taken_over("ServiceAccount", "strong"),
    *taken_over("RoleScale", "theirs"),
    Try("delete a Deployment", UNLABELLED, "DELETE", at("Deployment", "web")),
    Try("delete a pod", UNLABELLED, "DELETE", at("Pod", "alone")),
    Try("delete a RoleScale", UNLABELLED, "DELETE", at("RoleScale", "theirs")),
    # --- pods, which the operator may only create in dry runs
    post("create a pod", ONLY_ASK, POD),
    Try("create a pod by an apply", ONLY_ASK, "PATCH", f"{at('Pod', 'x')}?fieldManager=x&force=true", POD, APPLY),
    post("create an unlabelled pod", ONLY_ASK, of("Pod", "x", spec=POD["spec"])),
    post("create a pod with an account", ONLY_ASK, {**POD, "spec": {**POD["spec"], "serviceAccountName": "strong"}}),
    post("create a pod in kube-system", "ValidatingAdmissionPolicy", of("Pod", "x", SYSTEM, spec=POD["spec"])),
    Try(
        "dry run of a pod in kube-system", NOT_HERE, "POST", at("Pod", "", SYSTEM, "?dryRun=All"),
        of("Pod", "x", SYSTEM, spec=POD["spec"]),
    ),
    Try("bind a pod to a node", RBAC, "POST", at("Pod", "alone", after="/binding?dryRun=All"), BINDING),
    # --- requests that its Role does not allow
    Try("deletecollection", RBAC, "DELETE", at("Deployment")),
    Try("scale a Deployment", RBAC, "PATCH", at("Deployment", "web", after="/scale"), {"spec": {"replicas": 0}}, MERGE),
    Try("scale a StatefulSet", RBAC, "PATCH", at("StatefulSet", "db", after="/scale"), {"spec": {"replicas": 0}}, MERGE),
    Try("status of a pod", RBAC, "PATCH", at("Pod", "alone", after="/status"), {"status": {"phase": "Failed"}}, MERGE),
    Try("evict", RBAC, "POST", at("Pod", "alone", after="/eviction"), EVICTION),
    Try("ephemeral container", RBAC, "PATCH", at("Pod", "alone", after="/ephemeralcontainers"), DEBUG, MERGE),
    Try("exec", RBAC, "POST", at("Pod", "alone", after="/exec?command=ls")),
    Try("list Secrets", RBAC, "GET", "/api/v1/secrets"),
    Try("list namespaces", RBAC, "GET", "/api/v1/namespaces"),
    Try("token of another account", RBAC, "POST", at("ServiceAccount", "strong", after="/token"), EXPIRES),
    Try("impersonate", RBAC, "GET", "/api/v1/namespaces", headers={"Impersonate-User": "admin"}),
    post("BaseModel", RBAC, of("BaseModel", "x", spec={"storage": STORAGE})),
    post("ServingRuntime", RBAC, of("ServingRuntime", "x", spec={})),
    Try("status of NodeModels", RBAC, "PATCH", at("NodeModels", "NODE", "", "/status"), {"status": {"models": []}}, MERGE),
    Try("another Lease", RBAC, "PUT", at("Lease", "other", HOME), of("Lease", "other", HOME)),
    Try(
        "change its own policy", RBAC, "PATCH", at("ValidatingAdmissionPolicy", "ome-operator", ""),
        {"spec": {"failurePolicy": "Ignore"}}, MERGE,
    ),
    Try("delete its own policy", RBAC, "DELETE", at("ValidatingAdmissionPolicy", "ome-operator", "")),
    # --- nodes
    on_node("annotation", {"metadata": {"annotations": {"a": "b"}}}),
    on_node("taint", {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}),
    on_node("foreign label by a merge patch", {"metadata": {"labels": {"a": "b"}}}),
    on_node("foreign label by a JSON patch", [{"op": "add", "path": "/metadata/labels/a", "value": "b"}], PATCH),
    on_node(
        "foreign label by an apply", of("Node", "NODE", "", metadata={"labels": {"a": "b"}}), APPLY,
        "?fieldManager=x&force=true",
    ),
    on_node("changed label", {"metadata": {"labels": {"kubernetes.io/hostname": "x"}}}),
    on_node("removed label", {"metadata": {"labels": {"kubernetes.io/hostname": None}}}),
    on_node("new owner", {"metadata": {"ownerReferences": [{**owned("v1", "Pod", "x")["ownerReferences"][0]}]}}),
    on_node("new finalizer", {"metadata": {"finalizers": ["a.test/x"]}}),
    on_node("unschedulable", {"spec": {"unschedulable": True}}),
    on_node("status", {"status": {"capacity": {"pods": "0"}}}, after="/status", said=RBAC),
    Try("node: deletion", RBAC, "DELETE", at("Node", "NODE", "")),
    Try(
        "node: another owner in place of an owner", ONLY_LABELS, "PATCH", at("Node", "z-guarded", ""),
        {"metadata": {"ownerReferences": [{**owned("v1", "Node", "x")["ownerReferences"][0]}]}}, MERGE,
    ),
    Try(
        "node: another finalizer in place of a finalizer", ONLY_LABELS, "PATCH", at("Node", "z-guarded", ""),
        {"metadata": {"finalizers": ["a.test/other"]}}, MERGE,
    ),
    # --- rights
    post("Role on Secrets", ESCALATES, of("Role", "x", metadata=LABELLED, rules=[ALL])),
    post(
        "Role with another verb", "only write Roles that get, list and watch pods",
        of("Role", "x", metadata=LABELLED, rules=[{**PODS[0], "verbs": ["get", "list", "watch", "delete"]}]),
    ),
    Try(
        "widen a Role of ours", "only write Roles that get, list and watch pods", "PATCH", at("Role", "s-router"),
        {"rules": [*PODS, {**PODS[0], "verbs": ["delete"]}]}, MERGE,
    ),
    Try(
        "unlabel a Role of ours", "with the labels ome.io/inferenceservice", "PATCH", at("Role", "s-router"),
        {"metadata": {"labels": {keys.MANAGED_BY: None}}}, MERGE,
    ),
    post("bind a ClusterRole", ESCALATES, binding("view", "ClusterRole", "view")),
    post("bind a ClusterRole of rights that it has", "only bind the Role of", binding("watcher", "ClusterRole", "watcher")),
    post("bind to a user", "to ServiceAccounts of its namespace", user("s-router", "s-router")),
    post(
        "bind to an account of another namespace", "to ServiceAccounts of its namespace",
        binding("s-router", "Role", "s-router", namespace="default"),
    ),
    post("bind a foreign Role on Secrets", ESCALATES, binding("reader", "Role", "reader")),
    post(
        "bind a foreign Role of rights that it has", "only bind a Role of its own",
        binding("dep-router", "Role", "dep-router"),
    ),
    post(
        "ClusterRoleBinding", RBAC,
        of("ClusterRoleBinding", "x", "", metadata=LABELLED, roleRef=binding("x", "ClusterRole", "view")["roleRef"]),
    ),
    post("Opaque Secret", "only create Secrets of type ome.io/ssh-keys", {**SECRET, "type": "Opaque"}),
    post(
        "token as a Secret", "only create Secrets of type ome.io/ssh-keys",
        of(
            "Secret", "x", metadata={
                **owned("ome.io/v1beta1", "InferenceService", "s"),
                "annotations": {"kubernetes.io/service-account.name": "strong"},
            },
            type="kubernetes.io/service-account-token", immutable=True,
        ),
    ),
    # --- its own objects, used against those of others
    autoscaler("scale a RoleScale", "autoscaler of a foreign Deployment", "Deployment", "apps/v1", "h"),
    autoscaler("scale a RoleScale", "autoscaler of another RoleScale kind", "RoleScale", "example.com/v1", "h"),
    Try(
        "turn an autoscaler of ours to a Deployment", "scale a RoleScale", "PATCH", at("HorizontalPodAutoscaler", "s"),
        {"spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}}, MERGE,
    ),
    budget("only write a PodDisruptionBudget", "budget over all pods", "b", {}),
    budget("only write a PodDisruptionBudget", "budget over foreign pods", "b", {"matchLabels": {"app": "web"}}),
    front("only write a Service", "Service with external addresses", "x", **EXTERNAL),
    front("only write a Service", "Service that is another name", "x", type="ExternalName", externalName="evil.example"),
    front("only write a Service", "Service of foreign pods", "x", selector={"app": "web"}),
    Try(
        "external addresses for a Service of ours", "only write a Service", "PATCH", at("Service", "s"),
        {"spec": {"externalIPs": ["8.8.8.8"]}}, MERGE,
    ),
    # --- owners that do not exist
    model("only write storageUri and path", "ClusterBaseModel of an evil hub, with a made-up owner", **EVIL),
    model("only write storageUri and path", "ClusterBaseModel with a Secret, with a made-up owner", key="hf-token"),
    model("created from objects of sglang.ai", "ClusterBaseModel of another name than its owner", name="other"),
    model("created from objects of sglang.ai", "ClusterBaseModel whose owner is a Serving", kind="Serving"),
    model("created from objects of sglang.ai", "ClusterBaseModel whose owner is of ome.io", version="ome.io/v1beta1"),
    post("ssh-keys that can be changed", "immutable", {**SECRET, "immutable": False}),
]  # fmt: skip

ACCEPTED = [
    on_node("label of a model", {"metadata": {"labels": {"models.ome.io/tried": "Ready"}}}, said=""),
    post("Role of routers", "", of("Role", "t-router", metadata=LABELLED, rules=PODS)),
    post("its binding", "", binding("s-router", "Role", "s-router")),
    post("StatefulSet with its labels", "", workload("StatefulSet", "rest", NS, LABELLED)),
    Try("dry run of a pod", "", "POST", at("Pod", after="?dryRun=All"), POD),
    post("SSH keys with a made-up owner", "", SECRET),
    post(
        "Job with a made-up owner", "",
        workload("Job", "rest", NS, {**owned("ome.io/v1beta1", "BenchmarkJob", "x"), "labels": {
            keys.BENCHMARK: "x", keys.MANAGED_BY: keys.MANAGER,
        }}),
    ),
    post("InferenceService with a made-up owner", "", {
        **SERVED, "metadata": {"name": "made-up", "namespace": NS, **OF_SERVING},
    }),
    model("", "ClusterBaseModel of a hub, with a made-up owner"),
    post("RoleScale with its labels", "", SCALE),
    autoscaler("", "autoscaler of a RoleScale", "RoleScale", "ome.io/v1beta1", "own"),
    budget("", "budget over its own pods", "own", {"matchLabels": OURS}),
    front("", "Service of its own pods", "own", selector=OURS),
    Try(
        "Service of its own to which an administrator gave an address", "", "PATCH", at("Service", "given"),
        {"metadata": {"annotations": {"a": "b"}}}, MERGE,
    ),
]  # fmt: skip
"""Requests that services need, or that docs/security.md lists under "What remains"."""
