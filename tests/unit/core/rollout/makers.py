"""Children and pods of slices."""

from typing import Any

from ome_operator import keys
from ome_operator.core.observed.objects import Child, Pod
from ome_operator.core.render import meta

UID = "u"


def child(kind: str, name: str, owner: str = UID, revision: str = "r1", deleting: bool = False, **labels: str) -> Child:
    """A stored object of a slice."""
    every = {
        **meta.labels("svc", "engine", revision),
        **{{"index": keys.WORKER_INDEX, "group": keys.GROUP_INDEX}[k]: v for k, v in labels.items()},
    }
    return Child(kind, "team", name, f"uid-{name}", 1, owner, every, "h", "h", deleting, 1, "", None)


def pod(name: str, rank: int = 0, group: int = 0, component: str = "engine", **more: Any) -> Pod:
    """A pod of a slice."""
    fields = {
        "revision": "r1",
        "workload": "w",
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


ROUTER = child("Deployment", "router")
LEADERS = child("StatefulSet", "leaders", index="0")
WORKERS = child("StatefulSet", "workers", group="0")
BUDGET = child("PodDisruptionBudget", "budget")
