"""Tests of serving Kimi K2 on a real control plane with the three files of the announcement with which this project began
(docs/seeds.md). This is the main purpose of the project.
"""

import pytest
import yaml

from tests.support.rig import ROOT, Rig

MODEL = "config/models/moonshotai/Kimi-K2-Instruct.yaml"
SERVICE = "config/samples/isvc/moonshotai/kimi-k2-pd.yaml"
NAME = "kimi-k2-instruct"


@pytest.mark.parametrize("runtime", ["kimi-k2-pd-rt.yaml", "kimi-k2-pd-seed-rt.yaml"])
def test_three_manifests_become_a_service_on_128_gpus(rig: Rig, runtime: str) -> None:
    label = "models.ome.io/clusterbasemodel.kimi-k2-instruct"
    for node in rig.all("Node", ""):
        rig.patch("Node", "", node["metadata"]["name"], {"metadata": {"labels": {label: "Ready"}}})
    runtime_file = ROOT / "config/runtimes/srt" / runtime
    kind_name = next(yaml.safe_load_all(runtime_file.read_text()))["metadata"]["name"]
    try:
        rig.cluster.kubectl("apply", "-f", str(ROOT / MODEL), "-f", str(runtime_file))
        sample = (ROOT / SERVICE).read_text().replace("name: kimi-k2-pd-rt", f"name: {kind_name}")
        rig.cluster.kubectl("apply", "-f", "-", stdin=sample)
        service = rig.ready(NAME, NAME, 60)

        ready = {name: part["ready"] for name, part in service["status"]["components"].items()}
        assert ready == {"engine": "4/4", "decoder": "12/12", "router": "1/1"}
        assert service["status"]["url"] == f"http://{NAME}.{NAME}.svc.cluster.local:8080"
        pods = rig.all("Pod", NAME, "component in (engine,decoder)".replace(" ", "%20"))
        assert len({pod["spec"]["nodeName"] for pod in pods}) == 16
        gpus = [int(box["resources"]["limits"]["nvidia.com/gpu"]) for pod in pods for box in pod["spec"]["containers"]]
        assert sum(gpus) == 128
        ports = [one["port"] for one in rig.get("Service", NAME, NAME)["spec"]["ports"]]  # type: ignore[index]
        assert ports == [80, 8080]
        columns = rig.cluster.kubectl("get", "isvc", "-n", NAME).splitlines()[1].split()
        assert columns[1:8] == ["True", "Serving", NAME, kind_name, "4/4", "12/12", "1/1"]
    finally:
        rig.delete("InferenceService", NAME, NAME)
        kinds = ("Pod", "StatefulSet", "Deployment", "ControllerRevision")
        rig.wait("all gone", lambda: not any(rig.all(kind, NAME) for kind in kinds), 60)


ANNOUNCED = """
apiVersion: "sglang.ai/v1"
kind: "ClusterBaseModel"
metadata:
  name: "kimi-k2-chat"
spec:
  source:
    huggingface:
      repo: "kimi-ai/Kimi-K2-Chat"
---
apiVersion: "sglang.ai/v1"
kind: "ClusterBaseModel"
metadata:
  name: "kimi-k2-base"
spec:
  source:
    huggingface:
      repo: "kimi-ai/Kimi-K2-Base"
"""
SERVED = """
apiVersion: "sglang.ai/v1"
kind: "Serving"
metadata:
  name: "kimi-k2-chat"
spec:
  baseModel: "kimi-k2-chat"
  runtime: "sglang"
"""


def test_announced_objects_become_ready_on_a_default_installation(rig: Rig, namespace: str) -> None:
    """The two objects of the announcement become a ready service with the chart's default values. No agent has read the
    model's files: the chart contains the facts of well-known models, from which the operator selects a runtime.
    """
    label = "models.ome.io/clusterbasemodel.kimi-k2-chat"
    rig.cluster.kubectl("apply", "-f", str(ROOT / "config/runtimes/srt/kimi-k2-pd-rt.yaml"))
    try:
        rig.cluster.kubectl("apply", "-f", "-", stdin=ANNOUNCED)
        rig.cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=SERVED)
        for node in rig.all("Node", ""):
            rig.patch("Node", "", node["metadata"]["name"], {"metadata": {"labels": {label: "Ready"}}})
        service = rig.ready(namespace, "kimi-k2-chat", 60)
        assert service["status"]["runtime"] == "kimi-k2-pd-rt"
        ready = {name: part["ready"] for name, part in service["status"]["components"].items()}
        assert ready == {"engine": "4/4", "decoder": "12/12", "router": "1/1"}
        url = ("get", "-n", namespace, "servings.sglang.ai", "kimi-k2-chat", "-o", "jsonpath={.status.url}")
        rig.wait("the Serving says where", lambda: rig.cluster.kubectl(*url) == service["status"]["url"])
        known = (
            "get",
            "clusterbasemodels.ome.io",
            "kimi-k2-base",
            "-o",
            "jsonpath={.status.architecture} {.status.quantization}",
        )
        rig.wait("the other is known too", lambda: rig.cluster.kubectl(*known) == "DeepseekV3ForCausalLM fp8")
    finally:
        rig.cluster.kubectl("delete", "-n", namespace, "--ignore-not-found", "servings.sglang.ai", "kimi-k2-chat")
        rig.delete("InferenceService", namespace, "kimi-k2-chat")
        rig.cluster.kubectl("delete", "--ignore-not-found", "clusterbasemodels.sglang.ai", "kimi-k2-chat", "kimi-k2-base")
        kinds = ("Pod", "StatefulSet", "Deployment", "ControllerRevision")
        rig.wait("all gone", lambda: not any(rig.all(kind, namespace) for kind in kinds), 60)
        for node in rig.all("Node", ""):
            rig.patch("Node", "", node["metadata"]["name"], {"metadata": {"labels": {label: None}}})


def test_pods_have_group_and_rank_labels_and_variables(rig: Rig, namespace: str) -> None:
    from tests.support import yamls

    rig.create(yamls.runtime("ranks", size=3))
    try:
        rig.create(yamls.service(namespace, "ranks", "ranks", engine={"minReplicas": 2}))
        rig.ready(namespace, "ranks")
        places = {}
        for pod in rig.all("Pod", namespace, "component=engine"):
            labels = pod["metadata"]["labels"]
            rank = labels["apps.kubernetes.io/pod-index"]
            leads = labels.get("leaderworkerset.sigs.k8s.io/worker-index") == "0"
            assert leads == (rank == "0")
            env = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
            places[pod["metadata"]["name"]] = (labels["ome.io/group"], rank, env["LWS_GROUP_SIZE"])
        assert sorted(places.values()) == [(g, r, "3") for g in "01" for r in "012"]
    finally:
        rig.delete("ClusterServingRuntime", "", "ranks")
