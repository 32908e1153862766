"""Tests of services that name no runtime: which one the operator selects, on a real API server."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import yamls
from tests.support.rig import IMAGE, ROOT, Rig

FACTS = {
    "architecture": "DeepseekV3ForCausalLM",
    "parameters": 1026408232448,
    "parameterSize": "1.03T",
    "quantization": {"name": "fp8", "bits": 8},
    "format": {"name": "safetensors", "version": "1.0.0"},
    "framework": {"name": "transformers"},
}


def runtime(name: str, namespace: str, **format_: Any) -> yamls.Manifest:
    """Return a runtime of one namespace that supports the format of models like FACTS."""
    body = yamls.runtime(name)
    wanted = {"modelArchitecture": "DeepseekV3ForCausalLM", "quantization": "fp8", "autoSelect": True, **format_}
    body["spec"]["supportedModelFormats"][0] |= wanted
    return {**body, "kind": "ServingRuntime", "metadata": {"name": name, "namespace": namespace}}


def learned(rig: Rig, model: str) -> None:
    """Write the facts of the model's files into its record, as an agent does."""
    patch = json.dumps({"status": {"facts": FACTS}})
    rig.cluster.kubectl("patch", "clusterbasemodels.ome.io", model, "--subresource=status", "--type=merge", "-p", patch)


def on_nodes(rig: Rig, label: str, value: str | None = "Ready") -> None:
    """Set a label of models on all nodes to `value`; None removes the label."""
    for node in rig.all("Node", ""):
        rig.patch("Node", "", node["metadata"]["name"], {"metadata": {"labels": {f"models.ome.io/{label}": value}}})


@pytest.fixture
def model(rig: Rig, namespace: str) -> Iterator[str]:
    """Yield the name of a model that every node has, and whose facts are not known yet."""
    name = f"model-{namespace}"
    body = yamls.model(name)
    del body["spec"]["modelFormat"]
    rig.create(body)
    on_nodes(rig, f"clusterbasemodel.{name}")
    yield name
    on_nodes(rig, f"clusterbasemodel.{name}", None)
    rig.delete("ClusterBaseModel", "", name)


def open_service(namespace: str, model: str, **spec: Any) -> yamls.Manifest:
    """Return a service without a runtime."""
    body = yamls.service(namespace, "open", "", model=model, **spec)
    del body["spec"]["runtime"]
    return body


def explained(rig: Rig, folder: Path, service: yamls.Manifest) -> tuple[int, str]:
    """Return the exit code and the output of `ome explain runtime`, run with the kubeconfig of a user."""
    file = folder / "isvc.yaml"
    file.write_text(json.dumps(service))
    command = [sys.executable, "-m", "ome_operator", "explain", "runtime", "-f", str(file)]
    command += ["--kubeconfig", str(rig.cluster.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout


def asked(rig: Rig, *words: str) -> tuple[int, str]:
    """Return exit code and output of an `ome` command."""
    command = [sys.executable, "-m", "ome_operator", *words, "--kubeconfig", str(rig.cluster.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def test_the_best_runtime_is_chosen_once(rig: Rig, namespace: str, model: str, tmp_path: Path) -> None:
    rig.cluster.apply(runtime("other", namespace, modelArchitecture="LlamaForCausalLM"))
    rig.create(open_service(namespace, model))
    rig.wait_for_condition(namespace, "open", "RuntimeReady", "NoRuntimeFits", "asks for")
    learned(rig, model)
    words = "it is for architecture LlamaForCausalLM, but the model has DeepseekV3ForCausalLM"
    rig.wait_for_condition(namespace, "open", "RuntimeReady", "NoRuntimeFits", words)
    code, text = explained(rig, tmp_path, open_service(namespace, model))
    assert code == 1 and f"excluded ServingRuntime other\n           {words}" in text and "nothing fits" in text
    rig.cluster.apply(runtime("mine", namespace))
    code, text = explained(rig, tmp_path, open_service(namespace, model))
    assert code == 0 and "architecture DeepseekV3ForCausalLM, quantization fp8, 1,026.4B parameters" in text
    assert "chosen   ServingRuntime mine" in text
    assert rig.ready(namespace, "open")["status"]["runtime"] == "mine"
    asked = ("get", "-n", namespace, "servingruntime", "mine", "-o", "jsonpath={.status.usedBy[0].name}")
    rig.wait("the runtime knows its user", lambda: rig.cluster.kubectl(*asked) == "open")
    pods = {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace)}
    rig.cluster.apply(runtime("better", namespace, priority=9))
    rig.wait_until_quiet()
    rig.restart()
    rig.wait_for_leader()
    rig.wait_until_quiet()
    assert {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace)} == pods
    assert rig.cluster.kubectl(*asked) == "open"
    rig.cluster.kubectl("delete", "-n", namespace, "servingruntime", "mine")
    rig.wait_for_condition(namespace, "open", "RuntimeReady", "RuntimeNotFound", "which was selected for this service")
    assert rig.condition(namespace, "open", "Ready")["status"] == "True"
    assert {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace)} == pods


def test_sglang_kinds_become_a_model_and_a_service(rig: Rig, namespace: str) -> None:
    name = f"chat-{namespace}"
    source = {"huggingface": {"repo": "somebody/Chat"}}
    api = {"apiVersion": "sglang.ai/v1"}
    rig.cluster.apply({**api, "kind": "ClusterBaseModel", "metadata": {"name": name}, "spec": {"source": source}})
    serving = {"baseModel": name, "runtime": "sglang"}
    rig.cluster.apply({**api, "kind": "Serving", "metadata": {"name": "chat", "namespace": namespace}, "spec": serving})

    def said(what: str, path: str) -> str:
        return rig.cluster.kubectl("get", "-n", namespace, *what.split(), "-o", f"jsonpath={{{path}}}")

    made = rig.wait("a model", lambda: rig.get("ClusterBaseModel", "", name))
    assert made["spec"] == {"storage": {"storageUri": "hf://somebody/Chat"}}
    ready = '.status.conditions[?(@.type=="Ready")].reason'
    rig.wait("why there is none", lambda: said("servings.sglang.ai chat", ready) == "NoRuntimeFits")
    assert "NoRuntimeFits" in rig.cluster.kubectl("get", "-n", namespace, "servings.sglang.ai", "chat"), "a column says so"
    for command in (("status", "chat"), ("explain", "chat"), ("status",)):
        code, text = asked(rig, *command, "-n", namespace)
        assert code == 1 and "NoRuntimeFits" in text and "chat" in text, text
    assert "agent.enabled=true" in text and "in spec.runtime" in text
    learned(rig, name)
    on_nodes(rig, f"clusterbasemodel.{name}")
    body = runtime("pair", namespace)
    body["spec"]["engineConfig"]["runner"]["command"] = ["python3", "-m", "sglang.launch_server"]
    rig.cluster.apply(body)
    rig.ready(namespace, "chat")
    service = rig.get("InferenceService", namespace, "chat") or {}
    assert set(service["spec"]) == {"model", "engine", "router"}
    rig.wait("status back", lambda: said("servings.sglang.ai chat", ready) == "Serving")
    assert said("servings.sglang.ai chat", ".status.url") == service["status"]["url"]
    rig.wait("the model's too", lambda: said(f"clusterbasemodels.sglang.ai {name}", ".status.state") == "Ready")
    rig.cluster.kubectl("delete", "-n", namespace, "servings.sglang.ai", "chat")
    rig.wait("the service goes with it", lambda: rig.get("InferenceService", namespace, "chat") is None)
    rig.cluster.kubectl("delete", "clusterbasemodels.sglang.ai", name)
    rig.wait("the model goes with it", lambda: rig.get("ClusterBaseModel", "", name) is None)
    on_nodes(rig, f"clusterbasemodel.{name}", None)


def test_chart_contains_facts_of_well_known_models_and_no_other_objects(rig: Rig) -> None:
    def rendered(*more: str) -> tuple[dict[str, Any], dict[str, Any], set[str]]:
        chart = rig.cluster.helm("template", "ome", str(ROOT / "charts/ome-resources"), "-n", "ome", *IMAGE, *more)
        bodies = [body for body in yaml.safe_load_all(chart) if body]
        maps = {body["metadata"]["name"]: body for body in bodies if body["kind"] == "ConfigMap"}
        (deployment,) = [body for body in bodies if body["kind"] == "Deployment"]
        return maps, deployment["spec"]["template"], {body["kind"] for body in bodies}

    maps, pod, kinds = rendered()
    assert kinds.isdisjoint({"ClusterBaseModel", "BaseModel"})
    (data,) = [body["data"] for body in maps.values()]
    assert data == {"well-known-models.yaml": (ROOT / "ome_operator/api/data/well-known-models.yaml").read_text()}
    box = pod["spec"]["containers"][0]
    (mount,) = [one for one in box["volumeMounts"] if one["name"] == "well-known-models"]
    assert f"--well-known-models={mount['mountPath']}" in box["args"]
    entry = '[{"name": "m", "repositories": ["a/b"], "facts": {"architecture": "X"}}]'
    more, other, _ = rendered("--set-json", f"wellKnownModels.more={entry}")
    (data,) = [body["data"] for body in more.values()]
    assert yaml.safe_load(data["more.yaml"]) == {"models": json.loads(entry)}
    assert other["metadata"]["annotations"] != pod["metadata"]["annotations"], "an edit restarts the operator"
    maps, pod, _ = rendered("--set", "wellKnownModels.enabled=false")
    assert not maps and "--well-known-models=" in pod["spec"]["containers"][0]["args"]


def test_fine_tuned_weights_list_their_services(rig: Rig, namespace: str, model: str) -> None:
    rig.cluster.apply(runtime("mine", namespace))
    learned(rig, model)
    rig.create(open_service(namespace, model))
    rig.ready(namespace, "open")
    weight = f"weight-{namespace}"
    edit = {"spec": {"model": {"fineTunedWeights": [weight]}}}
    rig.patch("InferenceService", namespace, "open", edit)
    rig.wait_for_condition(namespace, "open", "ModelReady", "FineTunedWeightNotFound")
    storage = {"storageUri": "hf://test/poet", "path": "/weights/poet"}
    spec = {"baseModelRef": {"name": model}, "modelType": "LoRA", "storage": storage, "hyperParameters": {}}
    body = {"apiVersion": yamls.API, "kind": "FineTunedWeight", "metadata": {"name": weight}, "spec": spec}
    rig.cluster.apply(body)
    on_nodes(rig, f"finetunedweight.{weight}")
    rig.ready(namespace, "open", 60)

    def mounted() -> bool:
        pods = rig.all("Pod", namespace, "component=engine")
        paths = {one["mountPath"] for pod in pods for one in pod["spec"]["containers"][0]["volumeMounts"]}
        return "/weights/poet" in paths

    rig.wait("mounted", mounted, 60)
    asked = ("get", "finetunedweight", weight, "-o", "jsonpath={.status.usedBy[0].name}")
    rig.wait("the weight knows its user", lambda: rig.cluster.kubectl(*asked) == "open")
    rig.cluster.kubectl("delete", "finetunedweight", weight)
    on_nodes(rig, f"finetunedweight.{weight}", None)
