"""Tests of agents on the real node with all real parts: a hub, the image of the agent, a Secret, verified files, a label,
and tokens from the downloaded model.
"""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ome_local import tinymodel
from ome_local.images import build
from ome_local.realnode.spec import NAME, PLACED
from ome_operator import names
from ome_operator.storage.addresses import host
from tests.node.conftest import Steps
from tests.node.serving.conftest import ON_OUR_NODE, READY_WITHIN_S, address, tokens
from tests.support import parts, yamls
from tests.support.hub import Hub, certificate, served
from tests.support.rig import ROOT, Rig

pytestmark = [ON_OUR_NODE]
URI, MODEL, SPACE = "hf://org/model", "fetched-tiny", "fetched-tiny"
LABEL = f"models.ome.io/clusterbasemodel.{MODEL}"
TOKEN = "hf_very-secret"
CHART = ("upgrade", "ome", str(ROOT / "charts/ome-resources"), "-n", "ome", "--reuse-values", "--wait", "--timeout=180s")
PRIVILEGED = "pod-security.kubernetes.io/enforce"


@pytest.fixture(scope="module")
def hub(serving: Rig, disk: Path) -> Iterator[Hub]:
    """Yield a hub with the tiny model that pods of the node can reach. It requires a token, so it uses TLS."""
    network = serving.cluster.kept.network
    assert network is not None
    tls = certificate(disk / "tls", (network.host,))
    with served(Hub(tinymodel.files(), token=TOKEN, cdn=network.host), network.host, tls) as made:
        yield made


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory of this machine, which is also on its node."""
    return tmp_path_factory.mktemp("disk")


@pytest.fixture(scope="module")
def agent(serving: Rig, hub: Hub, disk: Path, steps: Steps) -> Iterator[Rig]:
    """Install the chart with agents. While the agents are installed, their namespace admits pods that mount a directory of
    the node.
    """
    with steps.measure("image of the agent, built or from the cache"):
        archive = build.build(["agent"])["agent"]
    with steps.measure("image agent into the node", megabytes=archive.stat().st_size / 1e6):
        serving.cluster.load_image(archive)
    repository, _, tag = build.REFERENCES["agent"].rpartition(":")
    encoded = base64.b64encode(TOKEN.encode()).decode()
    serving.cluster.apply({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hub", "namespace": "ome"}, "data": {"token": encoded},
    })  # fmt: skip
    values = {
        "enabled": True, "image": {"repository": repository, "tag": tag}, "roots": [str(disk)],
        "secrets": [{"name": "hub", "hosts": [host(hub.url)]}], "endpoint": hub.url, "nodeSelector": PLACED["nodeSelector"],
        "env": [{"name": "SSL_CERT_FILE", "value": str(disk / "tls" / "ca.crt")}],
    }  # fmt: skip
    serving.cluster.kubectl("label", "namespace", "ome", "--overwrite", f"{PRIVILEGED}=privileged")
    with steps.measure("helm upgrade with agents, until they run"):
        serving.cluster.helm(*CHART, "--set-json", f"agent={json.dumps(values)}")
    yield serving
    serving.cluster.helm(*CHART, "--set", "agent.enabled=false")
    serving.wait("no agent", lambda: not agents(serving), 60)
    serving.cluster.kubectl("delete", "secret", "hub", "-n", "ome")
    serving.cluster.kubectl("label", "namespace", "ome", "--overwrite", f"{PRIVILEGED}=restricted")


def agents(rig: Rig) -> list[dict[str, Any]]:
    """Return the pods of agents."""
    return rig.all("Pod", "ome", "app.kubernetes.io/name=ome-agent")


def engine() -> dict[str, Any]:
    """Return a runtime in which one server of the tiny model does both prefill and decode."""
    args = ["--model-path=$(MODEL_PATH)", "--device=cpu", "--host=0.0.0.0", "--port=30000", "--max-total-tokens=4096"]
    probe = {"httpGet": {"path": "/health", "port": 30000}, "periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 150}
    runner = {
        "name": "ome-container",
        "image": build.REFERENCES["engine-cpu"],
        "command": ["python3", "-m", "sglang.launch_server"],
        "args": [*args, "--max-running-requests=4", "--sleep-on-idle"],
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        "ports": [{"name": "http", "containerPort": 30000}],
        "startupProbe": probe,
        "readinessProbe": {**probe, "failureThreshold": 3},
        "volumeMounts": [{"name": "dshm", "mountPath": "/dev/shm"}],
    }
    dshm = {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "256Mi"}}
    spec = {"engineConfig": {"runner": runner, "volumes": [dshm], **PLACED}}
    return {"apiVersion": yamls.API, "kind": "ClusterServingRuntime", "metadata": {"name": MODEL}, "spec": spec}


def labels(rig: Rig) -> dict[str, str]:
    """Return the labels of the node that concern the model."""
    found = (rig.get("Node", "", NAME) or {})["metadata"]["labels"]
    return {key: value for key, value in found.items() if key.startswith(LABEL)}


@pytest.mark.timeout(READY_WITHIN_S + 180, func_only=True)
def test_service_starts_with_files_downloaded_by_the_agent(agent: Rig, hub: Hub, disk: Path, steps: Steps) -> None:
    """An agent downloads a model, its record becomes a label of the node, and a service starts with the files. The test sets
    no label.
    """
    model = yamls.model(MODEL, URI)
    where = PLACED["nodeSelector"]  # on all nodes, the revision would wait five minutes for the report of a second agent
    model["spec"]["storage"] = {"storageUri": URI, "path": str(disk / MODEL), "key": "hub", "nodeSelector": where}
    agent.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}, engine())
    try:
        with steps.measure("model applied, until the operator labels the node"):
            agent.create(model)
            whole = {LABEL: "Ready", names.whole_label(LABEL, parts.digest(model)): "Ready"}
            agent.wait("labels", lambda: labels(agent) == whole, 60)
        place = disk / ".ome" / parts.digest(model)
        assert {name: (place / name).read_bytes() for name in hub.files} == hub.files
        with steps.measure("service applied, until it is Ready"):
            agent.create(yamls.service(SPACE, MODEL, MODEL, "engine", model=MODEL))
            agent.ready(SPACE, MODEL, READY_WITHIN_S)
        (pod,) = agent.all("Pod", SPACE)
        assert [one["hostPath"]["path"] for one in pod["spec"]["volumes"] if "hostPath" in one] == [str(place)]
        url = address(agent, SPACE, MODEL)
        agent.wait("tokens", lambda: len(tokens(url, "The future of AI is", 8)) == 8, 60)
        status = (agent.get("ClusterBaseModel", "", MODEL) or {})["status"]
        assert (status["nodesReady"], status["facts"]["modelType"]) == ([NAME], "kimi_k2")
        nothing_tells_the_token(agent)
    finally:
        agent.delete("InferenceService", SPACE, MODEL)
        agent.wait("no pods", lambda: not agent.all("Pod", SPACE), 120)
        agent.delete("ClusterServingRuntime", "", MODEL)
        agent.delete("ClusterBaseModel", "", MODEL)


def nothing_tells_the_token(rig: Rig) -> None:
    """Check that only the Secret contains the token: it is in no object, Event, log or command line, although the agent uses
    it.
    """
    (pod,) = agents(rig)
    seen = {kind: json.dumps(rig.all(kind, "")) for kind in ("ConfigMap", "Event", "Pod", "Node", "NodeModels")}
    seen["agent's log"] = rig.cluster.kubectl("logs", "-n", "ome", pod["metadata"]["name"])
    seen["operator's log"] = rig.cluster.kubectl("logs", "-n", "ome", "deployment/ome-operator")
    inside = "import pathlib; [print(one.read_bytes()) for one in pathlib.Path('/proc').glob('[0-9]*/[ce][mn][dv]*')]"
    seen["processes"] = rig.cluster.kubectl("exec", "-n", "ome", pod["metadata"]["name"], "--", "python3", "-c", inside)
    assert all(seen.values())
    assert [name for name, said in seen.items() if TOKEN in said] == []
