"""Faults of services, their rollouts and their groups."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from typer.testing import CliRunner

from ome_operator import names
from ome_operator.cli.app import app
from ome_operator.core.observed import from_api
from ome_operator.core.render import meta
from tests.controlplane.alerts.conftest import Bed
from tests.controlplane.alerts.faults.known import fault
from tests.controlplane.alerts.faults.served import SERVICE, engines, served
from tests.support import yamls
from tests.support.kubelet import silent, write_status
from tests.support.rig import Manifest, Rig


def edit(bed: Bed, namespace: str, **engine: Any) -> None:
    """Change the engine of the service."""
    bed.rig.patch("InferenceService", namespace, SERVICE, {"spec": {"engine": engine}})


def speaks(status: Manifest) -> None:
    """Let the readiness probe of a pod succeed again by changing its status, which `silent` had changed."""
    for each in status["conditions"]:
        if each["type"] in ("Ready", "ContainersReady"):
            each["status"] = "True"
    status["containerStatuses"][0]["ready"] = True


@fault("OmeServiceNotReady")
def _(bed: Bed) -> Iterator[None]:
    """A service needs a model that no node has. Afterwards the service names a model that nodes have."""
    namespace = bed.namespace()
    bed.rig.create(yamls.runtime(namespace))
    bed.later(bed.rig.delete, "ClusterServingRuntime", "", namespace)
    bed.later(bed.rig.clear, namespace)
    bed.rig.create(yamls.service(namespace, SERVICE, namespace, model="nobody-has-this"))
    yield
    bed.rig.patch("InferenceService", namespace, SERVICE, {"spec": {"model": {"name": "tiny"}}})
    bed.rig.ready(namespace, SERVICE, 60)


@fault("OmeServiceIncomplete")
def _(bed: Bed) -> Iterator[None]:
    """A quota does not permit the pods of a second group, while the first group continues to serve."""
    namespace = served(bed)
    pods = len(bed.rig.all("Pod", namespace))
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full", "namespace": namespace}}
    bed.rig.create({**quota, "spec": {"hard": {"pods": str(pods)}}})
    edit(bed, namespace, minReplicas=2)
    bed.rig.wait("it is short", lambda: bed.rig.condition(namespace, SERVICE, "Scaled").get("status") == "False", 30)
    yield
    assert bed.rig.condition(namespace, SERVICE, "Ready")["status"] == "True"
    bed.rig.delete("ResourceQuota", namespace, "full")
    edit(bed, namespace, minReplicas=1)
    bed.rig.ready(namespace, SERVICE, 60)


@fault("OmeRolloutFailed")
def _(bed: Bed) -> Iterator[None]:
    """The API server refuses the objects of a new revision of a service, while the old revision continues to serve."""
    namespace = served(bed)
    edit(bed, namespace, runner={"imagePullPolicy": "Sometimes"})
    bed.rig.wait_for_condition(namespace, SERVICE, "RolledOut", "DryRunRefused", "imagePullPolicy")
    yield
    edit(bed, namespace, runner={"imagePullPolicy": "Always"})
    bed.rig.wait("it rolls", lambda: bed.rig.condition(namespace, SERVICE, "RolledOut").get("status") == "True", 60)


@fault("OmeRolloutOld")
def _(bed: Bed) -> Iterator[None]:
    """A new revision requires nodes that do not exist, so the rollout waits, and the old revision continues to serve."""
    namespace = served(bed)
    edit(bed, namespace, nodeSelector={"test.example.com/pool": "b"})
    yield
    edit(bed, namespace, nodeSelector=None)
    bed.rig.wait("it ends", lambda: bed.rig.condition(namespace, SERVICE, "RolledOut").get("status") == "True", 60)


@fault("OmeWaveStopped", alone=False)
def _(bed: Bed) -> Iterator[None]:
    """The API server refuses the objects that an edit of a runtime changes, for each of the runtime's services.
    OmeRolloutFailed fires as well.
    """
    namespace = served(bed)
    refused = {"engineConfig": {"runner": {"imagePullPolicy": "Sometimes"}}}
    bed.rig.patch("ClusterServingRuntime", "", namespace, {"spec": refused})
    yield
    well = {"engineConfig": {"runner": {"imagePullPolicy": "Always"}}}
    bed.rig.patch("ClusterServingRuntime", "", namespace, {"spec": well})


@fault("OmeGroupsFailed")
def _(bed: Bed) -> Iterator[None]:
    """A leader hangs, and `maxRecycles: 0` forbids the operator to delete the pods of its group."""
    namespace = served(bed, engine={"lifecycle": {"hangTimeout": "2s", "maxRecycles": 0}})
    (leader,) = engines(bed.rig, namespace)
    write_status(bed.rig, leader, silent)
    yield
    bed.rig.delete("Pod", namespace, leader["metadata"]["name"])
    bed.rig.ready(namespace, SERVICE, 60)


@fault("OmeSystemicFault")
def _(bed: Bed) -> Iterator[None]:
    """Both leaders of a service stop answering their probes at the same time. Afterwards both answer again."""
    namespace = served(bed, engine={"minReplicas": 2, "lifecycle": {"hangTimeout": "5m"}})
    for leader in engines(bed.rig, namespace):
        write_status(bed.rig, leader, silent)
    yield
    for leader in engines(bed.rig, namespace):
        write_status(bed.rig, leader, speaks)
    bed.rig.ready(namespace, SERVICE, 60)


@fault("OmeGroupsRecycle")
def _(bed: Bed) -> Iterator[None]:
    """A rank exits three times, each time on the same node and while its leader keeps running."""
    node = "h200-00"
    engine = {"lifecycle": {"selfHealTimeout": "1s"}, "leader": {"nodeSelector": {"kubernetes.io/hostname": node}}}
    namespace = served(bed, size=2, engine=engine)
    for _number in range(3):
        lost = next(pod for pod in engines(bed.rig, namespace) if "-w-" in pod["metadata"]["name"])
        bed.rig.delete("Pod", namespace, lost["metadata"]["name"])
        old = lost["metadata"]["uid"]
        bed.rig.wait("the pod is gone", lambda old=old: old not in str(engines(bed.rig, namespace)))
        bed.rig.wait("the service serves", lambda: whole(bed.rig, namespace), 60)
    yield


def whole(rig: Rig, namespace: str) -> bool:
    """Return whether the service has two engine pods, and all of its groups are Ready."""
    status = (rig.get("InferenceService", namespace, SERVICE) or {}).get("status", {})
    groups = status.get("groups", ())
    return bool(groups) and all(each["phase"] == "Ready" for each in groups) and len(engines(rig, namespace)) == 2


@fault("OmeGpusWasted")
def _(bed: Bed) -> Iterator[None]:
    """A leader with GPUs hangs, and `restartPolicy: None` forbids the operator to delete the pods of its group."""
    namespace = served(bed, gpus=8, engine={"lifecycle": {"restartPolicy": "None"}})
    (leader,) = engines(bed.rig, namespace)
    write_status(bed.rig, leader, silent)
    yield
    write_status(bed.rig, leader, speaks)
    bed.rig.ready(namespace, SERVICE, 60)


@fault("OmeGangWaits")
def _(bed: Bed) -> Iterator[None]:
    """Two services compete for 16 nodes, of which each needs 12."""
    namespace = served(bed, size=12, gpus=8)
    bed.rig.create(yamls.service(namespace, "other", namespace))
    yield
    bed.rig.delete("InferenceService", namespace, SERVICE)
    bed.rig.ready(namespace, "other", 120)


@fault("OmeMoveWaits")
def _(bed: Bed) -> Iterator[None]:
    """Cause the alert: a user requests the move of a group of a service that may use only one node. End the alert: the
    service may use a second node, too.
    """
    label, first, second = "test-pool", "h200-02", "h200-03"
    for node in (first, second):
        bed.later(bed.rig.cluster.kubectl, "label", "node", node, f"{label}-")
    bed.rig.cluster.kubectl("label", "node", first, f"{label}=moves")
    engine = {"nodeSelector": {label: "moves"}}
    namespace = served(bed, gpus=8, engine=engine, moves={"timeout": "1h"})
    ome(bed.rig, "move", SERVICE, "engine/0", "-n", namespace)
    bed.rig.wait_for_condition(namespace, SERVICE, "Moved", "NoSpareNodes")
    yield
    bed.rig.cluster.kubectl("label", "node", second, f"{label}=moves")
    bed.rig.wait("it moved", lambda: not bed.rig.condition(namespace, SERVICE, "Moved"), 120)


ROLES = {"prefill": "engine", "decode": "decoder"}
"""Role of an engine -> component."""


class Registry(BaseHTTPRequestHandler):
    """A stand-in for the registry of a router, as an HTTP handler. It reports which pairs of a prefill and a decode leader
    fail to transfer KV caches, and for how long a leader has not answered.
    """

    body: ClassVar[Manifest] = {}
    since: ClassVar[float | None] = None

    def do_GET(self) -> None:
        """Send the summary."""
        silence = {} if self.since is None else {"silence": {"age": 1.0, "seconds": time.monotonic() - self.since}}
        leaders = [{**leader, **silence} for leader in self.body["leaders"]]
        data = json.dumps({**self.body, "leaders": leaders}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@fault("OmeGroupsSilent")
def _(bed: Bed) -> Iterator[None]:
    """A router's registry reports that the only leader does not answer. Later it reports that the leader answers again. The
    registry is a stand-in at the address of the simulated router.
    """
    bed.later(bed.operate)
    bed.operate("--router-watch", "5")
    namespace = served(bed)
    (leader,), (router,) = engines(bed.rig, namespace), bed.rig.all("Pod", namespace, "component=router")
    marked = from_api.pod(router)
    Registry.body = {
        "version": 1, "slice": meta.slice_mark(marked), "strangers": {"found": 0, "age": None}, "router": {}, "omitted": 0,
        "upFor": 3600,
        "leaders": [
            {"id": names.public_digest(leader["metadata"]["uid"]), "role": "regular", "state": "serving", "listed": True}
        ],
    }  # fmt: skip
    Registry.since = time.monotonic()
    with reporting(bed, router):
        yield
        Registry.since = None
        bed.rig.wait("it is heard", lambda: phases(bed.rig, namespace) == ["Ready"], 60)


@contextmanager
def reporting(bed: Bed, router: Manifest) -> Iterator[None]:
    """Let the stand-in registry answer at the address of a simulated router inside the `with` block."""
    with ThreadingHTTPServer(("127.0.0.1", 29001), Registry) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        write_status(bed.rig, router, lambda status: status.update(podIP="127.0.0.1", podIPs=[{"ip": "127.0.0.1"}]))
        yield
        server.shutdown()


@fault("OmeTransfersFail")
def _(bed: Bed) -> Iterator[None]:
    """A router's registry, which is a stand-in, reports that transfers of KV caches between the only prefill group and the
    only decode group fail. Later it reports no failing pair.
    """
    bed.later(bed.operate)
    bed.operate("--router-watch", "5")
    namespace = bed.namespace()
    bed.rig.create(yamls.runtime(namespace, decoder=True))
    bed.later(bed.rig.delete, "ClusterServingRuntime", "", namespace)
    bed.later(bed.rig.clear, namespace)
    bed.rig.create(yamls.service(namespace, SERVICE, namespace, "engine", "decoder", "router"))
    bed.rig.ready(namespace, SERVICE, 60)
    (router,) = bed.rig.all("Pod", namespace, "component=router")
    leaders = [(role, bed.rig.all("Pod", namespace, f"component={part}")[0]) for role, part in ROLES.items()]
    marks = {role: names.public_digest(pod["metadata"]["uid"]) for role, pod in leaders}
    Registry.body = {
        "version": 1, "slice": meta.slice_mark(from_api.pod(router)), "strangers": {"found": 0, "age": None},
        "router": {}, "omitted": 0, "upFor": 3600, "pairs": [{**marks, "probes": 20, "failed": 20}],
        "leaders": [{"id": mark, "role": role, "state": "serving", "listed": True} for role, mark in marks.items()],
    }  # fmt: skip
    with reporting(bed, router):
        bed.rig.wait_for_condition(namespace, SERVICE, "TransfersWork", "TransfersFail", "20 of 20 probes failed")
        yield
        Registry.body = {**Registry.body, "pairs": []}
        bed.rig.wait("the pair works", lambda: not bed.rig.condition(namespace, SERVICE, "TransfersWork"), 60)


def phases(rig: Rig, namespace: str) -> list[str]:
    """Return the phases of the service's groups, as the status has them."""
    status = (rig.get("InferenceService", namespace, SERVICE) or {}).get("status", {})
    return [each["phase"] for each in status.get("groups", ())]


@fault("OmeBrakeForgotten")
def _(bed: Bed) -> Iterator[None]:
    """A user freezes a service, and unfreezes it afterwards."""
    namespace = served(bed)
    ome(bed.rig, "freeze", f"{namespace}/{SERVICE}", "--why", "a test")
    yield
    ome(bed.rig, "thaw", f"{namespace}/{SERVICE}")


def ome(rig: Rig, *words: str) -> None:
    """Run a command against the cluster. It has to succeed."""
    done = CliRunner().invoke(app, [*words, "--kubeconfig", str(rig.cluster.kubeconfig)])
    assert done.exit_code == 0, (done.output, done.exception)
