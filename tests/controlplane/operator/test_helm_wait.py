"""Tests that Helm 4 waits for an InferenceService: `helm upgrade --wait` succeeds only when the service runs as its spec
requests.

Each case is repeated ten times, because Helm may read the object before the operator has written a status.
"""

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ome_local.cluster import Cluster
from tests.support import works_with, yamls
from tests.support.rig import Rig

pytestmark = [works_with.MINUTES, pytest.mark.timeout(3600)]
TRIES = 10
LIMIT_S = 6
"""Timeout of Helm. Simulated pods are ready after a second."""


class Release(NamedTuple):
    """The result of `helm upgrade --install --wait`: whether the command succeeded, its output, and the seconds that it
    took.
    """

    ok: bool
    text: str
    seconds: float


class Helm:
    """Helm 4 with a chart that contains one object."""

    def __init__(self, cluster: Cluster, chart: Path) -> None:
        self._program, self._chart, self._env = works_with.path(works_with.HELM), chart, cluster.environment()
        (chart / "templates").mkdir(parents=True)
        (chart / "Chart.yaml").write_text("apiVersion: v2\nname: one\nversion: 0.1.0\n")

    def upgrade(self, body: Mapping[str, Any], limit: float = LIMIT_S) -> Release:
        """Install the object as a release with the object's name, and wait for it."""
        (self._chart / "templates" / "one.yaml").write_text(json.dumps(body))
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        command = ["upgrade", "--install", name, str(self._chart), "-n", namespace, "--wait", "--timeout", f"{limit:.0f}s"]
        began = time.monotonic()
        done = subprocess.run(
            [str(self._program), *command], env=self._env, capture_output=True, text=True, timeout=120, check=False
        )
        return Release(done.returncode == 0, done.stdout + done.stderr, time.monotonic() - began)


@pytest.fixture
def helm(rig: Rig, tmp_path: Path) -> Helm:
    return Helm(rig.cluster, tmp_path / "one")


@pytest.fixture
def runtime(rig: Rig, namespace: str) -> Iterator[str]:
    """Yield the name of a runtime with one engine pod and a router."""
    name = f"helm-{namespace}"
    rig.create(yamls.runtime(name))
    yield name
    rig.delete("ClusterServingRuntime", "", name)


def test_helm_waits_for_a_service_that_no_operator_has_reconciled(
    rig: Rig, helm: Helm, namespace: str, runtime: str
) -> None:
    rig.stop()
    found = [helm.upgrade(yamls.service(namespace, f"s{number}", runtime), 3) for number in range(TRIES)]
    assert [one.text for one in found if one.ok] == []
    assert all("status: InProgress, message: no operator has processed this object yet" in one.text for one in found)


def test_helm_waits_for_a_service_without_its_model(rig: Rig, helm: Helm, namespace: str, runtime: str) -> None:
    """Helm waits while the model of a service does not exist. The model may be created a moment after the service, so
    Helm must not fail at once.
    """
    found = [helm.upgrade(yamls.service(namespace, f"s{number}", runtime, model="none"), 4) for number in range(TRIES)]
    assert [one.text for one in found if one.ok] == []
    assert all("status: InProgress, message: ClusterBaseModel none does not exist" in one.text for one in found)


def test_helm_fails_for_an_edit_that_does_not_fit(rig: Rig, helm: Helm, namespace: str, runtime: str) -> None:
    """Helm fails if an edit cannot be rolled out for lack of nodes. The old revision serves, so Ready is True all the time;
    Helm must not take this as success.
    """
    good = yamls.service(namespace, "fits", runtime)
    good["spec"]["engine"] = {"minReplicas": 1}
    for number in range(TRIES):
        deployed = helm.upgrade(good, 60)
        assert deployed.ok, deployed.text
        edited = yamls.service(namespace, "fits", runtime)
        edited["spec"]["engine"] = {"minReplicas": 1, "nodeSelector": {"gpu": f"b{number}"}}
        found = helm.upgrade(edited)
        assert not found.ok and "status: InProgress" in found.text and "does not fit" in found.text, (number, found)
        assert rig.condition(namespace, "fits", "Ready")["status"] == "True"


def test_helm_fails_at_once_if_only_an_edit_can_help(rig: Rig, helm: Helm, namespace: str, runtime: str) -> None:
    for number in range(TRIES):
        body = yamls.service(namespace, f"s{number}", runtime)
        body["spec"]["model"]["kind"] = "Nothing"
        found = helm.upgrade(body, 60)
        assert not found.ok and "status: Failed" in found.text, (number, found)
        assert found.seconds < 30, "Helm does not wait until its timeout"


def test_kubectl_waits_for_the_edited_service(rig: Rig, namespace: str, runtime: str) -> None:
    rig.create(yamls.service(namespace, "waits", runtime))
    kubectl = ("wait", "isvc/waits", "-n", namespace, "--timeout=30s", "--for")
    rig.cluster.kubectl(*kubectl, "condition=Ready")
    rig.patch("InferenceService", namespace, "waits", {"spec": {"engine": {"labels": {"a": "b"}}}})
    rig.cluster.kubectl(*kubectl, "condition=RolledOut")
    rig.cluster.kubectl(*kubectl, "jsonpath={.status.observedGeneration}=2")
