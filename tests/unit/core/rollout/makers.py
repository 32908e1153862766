"""Makers of child objects and pods of slices."""

from typing import Any

from ome_operator import keys, names
from ome_operator.core.observed.objects import Child, Pod
from ome_operator.core.render import meta

UID = "u"
STEM = names.object_prefix("svc", "engine", "r1")


def child(kind: str, name: str, owner: str = UID, revision: str = "r1", deleting: bool = False, **labels: str) -> Child:
    """Return a stored object of a slice."""
    every = {
        **meta.labels("svc", "engine", revision),
        **{{"index": keys.WORKER_INDEX, "group": keys.GROUP_INDEX}[k]: v for k, v in labels.items()},
    }
    return Child(kind, "team", name, f"uid-{name}", 1, owner, every, "h", "h", deleting, 1, "", None)


def pod(name: str, rank: int = 0, group: int = 0, component: str = "engine", **more: Any) -> Pod:
    """Return a pod of a slice."""
    fields = {
        "revision": "r1",
        "workload": names.leader(names.object_prefix("svc", component, more.get("revision", "r1")), group),
        "node": "n1",
        "ready": True,
        "deleting": False,
        "grace": 0,
        "workload_uid": "",
        **more,
    }
    return Pod(
        namespace="team", name=name, uid=f"uid-{name}", version=1, service="svc", component=component, group=group,
        rank=rank, restarts=0, reason="", message="", **fields,
    )  # fmt: skip


def leader_set(group: int, stem: str = STEM, **more: Any) -> Child:
    """Return the StatefulSet of a group's leader."""
    return child("StatefulSet", names.leader(stem, group), index="0", group=str(group))._replace(**more)


def worker_set(group: int, stem: str = STEM, **more: Any) -> Child:
    """Return the StatefulSet of a group's workers."""
    return child("StatefulSet", names.worker(stem, group), group=str(group))._replace(**more)


def leader(group: int, **more: Any) -> Pod:
    """Return the leader pod of a group, which belongs to its StatefulSet."""
    made = leader_set(group)
    return pod(names.leader_pod(STEM, group), group=group, **{"workload": made.name, "workload_uid": made.uid, **more})


def worker(group: int, rank: int = 1, **more: Any) -> Pod:
    """Return a worker pod of a group, which belongs to its StatefulSet."""
    made = worker_set(group)
    fields = {"workload": made.name, "workload_uid": made.uid, **more}
    return pod(f"{made.name}-{rank}", rank=rank, group=group, **fields)


ROUTER = child("Deployment", "router")
LEADERS, WORKERS = leader_set(0), worker_set(0)
BUDGET = child("PodDisruptionBudget", "budget")
