"""Tests of the YAML files that users apply: the files can be parsed, they fit each other, and the pinned images support
everything in them.
"""

import pytest

from ome_operator import api, keys
from ome_operator.engines.flags import command_line
from tests.support.shipped import CONFIG, RUNTIME, SEED, documents, pairs, problems, rank, runtime, servers_words

COMMAND_LINES = {
    "docker.io/lmsysorg/sglang:v0.5.23": "sglang-0.5.23",
    "docker.io/lmsysorg/sglang:v0.4.9.post2-cu126": "sglang-0.4.9.post2",
    "docker.io/lmsysorg/sgl-model-gateway:v0.3.2": "sglang-router-0.3.2",
    "docker.io/lightseekorg/smg:1.13.0": "smg-1.13.0",
    "local/sglang-cpu:0.5.23": "sglang-0.5.23",
    "local/sglang-router:0.3.2": "sglang-router-0.3.2",
    "docker.io/vllm/vllm-openai:v0.17.1": "vllm-0.17.1",
    "docker.io/vllm/vllm-openai:v0.32.0": "vllm-0.32.0",
    "nvcr.io/nvidia/tensorrt-llm/release:1.2.1": "tensorrt-llm-1.2.1",
    "docker.io/approachingai/ktransformers:v0.3.2-AVX512": "ktransformers-0.3.2",
}
PLAIN = ("Namespace", "PersistentVolume", "PersistentVolumeClaim", "ConfigMap")
"""Kinds of Kubernetes itself that samples bring along."""


ALL = sorted(str(path.relative_to(CONFIG)) for path in CONFIG.rglob("*.yaml"))
RUNTIMES = [path for path in ALL if path.startswith("runtimes/")]


@pytest.mark.parametrize("path", ALL)
def test_every_file_contains_only_named_objects_of_this_project(path: str) -> None:
    for one in documents(path):
        assert one["metadata"]["name"]
        assert one["apiVersion"] == keys.API_VERSION or one["kind"] in PLAIN


@pytest.mark.parametrize("path", ALL)
def test_operator_parses_every_shipped_file(path: str) -> None:
    kinds = (api.InferenceService, api.Model, api.Runtime, api.AcceleratorClass, api.BenchmarkJob)
    for one in documents(path):
        if one["kind"] not in PLAIN:
            kind = next(each for each in kinds if one["kind"] in each.KINDS)
            assert not isinstance(parsed := kind.parse(one), api.Invalid), parsed


PARTS = ("engineConfig", "decoderConfig", "routerConfig")


@pytest.mark.parametrize(("path", "part"), [(path, part) for path in RUNTIMES for part in PARTS if part in runtime(path)])
def test_every_shipped_flag_exists_in_the_pinned_engine_version(path: str, part: str) -> None:
    component = runtime(path)[part]
    image = component["runner"]["image"]
    assert image in COMMAND_LINES, f"{path}: extract the flags of {image} into ome_operator/engines/data"
    for ranks in ("leader", "worker"):
        assert problems(command_line(COMMAND_LINES[image]), servers_words(rank(component, ranks))) == []


def test_flag_check_finds_invalid_flags() -> None:
    line = command_line("sglang-0.5.23")
    assert problems(line, ["--enable-deepep-moe"]) == ["--enable-deepep-moe is unknown"]
    assert len(problems(line, ["--enable-dp-attention", "--enable-eplb=1", "--tp-size", "--deepep-mode=fast"])) == 4
    with pytest.raises(KeyError):
        command_line("sglang-0.0.1")


def test_the_three_files_of_the_demo_fit_each_other() -> None:
    model = documents("models/moonshotai/Kimi-K2-Instruct.yaml")[0]
    served = documents(RUNTIME)[0]
    namespace, service = documents("samples/isvc/moonshotai/kimi-k2-pd.yaml")
    assert service["metadata"]["namespace"] == namespace["metadata"]["name"]
    assert service["spec"]["model"] == {"kind": model["kind"], "name": model["metadata"]["name"]}
    assert service["spec"]["runtime"] == {"kind": served["kind"], "name": served["metadata"]["name"]}
    for component in (keys.ENGINE, keys.DECODER, keys.ROUTER):
        assert service["spec"][component] == {"minReplicas": 1, "maxReplicas": 1}
        assert f"{component}Config" in served["spec"]


@pytest.mark.parametrize(("model", "fits"), [("Instruct", True), ("Base", True), ("Thinking", False)])
def test_shipped_runtimes_support_their_intended_models(model: str, fits: bool) -> None:
    spec = documents(f"models/moonshotai/Kimi-K2-{model}.yaml")[0]["spec"]
    assert spec["storage"]["storageUri"] == f"hf://moonshotai/Kimi-K2-{model}"
    for path in (RUNTIME, SEED):
        form = runtime(path)["supportedModelFormats"][0]
        names = ("modelFormat", "modelFramework", "modelArchitecture", "quantization")
        assert all(form[name] == spec[name] for name in names) is fits


def test_mini_load_balancer_gets_the_addresses_of_both_roles() -> None:
    *_, service = documents("samples/isvc/moonshotai/kimi-k2-pd-lb.yaml")
    args = service["spec"]["router"]["runner"]["args"]
    assert problems(command_line("sglang-router-0.3.2"), args) == []
    said = dict(pairs(args))
    prefill = runtime(RUNTIME)["engineConfig"]
    assert said["--prefill"] == ["http://$(ENGINE_LEADER_ADDRESS):30000", prefill["annotations"][keys.BOOTSTRAP_PORT]]
    assert said["--decode"] == ["http://$(DECODER_LEADER_ADDRESS):30000"]
    assert {"--mini-lb", "--pd-disaggregation"} <= said.keys()
