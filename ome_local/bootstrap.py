"""Prepare a new control plane for use: create the permissions of its components, and the simulated nodes."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any

from ome_local import cancel
from ome_local.components import IDENTITIES as COMPONENTS
from ome_local.components import POWERFUL
from ome_local.kubeapi import ApiError, KubeApi
from ome_local.layout import Layout
from ome_local.nodes import FAKE
from ome_local.realnode.spec import IDENTITIES, LABEL
from ome_operator.errors import UserError

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_DNS = "ome-local:coredns"
_PROMETHEUS = "ome-local:prometheus"
_NODES_WITHIN_S = 120.0
_GRANTED_WITHIN_S = 30.0


def grant(api: KubeApi) -> None:
    """Bind components that act on all objects to cluster-admin, and wait until the API server applies the binding.

    The API server's authorizer applies a binding with a delay, and the controller-manager exits if a request is denied at
    its start.
    """
    for user in POWERFUL:
        _bind(api, f"ome-local:{user.removeprefix('system:')}", "cluster-admin", user)
    until = time.monotonic() + _GRANTED_WITHIN_S
    while not all(_may_do_everything(api, user) for user in POWERFUL):
        if time.monotonic() > until:
            raise UserError(
                f"The API server does not yet apply the permissions of {' and '.join(POWERFUL)}: see `ome local "
                "logs apiserver`."
            )
        time.sleep(0.02)


def _may_do_everything(api: KubeApi, user: str) -> bool:
    asked = {"user": user, "resourceAttributes": {"verb": "*", "group": "*", "resource": "*"}}
    group = "authorization.k8s.io/v1"
    review = {"apiVersion": group, "kind": "SubjectAccessReview", "spec": asked}
    return bool(api.request("POST", f"/apis/{group}/subjectaccessreviews", review)["status"]["allowed"])


def grant_names(api: KubeApi) -> None:
    """Grant the permissions that the DNS server of a real node needs. The roles of kubelet and kube-proxy exist in every
    API server.
    """
    rules = [
        {"apiGroups": [""], "resources": ["services", "namespaces", "pods"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    api.create(f"{_RBAC}/clusterroles", {**_named("ClusterRole", _DNS), "rules": rules})
    _bind(api, _DNS, _DNS, IDENTITIES["coredns"][0])


def grant_targets(api: KubeApi) -> None:
    """Grant the permissions that Prometheus needs to find its targets."""
    rules = [{"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]}]
    api.create(f"{_RBAC}/clusterroles", {**_named("ClusterRole", _PROMETHEUS), "rules": rules})
    _bind(api, _PROMETHEUS, _PROMETHEUS, COMPONENTS["prometheus"][0])


def _bind(api: KubeApi, name: str, role: str, user: str) -> None:
    group = "rbac.authorization.k8s.io"
    subjects = [{"apiGroup": group, "kind": "User", "name": user}]
    role_ref = {"apiGroup": group, "kind": "ClusterRole", "name": role}
    binding = {**_named("ClusterRoleBinding", name), "roleRef": role_ref, "subjects": subjects}
    api.create(f"{_RBAC}/clusterrolebindings", binding)


def _named(kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}}


def add_nodes(at: Layout, nodes: Sequence[dict[str, Any]]) -> int:
    """Create the missing nodes, a few at a time, and return their number."""
    lanes = min(8, len(nodes))
    if not lanes:
        return 0
    with ThreadPoolExecutor(lanes) as pool:
        return sum(pool.map(_create_all, repeat(at, lanes), (nodes[lane::lanes] for lane in range(lanes))))


def _create_all(at: Layout, nodes: Sequence[dict[str, Any]]) -> int:
    api = KubeApi.of(at.kubeconfig)
    try:
        return sum(api.create("/api/v1/nodes", node) for node in nodes)
    finally:
        api.close()


def wait_usable(api: KubeApi, nodes: int) -> None:
    """Wait until `nodes` nodes accept pods and the controllers have created the first ServiceAccount."""
    until = time.monotonic() + _NODES_WITHIN_S
    while (usable := _usable(api)) < nodes or not _has_account(api):
        if time.monotonic() > until:
            said = "`ome local logs NAME` shows more, where NAME is kwok, kubelet or controller-manager"
            raise UserError(f"{usable} of {nodes} nodes accept pods after {_NODES_WITHIN_S:.0f} s; {said}.")
        cancel.pause(0.1)


def _usable(api: KubeApi) -> int:
    """Return the number of nodes that accept pods. A new node does not accept pods, because of a taint, until the node
    controller has observed that the node is Ready.
    """
    listed = api.get("/api/v1/nodes?resourceVersion=0")["items"]
    return sum(_is_ours(node["metadata"]) and not _held_back(node) for node in listed)


def _is_ours(metadata: dict[str, Any]) -> bool:
    return FAKE in metadata.get("annotations", {}) or LABEL in metadata.get("labels", {})


def _held_back(node: dict[str, Any]) -> bool:
    return any(taint["key"].startswith("node.kubernetes.io/") for taint in node["spec"].get("taints", []))


def _has_account(api: KubeApi) -> bool:
    try:
        api.get("/api/v1/namespaces/default/serviceaccounts/default")
    except ApiError as error:
        if error.code == 404:
            return False
        raise
    return True
