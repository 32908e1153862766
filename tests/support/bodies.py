"""A cluster in memory that tests read through a fake API client, and functions that return objects as a real API server
does.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from ome_operator import keys
from ome_operator.cli.live.board import ClusterState, board
from ome_operator.cli.ui.server import PodReaders
from ome_operator.core.observed.objects import Pod
from ome_operator.core.reconcile.sync import sync
from ome_operator.kube.errors import NotFound, Transient
from ome_operator.kube.podlogs import LogLine, LogWindow
from tests.support.fake_api import Call, FakeApi
from tests.support.live import Live
from tests.support.simulator import World

Manifest = dict[str, Any]
NOW = datetime.now(UTC).replace(microsecond=0)
BYTES = 1_029_173_256_192


AGENTS = f"app.kubernetes.io/name={keys.AGENT}"
"""Label selector of the pods of model agents."""


@dataclass
class Cluster:
    """The objects of the cluster, by kind. Tests add, change and remove objects."""

    objects: dict[str, list[Manifest]] = field(default_factory=dict)
    logs: dict[str, list[str]] = field(default_factory=dict)
    """Pod → its last log lines."""
    summaries: dict[str, str | Exception] = field(default_factory=dict)
    """Pod of a router → the summary of its registry."""
    refused: dict[str, Exception] = field(default_factory=dict)
    """Kind -> the error with which the API server answers requests for it."""

    def add(self, kind: str, *bodies: Manifest) -> None:
        self.objects.setdefault(kind, []).extend(bodies)

    def api(self) -> FakeApi:
        """Return a client that reads the cluster's objects. Its writes do not change them."""

        def listed(call: Call) -> Any:
            if call.kind in self.refused:
                return self.refused[call.kind]
            found = self.objects.get(call.kind, [])
            if call.selector == AGENTS:
                found = [
                    body for body in found if body["metadata"].get("labels", {}).get("app.kubernetes.io/name") == keys.AGENT
                ]
            return [body for body in found if call.namespace in ("", body["metadata"].get("namespace", ""))]

        def got(call: Call) -> Any:
            found = [body for body in listed(call) if body["metadata"]["name"] == call.name]
            return found[0] if found else NotFound(f"{call.kind} {call.name} not found", 404)

        return Namespaced({"list_objects": listed, "get": got})

    async def read(self, _: str, pod: str, container: str, log_window: LogWindow) -> Any:
        """Return the log lines of a pod, as `Logs.lines` does."""
        if pod not in self.logs:
            raise NotFound(f'container "{container}" in pod "{pod}" is waiting to start: ContainerCreating', 404)
        for text in self.logs[pod][-(log_window.tail or 100) :]:
            yield LogLine("2026-01-01T00:00:00Z", text)

    async def page(self, _: str, pod: str, port: int, page: str) -> str:
        """Return an HTTP page of a pod, as `PodPages.text` does."""
        found = self.summaries.get(pod) if page == "summary" else None
        if isinstance(found, str):
            return found
        raise found or Transient(f"dial tcp: {pod}:{port}: connection refused")

    def reads(self) -> PodReaders:
        """Return the two functions that read logs and HTTP pages of pods."""
        return PodReaders(self.read, self.page)

    def seen(self) -> ClusterState:
        """Return the ClusterState from which `ome ui` makes its pages, as it is computed from the cluster's objects."""
        read = {kind: (bodies, "") for kind, bodies in self.objects.items()}
        return board(NOW, "", self.objects["InferenceService"], read)

    def vanish(self, namespace: str) -> None:
        """Delete a namespace with everything in it."""
        for bodies in self.objects.values():
            bodies[:] = [body for body in bodies if body["metadata"].get("namespace") != namespace]


class Namespaced(FakeApi):
    """A fake API client that passes the namespace of each list request to the configured answer, so that a list can be
    limited to its namespace.
    """

    async def list_objects(
        self, kind: str, namespace: str = "", *, label_selector: str = "", field_selector: str = "", limit: int = 0
    ) -> list[Manifest]:
        selector = label_selector or field_selector
        return list(await self._answer(Call("list_objects", kind, "", selector=selector, namespace=namespace)))


# --- bodies as a real API server returns them -----------------------------------------------------------------------------


def ago(**time: float) -> str:
    """Return the time NOW minus `time`, in RFC 3339. `time` are arguments of timedelta, such as `minutes=5`."""
    return (NOW - timedelta(**time)).isoformat()


def child(live: Live, uid: str, **since: float) -> Manifest:
    """Return an object of the simulated cluster as an API server returns it: with the service of the UID `uid` as its
    owner, and created the time `since` ago (see `ago`; three days if it is not given).
    """
    metadata = {**live.manifest["metadata"], "uid": f"{uid}.{live.uid}", "resourceVersion": str(live.version)}
    metadata["ownerReferences"] = [{"kind": "InferenceService", "uid": uid, "controller": True, "name": "x"}]
    metadata["creationTimestamp"] = ago(**since or {"days": 3})
    return {**live.manifest, "metadata": metadata}


def pod(facts: Pod) -> Manifest:
    """Return the pod with these facts as an API server returns it. The conditions and the states of its containers follow
    from `facts`: for example, `facts.reason` "CrashLoopBackOff" gives a container that waits for its restart.
    """
    router = facts.component == keys.ROUTER
    labels = {
        keys.MANAGED_BY: keys.MANAGER,
        keys.SERVICE: facts.service,
        keys.COMPONENT: facts.component,
        keys.REVISION: facts.revision,
    }
    if not router:
        labels |= {keys.GROUP_INDEX: str(facts.group), keys.POD_INDEX: str(facts.rank)}
        labels |= {keys.WORKER_INDEX: "0"} if facts.rank == 0 else {}
    metadata: Manifest = {
        "name": facts.name,
        "namespace": facts.namespace,
        "uid": facts.uid,
        "resourceVersion": "7",
        "labels": labels,
        "ownerReferences": [{"kind": "StatefulSet", "name": facts.workload, "uid": facts.workload_uid, "controller": True}],
    }
    if facts.draining:
        metadata["annotations"] = {keys.DRAINING: facts.draining}
    if facts.deleting:
        metadata |= {"deletionTimestamp": ago(seconds=5), "deletionGracePeriodSeconds": 30}
    box = "router" if router else "ome-container"
    spec = {"containers": [{"name": box, "image": "engine:1"}], **({"nodeName": facts.node} if facts.node else {})}
    status = _status(facts, box)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def _status(facts: Pod, box: str) -> Manifest:
    scheduled: Manifest = {"type": "PodScheduled", "status": "True"}
    started = {"running": {"startedAt": ago(minutes=9)}}
    container: Manifest = {"name": box, "ready": facts.ready, "restartCount": facts.restarts, "state": started}
    ready = {"type": "Ready", "status": "True" if facts.ready else "False", "lastTransitionTime": ago(minutes=10)}
    if not facts.node:
        scheduled |= {"status": "False", "reason": facts.reason or "Pending", "message": facts.message}
        return {"phase": "Pending", "conditions": [scheduled]}
    if facts.reason == "CrashLoopBackOff":
        container["state"] = {"waiting": {"reason": facts.reason, "message": "back-off 5m0s restarting failed container"}}
        ended = {"exitCode": 1, "reason": "Error", "message": facts.message, "finishedAt": ago(minutes=1)}
        container["lastState"] = {"terminated": ended}
    elif facts.reason == "ImagePullBackOff":
        container["state"] = {"waiting": {"reason": facts.reason, "message": facts.message}}
    return {"phase": "Running", "conditions": [scheduled, ready], "containerStatuses": [container]}


def service(world: World, pods: Iterable[Pod], name: str, namespace: str, **metadata: Any) -> Manifest:
    """Return the service of `world` as an API server returns it, with the status that the operator writes if the service
    has these pods. `metadata` are fields of the service's metadata.
    """
    found = world.service
    said = sync(found, world.deps, replace(world.observed(), pods=tuple(pods)), world.now).status
    body: Manifest = {
        "apiVersion": keys.API_VERSION,
        "kind": "InferenceService",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": found.uid,
            "generation": found.generation,
            "creationTimestamp": ago(days=21),
            "annotations": dict(found.annotations),
            **metadata,
        },
        "spec": found.spec.dump(),
        "status": dict(said),
    }
    for condition in body["status"]["conditions"]:
        condition["lastTransitionTime"] = ago(minutes=14)
    return body


def node(name: str, *, gpus: int = 8, ready: bool = True, cordoned: bool = False) -> Manifest:
    """Return a node with this number of GPUs. If `ready` is false, its condition Ready is Unknown."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": "NVIDIA-H200"} if gpus else {}},
        "spec": {"unschedulable": True} if cordoned else {},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus)} if gpus else {},
            "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}],
        },
    }


def record(name: str, *models: Manifest) -> Manifest:
    """Return the NodeModels object in which an agent reports about its node."""
    return {
        "apiVersion": keys.API_VERSION,
        "kind": "NodeModels",
        "metadata": {"name": name},
        "status": {"models": [*models]},
    }


def held(model: str, state: str = "Ready", part: float = 1.0, **more: Any) -> Manifest:
    """Return the entry of one model in the NodeModels object of a node. `part` is the share of the model's bytes that the
    node already has, and `more` are further fields of the entry.
    """
    found = {"kind": "ClusterBaseModel", "name": model, "uri": f"hf://x/{model}", "revision": "abc", "state": state}
    return {**found, "bytes": int(BYTES * part), "total": BYTES, **more}


def event(of: Manifest, reason: str, message: str, type_: str = "Warning", **since: float) -> Manifest:
    """Return an event about the object `of`. `since` is how long ago the event happened, as arguments of `ago`."""
    metadata = of["metadata"]
    about = {"kind": of["kind"], "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.{reason}", "namespace": metadata["namespace"]},
        "involvedObject": about,
        "type": type_,
        "reason": reason,
        "message": message,
        "count": 3,
        "lastTimestamp": ago(**since or {"minutes": 2}),
    }
