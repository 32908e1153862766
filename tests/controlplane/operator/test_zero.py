"""Tests of scaling a service to zero and back on a real control plane: the endpoints of its Service, and who wrote which
number.
"""

from typing import Any

from typer.testing import CliRunner

from ome_operator import keys
from ome_operator.cli.app import app
from tests.controlplane.operator.test_life import writers
from tests.support import yamls
from tests.support.rig import Rig

BOUNDS = {"minReplicas": 0, "maxReplicas": 3}


def runtime() -> dict[str, Any]:
    """Return a runtime whose router has a registry."""
    found = yamls.runtime("zero", size=2, decoder=True)
    main = found["spec"]["routerConfig"]["runner"]
    main["command"], main["args"] = ["python3", "-m", "sglang_router.launch_router"], ["--pd-disaggregation", "--port=8080"]
    return found


def scale(rig: Rig, namespace: str, number: int) -> None:
    for role in ("engine", "decoder"):
        rig.cluster.kubectl("scale", "-n", namespace, f"rolescale/zero-{role}", f"--replicas={number}")


def leads_to(rig: Rig, namespace: str) -> tuple[set[int], int]:
    """Return the ports of the Service's endpoints, and the number of addresses that clients may use."""
    found = rig.all("EndpointSlice", namespace, "kubernetes.io/service-name=zero")
    ports = {port["port"] for one in found for port in one["ports"] or ()}
    return ports, sum(each["conditions"]["ready"] for one in found for each in one["endpoints"] or ())


def groups(rig: Rig, namespace: str) -> list[int]:
    """Return the numbers of engine leaders and of decoder leaders."""
    return [len(rig.all("Pod", namespace, f"component={role},{keys.WORKER_INDEX}=0")) for role in ("engine", "decoder")]


def test_service_scales_to_zero_and_back(rig: Rig, namespace: str) -> None:
    rig.create(runtime())
    try:
        rig.create(yamls.service(namespace, "zero", "zero", "engine", "decoder", "router", engine=BOUNDS, decoder=BOUNDS))
        rig.wait("its scales", lambda: rig.get("RoleScale", namespace, "zero-decoder"))
        scale(rig, namespace, 2)
        rig.ready(namespace, "zero")
        rig.wait("the router is an endpoint", lambda: leads_to(rig, namespace) == ({8080}, 1))
        scale(rig, namespace, 0)
        rig.wait("no group", lambda: groups(rig, namespace) == [0, 0], 60)
        rig.wait("the registry is the endpoint", lambda: leads_to(rig, namespace) == ({keys.ANSWER_PORT}, 1))
        status = (rig.get("InferenceService", namespace, "zero") or {})["status"]
        assert status["zero"]["groups"] == {"engine": 2, "decoder": 2} and "since" in status["zero"]
        assert rig.condition(namespace, "zero", "Ready")["reason"] == "ScaledToZero"
        rig.restart()
        words = ["wake", "zero", "-n", namespace, "--kubeconfig", str(rig.cluster.kubeconfig)]
        done = CliRunner().invoke(app, words, catch_exceptions=False)
        assert done.exit_code == 0 and "engine: 2 groups" in done.output, done.output
        rig.ready(namespace, "zero")
        assert groups(rig, namespace) == [2, 2]
        rig.wait("the router is the endpoint again", lambda: leads_to(rig, namespace) == ({8080}, 1))
        wake = (rig.get("InferenceService", namespace, "zero") or {})["status"]["zero"]["wake"]
        assert wake["by"] == "Scale" and wake["servedAfterSeconds"] > 0
        assert "ome-operator" not in writers(rig.get("RoleScale", namespace, "zero-engine") or {})
        assert all(writers(one) <= {"ome-operator"} for one in rig.all("StatefulSet", namespace))
    finally:
        rig.delete("ClusterServingRuntime", "", "zero")
