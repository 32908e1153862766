"""Returns a manager of reconciliations that has a sample for every metric of the operator."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from ome_operator import keys
from ome_operator.cache.cluster_cache import KINDS, RECORD
from ome_operator.cache.resources import SERVICE
from ome_operator.controllers.base import CORE
from ome_operator.controllers.conflicting_operators import ConflictingOperators
from ome_operator.controllers.manager import Manager
from ome_operator.controllers.policies import Policies
from ome_operator.core.observed.objects import Ref
from ome_operator.machinery.metrics import Metrics
from ome_operator.settings import Settings
from tests.support import yamls
from tests.support.fake_api import FakeApi

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
BEGAN = "2026-01-01T11:00:00Z"
Body = dict[str, Any]


def condition(kind: str, status: str = "True", reason: str = "Serving", since: str = BEGAN) -> Body:
    return {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": since}


def group(index: int = 0, phase: str = "Ready", component: str = keys.ENGINE, **more: Any) -> Body:
    place = {"component": component, "revision": "r1", "index": index, "node": "n1"}
    return {"name": f"svc-{component}-{index}", "phase": phase, **place, **more}


def service(name: str = "svc", namespace: str = "team", *conditions: Body, **status: Any) -> Body:
    body = yamls.service(namespace, name, "rt")
    body["metadata"] |= {
        "uid": f"{namespace}-{name}", "resourceVersion": "1", "generation": 1, "creationTimestamp": BEGAN,
    }  # fmt: skip
    return body | {"status": {"conditions": list(conditions), **status}}


def again(body: Body, **status: Any) -> Body:
    """Return the object with the next resourceVersion, and with these fields in its status."""
    version = str(int(body["metadata"]["resourceVersion"]) + 1)
    return {
        **body,
        "metadata": {**body["metadata"], "resourceVersion": version},
        "status": {**body["status"], **status},
    }


def pod(name: str = "svc-0-0", service: str = "svc", namespace: str = "team", gpus: int = 8, node: str = "n1") -> Body:
    labels = {
        keys.SERVICE: service, keys.COMPONENT: keys.ENGINE, keys.REVISION: "r1", keys.MANAGED_BY: keys.MANAGER,
        keys.GROUP_INDEX: "0", keys.WORKER_INDEX: "0", keys.POD_INDEX: "0",
    }  # fmt: skip
    at = {kind: f"2026-01-01T11:{minute:02}:00Z" for kind, minute in (("PodScheduled", 2), ("Ready", 9))}
    return {
        "metadata": {
            "name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "resourceVersion": "1", "labels": labels,
            "creationTimestamp": "2026-01-01T11:01:00Z",
            "ownerReferences": [{"kind": "StatefulSet", "name": f"{service}-engine-r1-0", "uid": "set", "controller": True}],
        },
        "spec": {"nodeName": node, "containers": [yamls.container(gpus=gpus)]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": kind, "status": "True", "lastTransitionTime": moment} for kind, moment in at.items()],
            "containerStatuses": [
                {"name": "ome-container", "ready": True, "state": {"running": {"startedAt": "2026-01-01T11:05:00Z"}}}
            ],
        },
    }  # fmt: skip


def revision(size: int = 1, gpus: int = 8, service: str = "svc", namespace: str = "team") -> Body:
    """Return the ControllerRevision r1 as it is stored."""
    role = {"metadata": {"name": "svc"}, "spec": {"template": {"spec": {"containers": [yamls.container(gpus=gpus)]}}}}
    workloads = {keys.ENGINE: {"size": size, "port": 1, "leader": role, "worker": role if size > 1 else None}}
    labels = {keys.SERVICE: service, keys.REVISION: "r1", keys.MANAGED_BY: keys.MANAGER}
    owner = {"kind": SERVICE, "name": service, "uid": f"{namespace}-{service}", "controller": True}
    metadata = {"name": f"{service}-r1", "namespace": namespace, "labels": labels, "ownerReferences": [owner]}
    return {
        "metadata": metadata | {"uid": f"{namespace}-{service}-r1", "resourceVersion": "1"},
        "data": {"workloads": workloads},
    }


def node(name: str = "n1", gpus: int = 8, ready: bool = True) -> Body:
    return {
        "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def record(name: str = "n1", *models: Body) -> Body:
    return {"metadata": {"name": name, "uid": f"record-{name}", "resourceVersion": "1"}, "status": {"models": list(models)}}


def holding(state: str = "Updating", got: int = 3, total: int = 10, speed: int = 2) -> Body:
    model = {"kind": "ClusterBaseModel", "name": "m"}
    return model | {"state": state, "bytes": got, "total": total, "speed": speed}


class Rig:
    """A manager and its metrics. A reconciliation of each new object runs at once."""

    def __init__(self, **settings: Any) -> None:
        self.metrics = Metrics()
        self.manager = Manager(Settings(**settings), CORE, FakeApi(), self.metrics, lambda: NOW, KINDS)

    def see(self, kind: str, *bodies: Body) -> None:
        for body in bodies:
            self.manager.handle_object(kind, body)
            metadata = body["metadata"]
            self.passed(kind, metadata["name"], metadata.get("namespace", ""))

    def gone(self, kind: str, body: Body) -> None:
        self.manager._handler.handle_deleted(kind, body["metadata"]["uid"])
        self.passed(kind, body["metadata"]["name"], body["metadata"].get("namespace", ""))

    def passed(self, kind: str, name: str, namespace: str = "") -> None:
        self.manager._metrics_collector.update_metrics(Ref(kind, namespace, name))

    def watch(self) -> None:
        told: Any = SimpleNamespace(
            last_event={"Pod": 0.0}, events={"Pod": 1}, watched_namespaces={"team": 1.0}, unparsed_counts=Counter(Pod=1)
        )
        self.manager.watch_metrics(told)

    def text(self) -> str:
        return asyncio.run(self.metrics.page())

    def samples(self) -> dict[str, float]:
        lines = (line.rpartition(" ") for line in self.text().splitlines() if not line.startswith("#"))
        return {name: float(number) for name, _, number in lines}


def everything() -> Rig:
    """Return a manager after reconciliations through which each metric has a sample."""
    rig = Rig()
    metrics = rig.metrics
    metrics.leader.set(1)
    metrics.lags.observe(0.001)
    metrics.stalls.observe(0.3)
    for result in ("ok", "error"):
        metrics.record_pass(SERVICE, result, 0.1)
    for code in (0, 500):
        metrics.request("patch", "Service", code, 0.1)
    rig.watch()
    policies: Any = SimpleNamespace(found={"ome-operator": "binds"})
    policies._counts = lambda: Policies._counts(policies)
    Policies.watch_metrics(policies, metrics)
    rivals: Any = SimpleNamespace(found={"ome": "ome/ome-operator of pod"})
    ConflictingOperators.watch_metrics(rivals, metrics)
    rig.see("Node", node())
    rig.see(RECORD, record("n1", holding()))
    rig.see("Pod", pod())
    rig.see("ControllerRevision", revision())
    told = condition("RolledOut", "False", "RollingOut"), condition("Advice", reason="NoEffect")
    demand, moved = condition("FollowsDemand", reason="Follows"), condition("Moved", "False", "NoSpareNodes")
    transfers = condition("TransfersWork", "False", "TransfersFail")
    first = service(
        "svc",
        "team",
        condition("Ready", "False", "Starting"),
        *told,
        demand,
        moved,
        transfers,
        groups=[group(phase="Starting")],
    )
    rig.see(SERVICE, first)
    start = {"time": BEGAN, "seconds": 50, "parts": [{"name": "imports", "seconds": 20}]}
    components = {"engine": {"replicas": 1, "updateRevision": "r1", "latestReadyRevision": "r1"}}
    later = again(
        first, conditions=[condition("Ready", since="2026-01-01T11:10:00Z"), *told, demand, moved, transfers],
        components=components,
        groups=[group(incarnation=1, recycles=1, lastFailure={"reason": "OOMKilled"}, start=start)],
        placement={"waiting": {"engine": 1}, "first": BEGAN}, scaling={"mode": "Apply", "hold": "Hole"},
    )  # fmt: skip
    rig.see(
        SERVICE,
        later,
        service("broken", "team", condition("Ready", "False", "RecycleLimit"), groups=[group(phase="Failed")]),
        service("short", "team", condition("Ready"), condition("Scaled", "False", "WaitingForRoom")),
    )
    return rig


def families(text: str) -> dict[str, tuple[str, str]]:
    """Return the type and help text of each metric of a page. A counter is listed by the name of its series."""
    helps, kinds = (_told(text, word) for word in ("HELP", "TYPE"))
    return {name: (kinds[name], helps[name]) for name in kinds}


def _told(text: str, word: str) -> dict[str, str]:
    lines: Iterable[list[str]] = (line.split(" ", 3) for line in text.splitlines() if line.startswith(f"# {word} "))
    return {name: rest for _, _, name, rest in lines}
