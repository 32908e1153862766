"""Find out whether the pods of a new revision wait for something that only their own service lacks, so that the edit of a
shared object did not cause it: a PersistentVolumeClaim, a quota, or a node (decisions 30).
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ome_operator import quantity
from ome_operator.core.observed.slices import Slice
from ome_operator.core.reasons import Reason
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.render.statefulsets import StoredRole
from ome_operator.core.rollout.intent import Intent
from ome_operator.core.rollout.progress_deadline import Clock
from ome_operator.core.waves.shared_edits import whole_before

QUOTA = "exceeded quota"
"""Part of the message with which the API server refuses a pod because of a ResourceQuota."""
_PLACING = (
    "nodeSelector", "affinity", "tolerations", "schedulerName", "schedulingGates", "topologySpreadConstraints",
    "priorityClassName", "resourceClaims", "resources", "hostNetwork", "runtimeClassName", "overhead",
)  # fmt: skip
"""Fields of a pod spec that determine the nodes on which the pod may run, and the resources that it uses there."""


def waiting_since(snapshot: Snapshot, intent: Intent, clock: Clock, placing: Mapping[str, Any]) -> datetime | None:
    """Return since when pods of the target revision have waited for a volume, a quota or a node. Return None if no pod
    waits, if a container of the target has failed, or if the target requests other nodes, amounts or claims than the
    earlier revisions.

    `placing` is `status.placement` of this pass.
    """
    found = snapshot.slices.get(intent.target, Slice(intent.target, (), ()))
    pods = [pod for pod in found.pods if not pod.deleting]
    if any(pod.restarts or pod.over or (pod.node and not pod.ready and pod.reason not in _STARTS) for pod in pods):
        return None
    homeless = any(not pod.node and pod.reason == Reason.UNSCHEDULABLE for pod in pods)
    keys = {("StatefulSet", child.name) for child in found.workloads}
    refused = any(QUOTA in why for key, why in snapshot.observed.failures.items() if key in keys)
    if not (homeless or refused or placing.get("waiting")) or not _asks_alike(snapshot, intent):
        return None
    began = clock.status_fields.get("since") or placing.get("first")
    return quantity.moment(began, snapshot.now) if began else None


def when_rejected(rejection: Mapping[str, Any], now: datetime) -> datetime | None:
    """Return since when the pods of a rejected revision had waited for a volume, a quota or a node at the time of the
    rejection; None if they did not wait. `rejection` is in the format of the status.
    """
    began = rejection.get("lacksSince")
    return quantity.moment(began, now) if began else None


_STARTS = frozenset({"", Reason.STARTING, Reason.CONTAINER_CREATING})
"""Reasons of pods that are on a node, are starting, and have not failed."""


def _asks_alike(snapshot: Snapshot, intent: Intent) -> bool:
    """Return whether the pods of the target request the same nodes, amounts and claims as the pods of every other revision
    that exists or was complete last. Return False if there is no such revision.
    """
    roles = intent.roles(intent.target)
    others = [intent.roles(name) for name in snapshot.slices if name != intent.target]
    others += [intent.roles(name) for name in whole_before(snapshot.service.status) if name != intent.target]
    return bool(others) and all(_asked(roles) == _asked(other) for other in others if other)


def _asked(roles: Mapping[str, StoredRole]) -> Any:
    return {
        name: [role.size, *(_of_pod(part["spec"]["template"]["spec"]) for part in (role.leader, role.worker) if part)]
        for name, role in roles.items()
    }


def _of_pod(spec: Mapping[str, Any]) -> list[Any]:
    """Return the requirements in a pod spec that have to be met before a container of the pod starts: the resources and host
    ports of its containers, its PersistentVolumeClaims, and the fields in `_PLACING`.
    """
    containers = [
        (one.get("name"), one.get("resources"), [port.get("hostPort") for port in one.get("ports") or ()])
        for field in ("initContainers", "containers")
        for one in spec.get(field) or ()
    ]
    claims = [one for one in spec.get("volumes") or () if one.get("persistentVolumeClaim") or one.get("ephemeral")]
    return [containers, claims, *(spec.get(field) for field in _PLACING)]
