"""A real fault for each alert that a control plane with simulated nodes can have: it lasts while its context is open.

What no fault here fires is listed with the reason.
"""

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

from typer.testing import CliRunner

from ome_operator import keys
from ome_operator.cli.app import app
from tests.controlplane.alerts.conftest import Bed
from tests.support import hub as hubs
from tests.support import yamls
from tests.support.kubelet import silent, write_status
from tests.support.rig import Manifest, Rig

SERVICE = "svc"


class Fault(NamedTuple):
    """Of an alert."""

    happens: Callable[[Bed], AbstractContextManager[None]]
    alone: bool
    """No other alert fires from its beginning until it has cleared."""


FAULTS: dict[str, Fault] = {}
_ENGINES = "engines with load are needed"
WITHOUT: Mapping[str, str] = {
    "OmePassesFail": "it counts errors that nobody foresaw, and none is known",
    "OmeQueueGrows": "a queue of minutes takes more services than this machine can hold",
    "OmePassesSlow": "not tried yet: an API server that is slow and still renews the Lease",
    "OmeLoopStalls": "a stopped process is no stall for the watchdog, which stops too",
    "OmeRequestsFail": "not tried yet: more than a failed request a second, and a Lease that is renewed",
    "OmeWatchSilent": "not tried yet: a watch that is silent, and that nobody opens anew",
    "OmeObjectsUnread": "the API server takes no object that the operator is known not to read",
    "OmeRouterStranger": "a router's registry is needed: simulated pods run none",
    "OmeEngineQueue": _ENGINES,
    "OmeFirstTokenSlow": _ENGINES,
    "OmeCacheFull": _ENGINES,
    "OmeRouterErrors": "tests/router/test_alert.py has its fault, with a real router",
}


def fault(alert: str, alone: bool = True) -> Callable[[Callable[[Bed], Iterator[None]]], None]:
    """Names what fires an alert."""

    def known(happens: Callable[[Bed], Iterator[None]]) -> None:
        FAULTS[alert] = Fault(contextmanager(happens), alone)

    return known


# --- the operator -------------------------------------------------------------------------------------------------------


@fault("OmeNobodyLeads")
def _(bed: Bed) -> Iterator[None]:
    """It is killed."""
    bed.rig.stop(signal.SIGKILL)
    yield
    bed.operate()


@fault("OmeNamespaceNotWatched")
def _(bed: Bed) -> Iterator[None]:
    """It is to watch a namespace that is not there."""
    there, absent = bed.namespace(), "not-there"
    bed.later(bed.rig.delete, "Namespace", "", absent)
    bed.later(bed.operate)
    bed.later(bed.rig.install)
    bed.rig.install(f"watchNamespaces={{{there}}}")
    bed.operate("--watch-namespace", there, "--watch-namespace", absent)
    yield
    bed.rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": absent}})
    bed.rig.install(f"watchNamespaces={{{there},{absent}}}")
    bed.rig.wait("it is watched", lambda: bed.asked.ask(f'ome_namespace_watched{{namespace="{absent}"}} == 1'), 60)


@fault("OmeRival")
def _(bed: Bed) -> Iterator[None]:
    """Another operator of the same class runs, with a Lease in another namespace."""
    rig, namespace, port = bed.rig, bed.namespace(), bed.rig.port
    rig.start("rival", "--namespace-of-lease", namespace, kubeconfig=rig.cluster.kubeconfig)
    rig.port = port
    yield
    rig.stop(process="rival")


@fault("OmePoliciesAbsent")
def _(bed: Bed) -> Iterator[None]:
    """It runs as an administrator, whom no policy binds."""
    bed.operate(kubeconfig=bed.rig.cluster.kubeconfig)
    yield
    bed.operate()


# --- services -----------------------------------------------------------------------------------------------------------


def served(bed: Bed, size: int = 1, gpus: int = 0, **spec: Any) -> str:
    """A service that is Ready; its namespace, which is its runtime's name too."""
    namespace = bed.namespace()
    bed.rig.create(yamls.runtime(namespace, size=size, gpus=gpus))
    bed.later(bed.rig.delete, "ClusterServingRuntime", "", namespace)
    bed.later(bed.rig.clear, namespace)
    bed.rig.create(yamls.service(namespace, SERVICE, namespace, **spec))
    bed.rig.ready(namespace, SERVICE, 60)
    return namespace


def edit(bed: Bed, namespace: str, **engine: Any) -> None:
    """Change its engine."""
    bed.rig.patch("InferenceService", namespace, SERVICE, {"spec": {"engine": engine}})


def engines(rig: Rig, namespace: str) -> list[Manifest]:
    """Their pods."""
    return rig.all("Pod", namespace, "component=engine")


def speaks(status: Manifest) -> None:
    """The readiness probe succeeds again."""
    for each in status["conditions"]:
        if each["type"] in ("Ready", "ContainersReady"):
            each["status"] = "True"
    status["containerStatuses"][0]["ready"] = True


@fault("OmeServiceNotReady")
def _(bed: Bed) -> Iterator[None]:
    """Nobody has its model; then somebody has."""
    namespace = bed.namespace()
    bed.rig.create(yamls.runtime(namespace))
    bed.later(bed.rig.delete, "ClusterServingRuntime", "", namespace)
    bed.later(bed.rig.clear, namespace)
    bed.rig.create(yamls.service(namespace, SERVICE, namespace, model="nobody-has-this"))
    yield
    bed.rig.patch("InferenceService", namespace, SERVICE, {"spec": {"model": {"name": "tiny"}}})
    bed.rig.ready(namespace, SERVICE, 60)


@fault("OmeRolloutFailed")
def _(bed: Bed) -> Iterator[None]:
    """The API server refuses an edit, and what served serves on."""
    namespace = served(bed)
    edit(bed, namespace, runner={"imagePullPolicy": "Sometimes"})
    bed.rig.says(namespace, SERVICE, "RolledOut", "DryRunRefused", "imagePullPolicy")
    yield
    edit(bed, namespace, runner={"imagePullPolicy": "Always"})
    bed.rig.wait("it rolls", lambda: bed.rig.condition(namespace, SERVICE, "RolledOut").get("status") == "True", 60)


@fault("OmeRolloutOld")
def _(bed: Bed) -> Iterator[None]:
    """An edit asks for nodes that there are not, so it waits, and what served serves on."""
    namespace = served(bed)
    edit(bed, namespace, nodeSelector={"test.example.com/pool": "b"})
    yield
    edit(bed, namespace, nodeSelector=None)
    bed.rig.wait("it ends", lambda: bed.rig.condition(namespace, SERVICE, "RolledOut").get("status") == "True", 60)


@fault("OmeWaveStopped", alone=False)
def _(bed: Bed) -> Iterator[None]:
    """An edit of a runtime that the API server refuses for every service; OmeRolloutFailed fires with it."""
    namespace = served(bed)
    refused = {"engineConfig": {"runner": {"imagePullPolicy": "Sometimes"}}}
    bed.rig.patch("ClusterServingRuntime", "", namespace, {"spec": refused})
    yield
    well = {"engineConfig": {"runner": {"imagePullPolicy": "Always"}}}
    bed.rig.patch("ClusterServingRuntime", "", namespace, {"spec": well})


@fault("OmeGroupsFailed")
def _(bed: Bed) -> Iterator[None]:
    """A leader hangs, and its group may not be recycled."""
    namespace = served(bed, engine={"lifecycle": {"hangTimeout": "2s", "maxRecycles": 0}})
    (leader,) = engines(bed.rig, namespace)
    write_status(bed.rig, leader, silent)
    yield
    bed.rig.delete("Pod", namespace, leader["metadata"]["name"])
    bed.rig.ready(namespace, SERVICE, 60)


@fault("OmeSystemicFault")
def _(bed: Bed) -> Iterator[None]:
    """Both leaders are silent at once, until they speak again."""
    namespace = served(bed, engine={"minReplicas": 2, "lifecycle": {"hangTimeout": "5m"}})
    for leader in engines(bed.rig, namespace):
        write_status(bed.rig, leader, silent)
    yield
    for leader in engines(bed.rig, namespace):
        write_status(bed.rig, leader, speaks)
    bed.rig.ready(namespace, SERVICE, 60)


@fault("OmeGroupsRecycle")
def _(bed: Bed) -> Iterator[None]:
    """A rank is lost three times, always beside a leader on the same node."""
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
    """Whether every group is Ready, and the service too."""
    status = (rig.get("InferenceService", namespace, SERVICE) or {}).get("status", {})
    groups = status.get("groups", ())
    return bool(groups) and all(each["phase"] == "Ready" for each in groups) and len(engines(rig, namespace)) == 2


@fault("OmeGpusWasted")
def _(bed: Bed) -> Iterator[None]:
    """A leader with GPUs hangs, and nothing is recycled."""
    namespace = served(bed, gpus=8, engine={"lifecycle": {"restartPolicy": "None"}})
    (leader,) = engines(bed.rig, namespace)
    write_status(bed.rig, leader, silent)
    yield
    write_status(bed.rig, leader, speaks)
    bed.rig.ready(namespace, SERVICE, 60)


@fault("OmeGangWaits")
def _(bed: Bed) -> Iterator[None]:
    """Two services want 12 of 16 nodes each."""
    namespace = served(bed, size=12, gpus=8)
    bed.rig.create(yamls.service(namespace, "other", namespace))
    yield
    bed.rig.delete("InferenceService", namespace, SERVICE)
    bed.rig.ready(namespace, "other", 120)


@fault("OmeBrakeForgotten")
def _(bed: Bed) -> Iterator[None]:
    """A person freezes a service, and thaws it."""
    namespace = served(bed)
    ome(bed.rig, "freeze", f"{namespace}/{SERVICE}", "--why", "a test")
    yield
    ome(bed.rig, "thaw", f"{namespace}/{SERVICE}")


def ome(rig: Rig, *words: str) -> None:
    """A command against the rig's cluster, which has to succeed."""
    done = CliRunner().invoke(app, [*words, "--kubeconfig", str(rig.cluster.kubeconfig)])
    assert done.exit_code == 0, (done.output, done.exception)


# --- nodes and weights --------------------------------------------------------------------------------------------------


@fault("OmeNodesUnready")
def _(bed: Bed) -> Iterator[None]:
    """A node is cordoned."""
    bed.rig.cluster.kubectl("cordon", "h200-15")
    yield
    bed.rig.cluster.kubectl("uncordon", "h200-15")


NODE = "h200-01"
"""Where an agent runs."""


@contextmanager
def fetching(bed: Bed, uri: str, bytes_: int) -> Iterator[tuple[hubs.Hub, Callable[[], None]]]:
    """A model that this node alone is to hold, its hub, and what starts the node's agent."""
    rig, disk = bed.rig, bed.folder / uri.replace("/", "_")
    bed.later(rig.cluster.kubectl, "label", "node", NODE, f"models.{keys.GROUP}/clusterbasemodel.fetched-")
    bed.later(rig.delete, "NodeModels", "", NODE)
    bed.later(rig.delete, "ClusterBaseModel", "", "fetched")
    bed.later(rig.patch, "ClusterBaseModel", "", "tiny", {"spec": {"storage": {"nodeSelector": None}}})
    elsewhere = {"nodeSelector": {"kubernetes.io/hostname": "h200-00"}}
    rig.patch("ClusterBaseModel", "", "tiny", {"spec": {"storage": elsewhere}})
    model = yamls.model("fetched", uri)
    model["spec"]["storage"] |= {"path": str(disk / "fetched"), "nodeSelector": {"kubernetes.io/hostname": NODE}}
    with hubs.served(hubs.Hub(hubs.model(1, [bytes_]))) as hub:
        argv = [
            sys.executable, "-m", "ome_operator", "agent", "--node", NODE, "--root", str(disk), "--endpoint", hub.url,
            "--private-host", "127.0.0.1", "--private-host", "localhost", "--kubeconfig", str(rig.cluster.kubeconfig),
            "--address", "127.0.0.1", "--port", "0",
        ]  # fmt: skip
        rig.create(model)
        bed.later(rig.stop, process="agent")

        def start() -> None:
            rig.cluster.spawn("agent", argv)

        yield hub, start


def held(rig: Rig) -> list[dict[str, Any]]:
    """What the node's agent says of models."""
    found: list[dict[str, Any]] = (rig.get("NodeModels", "", NODE) or {}).get("status", {}).get("models", [])
    return found


@fault("OmeWeightsFailed")
def _(bed: Bed) -> Iterator[None]:
    """An agent is to fetch a revision that the hub has not; then another that it has."""
    with fetching(bed, "hf://org/model@nope", 20_000) as (_hub, start):
        start()
        bed.rig.wait("it fails", lambda: [each["state"] for each in held(bed.rig)] == ["Failed"], 60)
        yield
        bed.rig.patch("ClusterBaseModel", "", "fetched", {"spec": {"storage": {"storageUri": "hf://org/model"}}})
        bed.rig.wait("it is whole", lambda: [each["state"] for each in held(bed.rig)] == ["Ready"], 60)


@fault("OmeWeightsStall")
def _(bed: Bed) -> Iterator[None]:
    """An agent is killed in the middle of a model, and comes back."""
    with fetching(bed, "hf://org/model", 2_000_000) as (hub, start):
        hub.rate = 50_000
        start()
        bed.rig.wait(
            "it fetches", lambda: any(0 < each.get("bytes", 0) < each.get("total", 0) for each in held(bed.rig)), 60
        )
        bed.rig.stop(signal.SIGKILL, process="agent")
        yield
        hub.rate = 0
        start()
        bed.rig.wait("it is whole", lambda: [each["state"] for each in held(bed.rig)] == ["Ready"], 60)
