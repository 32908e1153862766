"""Simulates writes and failures of kubelets, because the simulated nodes restart and lose nothing by themselves."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from tests.conftest import SOAK
from tests.support.rig import Manifest, Rig, is_ready, path

MERGE = "application/merge-patch+json"
KWOK = "kwok.x-k8s.io/node"


def write_status(rig: Rig, pod: Manifest, change: Callable[[Manifest], None]) -> None:
    """Change a pod's status, as its kubelet would."""
    where = path("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"])
    status = rig.api.get(where)["status"]
    change(status)
    rig.api.request("PATCH", f"{where}/status", {"status": status}, MERGE)


def silent(status: Manifest) -> None:
    """Let the readiness probe fail."""
    for one in status["conditions"]:
        if one["type"] in ("Ready", "ContainersReady"):
            one["status"] = "False"
    status["containerStatuses"][0]["ready"] = False


def exited(status: Manifest) -> None:
    """Let the main container end with code 0 and run again."""
    (main,) = status["containerStatuses"]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    words = "Scheduler hit an exception\nValueError: lost"
    ended = {"exitCode": 0, "reason": "Completed", "message": words, "startedAt": now, "finishedAt": now}
    main |= {"restartCount": 1, "lastState": {"terminated": ended}}


def ended(restarts: int, ago: float) -> Callable[[Manifest], None]:
    """Let the main container end with code 1, some seconds ago, and wait for its next restart."""

    def change(status: Manifest) -> None:
        silent(status)
        when = (datetime.now(UTC) - timedelta(seconds=ago)).strftime("%Y-%m-%dT%H:%M:%SZ")
        last = {"exitCode": 1, "reason": "Error", "startedAt": when, "finishedAt": when}
        waits = {"waiting": {"reason": "CrashLoopBackOff"}}
        status["containerStatuses"][0] |= {"restartCount": restarts, "state": waits, "lastState": {"terminated": last}}

    return change


def evicted(status: Manifest) -> None:
    """Let the kubelet evict the pod because of memory pressure."""
    status |= {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}


def lose(rig: Rig, node: str) -> None:
    """Stop simulating this node's kubelet, and wait until the node is reported as lost."""
    rig.patch("Node", "", node, {"metadata": {"annotations": {KWOK: None}}})
    rig.cluster.set_stages()  # kwok stops simulating the node
    where = path("Node", "", node)
    conditions = rig.api.get(where)["status"]["conditions"]
    silent = [{**one, "status": "Unknown"} if one["type"] == "Ready" else one for one in conditions]
    rig.api.request("PATCH", f"{where}/status", {"status": {"conditions": silent}}, MERGE)
    rig.wait("the node is lost", lambda: not reports(rig, node))


def reports(rig: Rig, node: str) -> bool:
    """Return whether the node's condition Ready is True."""
    return is_ready(rig.get("Node", "", node) or {})


@contextmanager
def tainted(rig: Rig, node: str) -> Iterator[None]:
    """Add a taint that evicts every pod, inside the `with` block."""
    rig.patch("Node", "", node, {"spec": {"taints": [{"key": "test", "effect": "NoExecute"}]}})
    try:
        yield
    finally:
        rig.patch("Node", "", node, {"spec": {"taints": None}})


@contextmanager
def deleted(rig: Rig, node: str) -> Iterator[None]:
    """Delete a machine and its Node inside the `with` block. Kubernetes removes the pods after a minute."""
    body = rig.get("Node", "", node) or {}
    rig.delete("Node", "", node)
    try:
        if not SOAK:  # they end at once
            for pod in rig.all("Pod", ""):
                if pod["spec"].get("nodeName") == node:
                    rig.delete("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"], gracePeriodSeconds=0)
        yield
    finally:
        kept = {part: body["metadata"][part] for part in ("name", "labels", "annotations")}
        rig.create({"apiVersion": "v1", "kind": "Node", "metadata": kept, "status": body["status"]})
        rig.wait("the node is back", lambda: reports(rig, node))
