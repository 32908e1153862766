"""Prepare kind's nodes and add-ons for a cluster that also has simulated nodes."""

from collections.abc import Iterable
from typing import Any

from ome_local.kubeapi import ApiError, KubeApi
from ome_local.nodes import SIMULATED
from ome_local.realnode.spec import LABEL

ADDONS = (
    "kube-system/deployments/coredns",
    "kube-system/daemonsets/kube-proxy",
    "kube-system/daemonsets/kindnet",
    "local-path-storage/deployments/local-path-provisioner",
)
_MERGE = "application/merge-patch+json"


def spare(api: KubeApi, nodes: Iterable[str]) -> None:
    """Add a PreferNoSchedule taint to these nodes. The nodes then run pods that require a real node, and other pods only
    if no simulated node can run them.
    """
    taint = {"key": LABEL, "value": "true", "effect": "PreferNoSchedule"}
    for node in nodes:
        had: list[dict[str, Any]] = api.get(f"/api/v1/nodes/{node}")["spec"].get("taints", [])
        if taint not in had:
            api.request("PATCH", f"/api/v1/nodes/{node}", {"spec": {"taints": [*had, taint]}}, _MERGE)


def keep_addons(api: KubeApi) -> None:
    """Keep kind's add-ons off simulated nodes, because no container runs on these nodes: a simulated CoreDNS pod would not
    answer DNS requests.

    The function runs before simulated nodes exist, and can be repeated. Add-ons that this version of kind does not contain
    are skipped.
    """
    term = {"matchExpressions": [{"key": SIMULATED[0], "operator": "NotIn", "values": [SIMULATED[1]]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    patch = {"spec": {"template": {"spec": {"affinity": {"nodeAffinity": required}}}}}
    for addon in ADDONS:
        try:
            api.request("PATCH", f"/apis/apps/v1/namespaces/{addon}", patch, _MERGE)
        except ApiError as error:
            if error.code != 404:
                raise
