"""Test of the three files of docs/your-own-model.md on a real node: a user's own model generates tokens.

The files differ from the page only in what a machine without GPUs and without Internet access requires: the image and the
arguments of an engine for CPUs, memory instead of GPUs, and the model's directory and architecture.
"""

import re
from typing import Any

import yaml

from ome_local import tinymodel
from tests.node.serving.conftest import ON_OUR_NODE, READY_WITHIN_S, RUNTIME, address, reached, tokens
from tests.support.parts import ROOT, read_documents
from tests.support.rig import Rig

BLOCKS: list[str] = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/your-own-model.md").read_text(), re.S)
_CPU = ("--device=cpu", "--max-total-tokens=2048", "--disable-overlap-schedule", "--sleep-on-idle", "--trust-remote-code")


def files(rig: Rig) -> list[dict[str, Any]]:
    model, runtime, service = (yaml.safe_load(block) for block in BLOCKS)
    place = str(rig.cluster.models / tinymodel.NAME)
    model["spec"] |= {"modelArchitecture": "DeepseekV3ForCausalLM"}
    model["spec"]["storage"] = {"storageUri": f"local://{place}", "path": place}
    (supported,), config = runtime["spec"]["supportedModelFormats"], runtime["spec"]["engineConfig"]
    supported["modelArchitecture"] = "DeepseekV3ForCausalLM"
    (shipped,) = read_documents(ROOT / RUNTIME)
    config["runner"] |= {
        "image": shipped["spec"]["engineConfig"]["runner"]["image"],
        "args": [*(word for word in config["runner"]["args"] if "--tp-size" not in word), *_CPU],
        "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "4Gi"}},
    }
    config |= {name: shipped["spec"]["engineConfig"][name] for name in ("tolerations", "affinity", "nodeSelector") if name in
               shipped["spec"]["engineConfig"]}  # fmt: skip
    return [model, runtime, service]


@ON_OUR_NODE
def test_documented_manifests_of_an_own_model_serve_tokens(serving: Rig) -> None:
    model, runtime, service = files(serving)
    label = f"models.ome.io/clusterbasemodel.{model['metadata']['name']}=Ready"
    serving.cluster.kubectl("label", "node", *serving.cluster.real_nodes, label)
    try:
        for body in (model, runtime, service):
            serving.cluster.apply(body)
        serving.ready("default", "acme", READY_WITHIN_S)
        url = address(serving, "default", "acme")
        serving.wait("kube-proxy knows the endpoints", lambda: reached(url) or bool(tokens(url, "Hello")), 30)
        assert tokens(url, "Hello"), "the engine answers with tokens"
    finally:
        serving.delete("InferenceService", "default", "acme")
        serving.delete("ClusterServingRuntime", "", runtime["metadata"]["name"])
        serving.delete("ClusterBaseModel", "", model["metadata"]["name"])
