"""Kind's nodes and add-ons, told that there are simulated nodes beside them."""

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
    """These nodes take what says that it is meant for a real one, and others only when no simulated node can."""
    taint = {"key": LABEL, "value": "true", "effect": "PreferNoSchedule"}
    for node in nodes:
        had: list[dict[str, Any]] = api.get(f"/api/v1/nodes/{node}")["spec"].get("taints", [])
        if taint not in had:
            api.request("PATCH", f"/api/v1/nodes/{node}", {"spec": {"taints": [*had, taint]}}, _MERGE)


def keep_addons(api: KubeApi) -> None:
    """Kind's add-ons stay off simulated nodes, where nothing runs: no real pod would find a name by a simulated CoreDNS.

    This comes before the simulated nodes do, and changes nothing the second time. An add-on that this version of kind does
    not have is left out.
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
