"""What kind is told: names, nodes, mounts, address ranges, and how long its controllers wait for a silent node."""

import json
from typing import Any

from ome_local.components import SLOW_NODES
from ome_local.layout import Layout
from ome_local.realnode.spec import LABEL, mark
from ome_local.tinymodel import PLACE

PODS, SERVICES = "10.240.0.0/16", "10.192.0.0/16"
"""Ranges that no real node of ours uses (`realnode/spec.py:Network`): a machine can have routes to both."""
_KUBEADM = "kubeadm.k8s.io"
_GRACE = "node-monitor-grace-period"
_KINDS_OWN = {"name": "enable-hostpath-provisioner", "value": "true"}
"""What kind writes into the same list. Older versions of kind replace a list, and newer ones merge it by name."""


def name(at: Layout) -> str:
    """Of the kind cluster. The names of kind's clusters are the machine's, ours are a home's: the folder is in it, too."""
    return f"{at.root.name}-{mark(at.root).removeprefix('ome-')}"


def control_plane(at: Layout) -> str:
    """The name of the node with the API server."""
    return f"{name(at)}-control-plane"


def real_nodes(at: Layout, workers: int) -> tuple[str, ...]:
    """The names of the nodes that take pods: the workers, or the control plane where there are none."""
    if not workers:
        return (control_plane(at),)
    return tuple(f"{name(at)}-worker{number if number > 1 else ''}" for number in range(1, workers + 1))


def cluster(at: Layout, workers: int) -> str:
    """The configuration for `kind create cluster`. JSON is YAML."""
    mount = {"hostPath": str(at.models), "containerPath": str(PLACE.parent), "readOnly": True}
    real = {"labels": {LABEL: "true"}, "extraMounts": [mount]}
    first = {"role": "control-plane", **({} if workers else real)}
    return json.dumps({
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {"podSubnet": PODS, "serviceSubnet": SERVICES},
        "kubeadmConfigPatches": [json.dumps(patch) for patch in _patches()],
        "nodes": [first, *({"role": "worker", **real} for _ in range(workers))],
    })  # fmt: skip


def _patches() -> list[dict[str, Any]]:
    """The same for both versions of kubeadm's configuration; kind takes the patch of the version that it writes.

    Simulated nodes beat every ten minutes and have no leases (`stages.py`). The usual 40 or 50 s would make them NotReady
    for ever, and their pods with them.
    """
    listed = [{"name": _GRACE, "value": SLOW_NODES}, _KINDS_OWN]
    return [_arguments("v1beta3", {_GRACE: SLOW_NODES}), _arguments("v1beta4", listed)]


def _arguments(version: str, arguments: Any) -> dict[str, Any]:
    managers = {"controllerManager": {"extraArgs": arguments}}
    return {"apiVersion": f"{_KUBEADM}/{version}", "kind": "ClusterConfiguration", **managers}
