"""Tests of slow, failing and crashing components of a real control plane: the operator creates the same objects as without a
fault, and nothing that works is lost.
"""

import signal
import time
from collections.abc import Iterator

import pytest

from ome_local import stages
from tests.support import yamls
from tests.support.rig import Rig

SLOW = {"engine": {"annotations": {stages.START_DELAY: "3s"}}}


@pytest.fixture(scope="module", autouse=True)
def runtimes(installed: Rig) -> Iterator[None]:
    bodies = [yamls.runtime("f-single"), yamls.runtime("f-pairs", size=2, decoder=True)]
    for body in bodies:
        installed.create(body)
    yield
    for body in bodies:
        installed.delete("ClusterServingRuntime", "", body["metadata"]["name"])


def objects(rig: Rig, namespace: str, service: str) -> set[tuple[str, str]]:
    """Return the kinds and names of the objects of a service. The prefix with the service's name is removed."""
    kinds = ("StatefulSet", "Deployment", "Service", "PodDisruptionBudget", "Role", "RoleBinding", "ServiceAccount")
    names = ((kind, one["metadata"]["name"]) for kind in kinds for one in rig.all(kind, namespace))
    return {(kind, name.removeprefix(service)) for kind, name in names if name.startswith(service)}


def test_ready_waits_for_the_last_pod(rig: Rig, namespace: str) -> None:
    rig.create(yamls.service(namespace, "slow", "f-single", **SLOW))
    rig.wait_for_condition(namespace, "slow", "EngineReady", "Progressing", "engine 0/1: 1 pod starting")
    rig.wait("router", lambda: rig.condition(namespace, "slow", "RouterReady").get("status") == "True")
    assert rig.condition(namespace, "slow", "Ready")["status"] == "False"
    rig.ready(namespace, "slow")


def test_image_pull_failure_and_crash_are_reported(rig: Rig, namespace: str) -> None:
    labels = {"ome.io/inferenceservice": "pull", "component": "engine"}
    rig.cluster.set_stages(stages.never_ready(labels, message="no such tag"))
    try:
        rig.create(yamls.service(namespace, "pull", "f-single"))
        told = rig.wait_for_condition(namespace, "pull", "EngineReady", "ImagePullBackOff", "no such tag")
        assert told["message"].startswith("engine 0/1: 1 pod cannot pull")
    finally:
        rig.cluster.set_stages()
    labels = {"ome.io/inferenceservice": "crash", "component": "engine"}
    rig.cluster.set_stages(stages.crash(labels, exit_code=137, reason="OOMKilled", message="out of memory", after_s=1))
    try:
        rig.create(yamls.service(namespace, "crash", "f-single"))
        rig.wait_for_condition(namespace, "crash", "EngineReady", "CrashLoopBackOff", "137")
    finally:
        rig.cluster.set_stages()


@pytest.mark.parametrize("kill", [False, True], ids=["undisturbed", "operator-killed"])
def test_next_slice_waits_for_slowly_terminating_pods(rig: Rig, namespace: str, kill: bool) -> None:
    labels = {"ome.io/inferenceservice": "tail", "component": "decoder"}
    rig.cluster.set_stages(stages.terminate(4, labels))
    try:
        rig.create(yamls.service(namespace, "tail", "f-pairs", "engine", "decoder", "router"))
        old = rig.ready(namespace, "tail")["status"]["revision"]
        rig.patch("InferenceService", namespace, "tail", {"spec": {"engine": {"runner": {"image": "engine:2"}}}})
        rig.wait_for_condition(namespace, "tail", "RolledOut", "RetiringOldSlice", old)
        if kill:
            rig.restart()
        mixed = []

        def rolled() -> bool:
            pods = rig.all("Pod", namespace)
            engines = [pod["metadata"]["labels"] for pod in pods if pod["metadata"]["labels"]["component"] != "router"]
            here = {one["ome.io/revision"] for one in engines}
            if len(here) > 1:
                mixed.append(here)
            return bool(here) and old not in here and rig.condition(namespace, "tail", "RolledOut").get("status") == "True"

        rig.wait("rolled", rolled, 60, often=True)
        assert not mixed
        rig.ready(namespace, "tail")
    finally:
        rig.cluster.set_stages()


def test_service_becomes_ready_although_the_operator_is_killed(rig: Rig, namespace: str) -> None:
    rig.create(yamls.service(namespace, "plain", "f-pairs", "engine", "decoder", "router"))
    rig.ready(namespace, "plain")
    rig.create(yamls.service(namespace, "torn", "f-pairs", "engine", "decoder", "router"))
    rig.wait("begun", lambda: rig.all("ControllerRevision", namespace, "ome.io/inferenceservice=torn"))
    rig.restart()
    rig.ready(namespace, "torn", 40)
    needed = {one for one in objects(rig, namespace, "plain") if one[0] != "PodDisruptionBudget"}
    assert needed and needed <= objects(rig, namespace, "torn"), "Ready needs all objects"
    rig.wait("budgets", lambda: objects(rig, namespace, "torn") == objects(rig, namespace, "plain"))


def lease(rig: Rig) -> str:
    """Return the time of the operator's last renewal of its Lease."""
    found = rig.api.get("/apis/coordination.k8s.io/v1/namespaces/ome/leases/ome-operator")
    return str(found["spec"]["renewTime"])


def test_serving_pods_are_kept_when_the_api_server_is_killed(rig: Rig, namespace: str) -> None:
    rig.create(yamls.service(namespace, "stay", "f-pairs", "engine", "decoder", "router"))
    rig.ready(namespace, "stay")
    pods = {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace)}
    rig.create(yamls.service(namespace, "born", "f-single"))
    renewed = lease(rig)
    rig.wait("the Lease is fresh", lambda: lease(rig) != renewed)  # An outage may take most of this time.
    killed = time.monotonic()
    rig.cluster.restart("apiserver", signal.SIGKILL)
    rig.api = rig.cluster.api()
    if (
        time.monotonic() - killed > 5
    ):  # On a busy machine, an operator that cannot renew its Lease for 10 s exits and is restarted.
        rig.restart()
        rig.wait_for_leader()
    rig.ready(namespace, "born", 60)
    rig.patch("InferenceService", namespace, "born", {"spec": {"engine": {"minReplicas": 2}}})
    rig.wait("scaled", lambda: rig.condition(namespace, "born", "EngineReady").get("message") == "engine 2/2 pods ready", 40)
    kept = {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace, "ome.io/inferenceservice=stay")}
    assert kept == pods
    assert rig.cluster.process("operator"), "the operator ended"
