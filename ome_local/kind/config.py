"""The configuration of kind: names, nodes, mounts, address ranges, and the time after which its controllers treat a
silent node as not ready.
"""

import json
from typing import Any

from ome_local.components import SLOW_NODES
from ome_local.layout import Layout
from ome_local.realnode.spec import LABEL, link_name
from ome_local.tinymodel import PLACE

PODS, SERVICES = "10.240.0.0/16", "10.192.0.0/16"
"""Address ranges of pods and of Services. No real node of this package uses these ranges (`realnode/spec.py:Network`),
because a machine can have routes to a kind cluster and to a real node at the same time."""
_KUBEADM = "kubeadm.k8s.io"
_GRACE = "node-monitor-grace-period"
_KINDS_OWN = {"name": "enable-hostpath-provisioner", "value": "true"}
"""An argument of the controller-manager that kind itself writes into the list `extraArgs`. Older versions of kind replace
this list by the list of the patch, so the patch must repeat the argument; newer versions merge lists by name.
"""


def name(at: Layout) -> str:
    """Return the name of the kind cluster. Kind's names are unique per machine, but this package's names are unique per
    home folder. The name therefore contains a digest of the home folder.
    """
    return f"{at.root.name}-{link_name(at.root).removeprefix('ome-')}"


def control_plane(at: Layout) -> str:
    """Return the name of the node that runs the API server."""
    return f"{name(at)}-control-plane"


def real_nodes(at: Layout, workers: int) -> tuple[str, ...]:
    """Return the names of the nodes that run pods: the workers, or the control plane if there are no workers."""
    if not workers:
        return (control_plane(at),)
    return tuple(f"{name(at)}-worker{number if number > 1 else ''}" for number in range(1, workers + 1))


def cluster(at: Layout, workers: int) -> str:
    """Return the configuration for `kind create cluster`, as JSON, which is valid YAML."""
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
    """Return the same patch for both versions of kubeadm's configuration. Kind applies the patch of the version that it
    uses.

    Simulated nodes send heartbeats every ten minutes and have no leases (`stages.py`). With the default grace period of 40
    or 50 s, the nodes and their pods would stay NotReady.
    """
    listed = [{"name": _GRACE, "value": SLOW_NODES}, _KINDS_OWN]
    return [_arguments("v1beta3", {_GRACE: SLOW_NODES}), _arguments("v1beta4", listed)]


def _arguments(version: str, arguments: Any) -> dict[str, Any]:
    managers = {"controllerManager": {"extraArgs": arguments}}
    return {"apiVersion": f"{_KUBEADM}/{version}", "kind": "ClusterConfiguration", **managers}
