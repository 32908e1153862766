"""Tests of the condition Ready on a real API server: it stays True while requests are answered, and Scaled reports missing
groups.
"""

from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from ome_local import stages
from ome_operator.cli.app import app
from tests.support import yamls
from tests.support.rig import Manifest, Rig

NAME = "steady"
SLOW = {"annotations": {stages.START_DELAY: "3s"}}
NODE = "h200-00"


@pytest.fixture(scope="module", autouse=True)
def runtimes(installed: Rig) -> Iterator[None]:
    bodies = [yamls.runtime("r-gpus", gpus=8, decoder=True), yamls.runtime("r-pairs", size=2)]
    for body in bodies:
        installed.create(body)
    yield
    for body in bodies:
        installed.delete("ClusterServingRuntime", "", body["metadata"]["name"])


def ome(rig: Rig, *words: str, code: int = 0) -> str:
    """Run a command against the cluster, and return its output."""
    done = CliRunner().invoke(app, [*words, "--kubeconfig", str(rig.cluster.kubeconfig)])
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


def ready(rig: Rig, namespace: str) -> Manifest:
    """Return the condition Ready without the generation, which changes with every edit."""
    found = rig.condition(namespace, NAME, "Ready")
    return {key: found.get(key) for key in ("status", "reason", "lastTransitionTime")}


def short(rig: Rig, namespace: str, reason: str) -> None:
    """Wait until the condition Scaled reports missing groups with this reason, and check that all other conditions are those
    of a service that serves.
    """
    rig.wait_for_condition(namespace, NAME, "Scaled", reason)
    url = f"http://{NAME}.{namespace}.svc.cluster.local:8080"
    shown = ome(rig, "status", NAME, "-n", namespace)
    assert url in shown and reason in shown
    columns = rig.cluster.kubectl("get", "isvc", NAME, "-n", namespace, "--no-headers").split()
    assert columns[1:3] == ["True", "Serving"] and reason in columns and url in columns
    assert f"is Ready, and groups are missing: {reason}" in ome(rig, "explain", NAME, "-n", namespace)


def test_unschedulable_second_prefill_group_does_not_affect_readiness(rig: Rig, namespace: str) -> None:
    engine = {"nodeSelector": {"kubernetes.io/hostname": NODE}}
    rig.create(yamls.service(namespace, NAME, "r-gpus", "engine", "decoder", "router", engine=engine))
    rig.ready(namespace, NAME, 60)
    before = ready(rig, namespace)
    rig.patch("InferenceService", namespace, NAME, {"spec": {"engine": {"minReplicas": 2}}})
    short(rig, namespace, "DoesNotFit")
    rig.wait_until_quiet()
    assert ready(rig, namespace) == before
    rig.patch("InferenceService", namespace, NAME, {"spec": {"engine": {"minReplicas": 1}}})
    rig.ready(namespace, NAME, 60)
    assert ready(rig, namespace) == before


def test_frozen_service_stays_ready_with_missing_groups(rig: Rig, namespace: str) -> None:
    rig.create(yamls.service(namespace, NAME, "r-pairs"))
    rig.ready(namespace, NAME, 60)
    before = ready(rig, namespace)
    ome(rig, "freeze", f"{namespace}/{NAME}")
    rig.patch("InferenceService", namespace, NAME, {"spec": {"engine": {"minReplicas": 2}}})
    short(rig, namespace, "Frozen")
    ome(rig, "thaw", f"{namespace}/{NAME}")
    rig.ready(namespace, NAME, 60)
    assert ready(rig, namespace) == before


def test_loss_of_one_of_two_groups_keeps_ready_but_loss_of_the_last_does_not(rig: Rig, namespace: str) -> None:
    rig.create(yamls.service(namespace, NAME, "r-pairs", engine={"minReplicas": 2, **SLOW}))
    rig.ready(namespace, NAME, 60)
    before = ready(rig, namespace)
    leaders = [pod for pod in rig.all("Pod", namespace, "component=engine") if "-w-" not in pod["metadata"]["name"]]
    rig.delete("Pod", namespace, leaders[0]["metadata"]["name"])
    rig.wait("a group is missing", lambda: rig.condition(namespace, NAME, "Scaled").get("status") == "False")
    rig.ready(namespace, NAME, 60)
    assert ready(rig, namespace) == before, "Ready was True all the time"
    for pod in rig.all("Pod", namespace, "component=engine"):
        rig.delete("Pod", namespace, pod["metadata"]["name"])
    rig.wait("nothing serves", lambda: ready(rig, namespace)["status"] == "False")
    ome(rig, "status", NAME, "-n", namespace, code=1)
    rig.ready(namespace, NAME, 60)
    assert ready(rig, namespace)["lastTransitionTime"] > before["lastTransitionTime"]
