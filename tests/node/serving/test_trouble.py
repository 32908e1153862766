"""Tests of failures that happen only on real nodes, and of the status about them: volumes that cannot be mounted, and
engines that exit immediately.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from ome_local.realnode.spec import PLACED
from tests.node.serving.test_benchmarks import sample
from tests.support import yamls
from tests.support.busybox import REFERENCE
from tests.support.rig import Rig

SPACE = "trouble"
WORDS = "sglang serve: error: unrecognized arguments: --max-runing-requests=16"
ENDS = f"sleep 3; echo '{WORDS}' >&2; exit 2"
"""A command that runs for a moment before it fails. Between two runs, the status must still show how it ended."""
WATCHED_S = 45.0


@pytest.fixture(scope="module")
def place(serving: Rig) -> Iterator[str]:
    """Yield a namespace, with a runtime of small pods for real nodes, and a model whose directory no node has."""
    serving.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    box = {**yamls.container(image=REFERENCE), "command": ["/bin/sh", "-c", ENDS], "args": []}
    box["readinessProbe"] = {"exec": {"command": ["/bin/sh", "-c", "exit 1"]}}  # or else it would be ready until it exits
    router = {"runner": {**box, "name": "router"}, **PLACED}
    runtime = {"engineConfig": {"runner": box, **PLACED}, "routerConfig": router}
    serving.cluster.apply(
        {"apiVersion": yamls.API, "kind": "ClusterServingRuntime", "metadata": {"name": "ends"}, "spec": runtime}
    )
    nope = yamls.model("nope")
    nope["spec"]["storage"]["path"] = "/var/lib/ome/models/nope"
    serving.cluster.apply(nope)
    nodes = ("label", "node", *serving.cluster.real_nodes)
    serving.cluster.kubectl(*nodes, "models.ome.io/clusterbasemodel.nope=Ready")
    yield SPACE
    serving.cluster.kubectl("delete", "namespace", SPACE)
    serving.cluster.kubectl("delete", "clusterservingruntime/ends", "clusterbasemodel/nope")
    serving.cluster.kubectl(*nodes, "models.ome.io/clusterbasemodel.nope-")


def test_missing_model_directory_is_reported_in_the_service_status(serving: Rig, place: str) -> None:
    """A pod cannot start because the directory of its model does not exist, and the status of the service says so. The
    kubelet reports this only in an Event; the status of the pod stays at ContainerCreating.
    """
    serving.create(yamls.service(place, "absent", "ends", "engine", model="nope"))
    told = serving.wait_for_condition(
        place, "absent", "EngineReady", "FailedMount", "/var/lib/ome/models/nope is not a directory", 60
    )
    assert "1 pod cannot mount a volume" in told["message"]
    assert serving.condition(place, "absent", "Ready")["reason"] == "FailedMount"
    serving.delete("InferenceService", place, "absent")


@pytest.mark.parametrize("component", ["engine", "router"])
def test_last_termination_is_shown_while_a_container_crashes_repeatedly(serving: Rig, place: str, component: str) -> None:
    parts: dict[str, Any] = {"engine": {"lifecycle": {"restartPolicy": "None"}}}
    if component == "router":
        parts = {"engine": {"runner": {"command": ["/bin/sh", "-c", "sleep 3600"]}}, "router": {}}
    serving.create(yamls.service(place, component, "ends", *parts, model="kimi-k2-tiny", **parts))
    condition = {"engine": "EngineReady", "router": "RouterReady"}[component]
    serving.wait("it ends", lambda: WORDS in serving.condition(place, component, condition).get("message", ""), 60)
    until, seen = time.monotonic() + WATCHED_S, set[str]()
    while time.monotonic() < until:
        message = serving.condition(place, component, condition)["message"]
        assert WORDS in message, f"forgotten: {message}"
        seen.add(message)
        time.sleep(0.5)
    assert any("it was restarted" in message for message in seen), seen
    serving.delete("InferenceService", place, component)


def test_missing_result_directory_is_reported_in_the_benchmark_status(serving: Rig, tiny: str) -> None:
    where = "/var/lib/ome/nowhere"
    body = sample("kimi-k2-tiny.yaml", "nowhere", outputLocation={"storageUri": f"local://{where}"})
    namespace = body["metadata"]["namespace"]
    serving.cluster.apply(body)

    def told() -> bool:
        status = (serving.get("BenchmarkJob", namespace, "nowhere") or {}).get("status", {})
        said = next((each for each in status.get("conditions") or () if each["type"] == "Complete"), {"reason": ""})
        return said["reason"] == "FailedMount" and f"{where} is not a directory" in said["message"]

    serving.wait("its condition names the directory", told, 90)
    serving.delete("BenchmarkJob", namespace, "nowhere")
