"""Ask the autoscalers of nodes to keep the nodes of a component's pods (`nodeScaleDown: Forbid`).

The annotations are written to running pods and not to pod templates, so that a change of the field restarts no pod. A mark
on each pod lists the annotations that the operator wrote; annotations of users are neither changed nor removed.
"""

from collections.abc import Iterator, Mapping

from ome_operator import keys
from ome_operator.core.observed.objects import Pod
from ome_operator.core.reconcile.plan import Patch
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.resolve.scaling import ReplicaPolicy

FORBIDDEN = {keys.KARPENTER_KEEP: "true", keys.AUTOSCALER_EVICT: "false"}
"""Annotations with which Karpenter and cluster-autoscaler do not remove the node of a pod."""


def patches(snapshot: Snapshot, policies: Mapping[str, ReplicaPolicy]) -> Iterator[Patch]:
    """Yield the patches that add the annotations `FORBIDDEN` to pods of the service, or remove them. `policies` maps the
    components in the spec of the service to their replica policies.
    """
    for pod in snapshot.pods:
        policy = policies.get(pod.component)
        if policy is None or pod.deleting:
            continue
        if changes := _changes(pod, forbidden=policy.node_scale_down == "Forbid"):
            yield Patch("Pod", pod.name, pod.uid, {"metadata": {"annotations": changes}})


def _changes(pod: Pod, *, forbidden: bool) -> dict[str, str | None]:
    if forbidden == bool(pod.scale_down_mark):
        return {}
    if not forbidden:
        written = pod.scale_down_mark.split(",")
        return {**{key: None for key in FORBIDDEN if key in written}, keys.SCALE_DOWN_MARK: None}
    missing = {key: value for key, value in FORBIDDEN.items() if key not in pod.scale_down}
    return {**missing, keys.SCALE_DOWN_MARK: ",".join(missing)} if missing else {}
