"""Queues of Kueue with a quota of GPUs, and what Kueue has decided about pods."""

from collections.abc import Mapping
from typing import Any

from ome_operator import keys
from tests.support import yamls
from tests.support.rig import Manifest, Rig

GROUP = "kueue.x-k8s.io/v1beta2"
GATE = "kueue.x-k8s.io/admission"
API = f"/apis/{GROUP}"
GPU = "nvidia.com/gpu"


def create(rig: Rig, namespace: str, gpus: int, *, preempts: bool = False) -> None:
    """Create a queue in this namespace, with the namespace's name and its own quota. If `preempts` is true, Workloads
    preempt others with a lower priority.
    """
    flavor = {"metadata": {"name": namespace}, "spec": {}}
    rig.api.create(f"{API}/resourceflavors", {"apiVersion": GROUP, "kind": "ResourceFlavor", **flavor})
    quota = {"name": namespace, "resources": [{"name": GPU, "nominalQuota": gpus}]}
    spec: Manifest = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": [GPU], "flavors": [quota]}]}
    if preempts:
        spec["preemption"] = {"withinClusterQueue": "LowerPriority"}
    body = {"apiVersion": GROUP, "kind": "ClusterQueue", "metadata": {"name": namespace}, "spec": spec}
    rig.api.create(f"{API}/clusterqueues", body)
    local = {"metadata": {"name": namespace, "namespace": namespace}, "spec": {"clusterQueue": namespace}}
    rig.api.create(f"{API}/namespaces/{namespace}/localqueues", {"apiVersion": GROUP, "kind": "LocalQueue", **local})


def resize(rig: Rig, namespace: str, gpus: int) -> None:
    """Change the quota of the queue."""
    quota = {"name": namespace, "resources": [{"name": GPU, "nominalQuota": gpus}]}
    spec = {"resourceGroups": [{"coveredResources": [GPU], "flavors": [quota]}]}
    rig.api.request("PATCH", f"{API}/clusterqueues/{namespace}", {"spec": spec}, "application/merge-patch+json")


def priority(rig: Rig, name: str, value: int) -> str:
    """Create a WorkloadPriorityClass, and return its name."""
    body = {"apiVersion": GROUP, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
    rig.api.create(f"{API}/workloadpriorityclasses", body)
    return name


def stateful_set(namespace: str, name: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Manifest:
    """Return a StatefulSet of two pods with 8 GPUs each."""
    own = {"app": name}
    template = {
        "metadata": {"labels": {**own, **labels}, "annotations": dict(annotations)},
        "spec": {"containers": [yamls.container(gpus=8)], "terminationGracePeriodSeconds": 1},
    }
    spec = {"replicas": 2, "podManagementPolicy": "Parallel", "selector": {"matchLabels": own}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def reserved_gpus(rig: Rig, namespace: str) -> int:
    """Return the number of GPUs in the queue's quota that Kueue has reserved for admitted pods."""
    status = rig.api.get(f"{API}/clusterqueues/{namespace}").get("status") or {}
    return sum(int(each["total"]) for one in status.get("flavorsReservation") or () for each in one["resources"])


def workloads(rig: Rig, namespace: str) -> dict[str, Manifest]:
    """Return Kueue's Workloads by name."""
    return {one["metadata"]["name"]: one for one in rig.api.get(f"{API}/namespaces/{namespace}/workloads")["items"]}


def condition(workload: Manifest, type_: str) -> str:
    """Return the status of a condition of a Workload; "" if it has no such condition."""
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return next((str(one["status"]) for one in conditions if one["type"] == type_), "")


def gated(pod: Manifest) -> bool:
    """Return whether Kueue has not admitted a pod yet."""
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or ())


Group = tuple[str, str, str]
"""Revision, component and number of a group."""


def groups(rig: Rig, namespace: str) -> dict[Group, list[Manifest]]:
    """Return (revision, component, number) -> pods of each engine group, without pods that are being deleted."""
    found: dict[Group, list[Manifest]] = {}
    for pod in rig.all("Pod", namespace, f"{keys.SERVICE},{keys.COMPONENT}!={keys.ROUTER}"):
        labels = pod["metadata"]["labels"]
        if "deletionTimestamp" not in pod["metadata"]:
            found.setdefault((labels[keys.REVISION], labels[keys.COMPONENT], labels[keys.GROUP_INDEX]), []).append(pod)
    return found


def role(queue: str = "", **more: Any) -> Manifest:
    """Return the spec of an engine or decoder with the fields `more`. Its pods wait in the Kueue queue `queue`; if that is
    "", they use no queue.
    """
    return {"labels": {keys.KUEUE_LABEL: queue}, **more} if queue else more
