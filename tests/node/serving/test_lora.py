"""Tests of LoRA adapters from FineTunedWeights in the real engine: it loads the adapters that the operator names, and
generates with them.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ome_local import tinymodel
from ome_local.realnode.spec import NAME
from tests.node.conftest import Steps
from tests.node.serving.conftest import ON_OUR_NODE, READY_WITHIN_S, address, post, remove, tokens
from tests.node.serving.test_agent import engine
from tests.support import yamls
from tests.support.rig import Rig

pytestmark = [ON_OUR_NODE]
SPACE = "lora-tiny"
PROMPT = "The future of AI is"
POET, SILENT = "poet", "silent"
"""An adapter that changes the tokens, and an adapter that changes none, because its B matrices are all zero."""
RANK, ALPHA = 8, 16
TARGETS = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj")
"""Modules that SGLang 0.5.23 adapts with plain torch. An adapter of kv_b_proj and of experts needs Triton, and so a GPU."""


def adapter(silent: bool) -> dict[str, bytes]:
    """Return name -> content of the files of an adapter for the tiny model, as PEFT writes them."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in tinymodel.shapes().items():
        module = name.removesuffix(".weight")
        if module.endswith(TARGETS):
            shapes[f"base_model.model.{module}.lora_A.weight"] = (RANK, shape[1])
            shapes[f"base_model.model.{module}.lora_B.weight"] = (shape[0], RANK)
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": ALPHA, "target_modules": TARGETS}
    weights = tinymodel.safetensors(shapes)
    if silent:  # as PEFT initializes adapters before any training: the B matrices are zero
        size = int.from_bytes(weights[:8], "little")
        header, body = json.loads(weights[8 : 8 + size]), bytearray(weights[8 + size :])
        for name, about in header.items():
            if ".lora_B." in name:
                begin, end = about["data_offsets"]
                body[begin:end] = bytes(end - begin)
        weights = weights[: 8 + size] + bytes(body)
    return {"adapter_config.json": json.dumps(config).encode(), "adapter_model.safetensors": weights}


@pytest.fixture(scope="module")
def places() -> Iterator[dict[str, Path]]:
    """Yield the directory of each adapter on this machine, which is also the node. Pods may read it."""
    with tempfile.TemporaryDirectory(prefix="ome-lora-") as top:
        Path(top).chmod(0o755)
        found = {name: Path(top, name) for name in (POET, SILENT)}
        for name, folder in found.items():
            folder.mkdir()
            for file, content in adapter(silent=name == SILENT).items():
                (folder / file).write_bytes(content)
        yield found


def weight(name: str, place: Path) -> dict[str, Any]:
    """Return a FineTunedWeight that is on the node."""
    storage = {"storageUri": f"local://{place}", "path": str(place)}
    spec = {"baseModelRef": {"name": "kimi-k2-tiny"}, "modelType": "LoRA", "storage": storage}
    return {"apiVersion": yamls.API, "kind": "FineTunedWeight", "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def url(serving: Rig, places: dict[str, Path], steps: Steps) -> Iterator[str]:
    """Yield the URL of a service with one server of the tiny model and both adapters."""
    runtime = engine()
    runtime["metadata"]["name"] = SPACE
    # The default, csgmv, needs Triton. The runtime does not name the adapters, because that is the operator's part.
    runtime["spec"]["engineConfig"]["runner"]["args"].append("--lora-backend=torch_native")
    labels = [f"models.ome.io/finetunedweight.{name}" for name in places]
    serving.cluster.kubectl("label", "node", NAME, *(f"{label}=Ready" for label in labels))
    serving.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}, runtime)
    try:
        for name, place in places.items():
            serving.create(weight(name, place))
        body = yamls.service(SPACE, SPACE, SPACE, "engine", model="kimi-k2-tiny")
        body["spec"]["model"]["fineTunedWeights"] = [POET, SILENT]
        with steps.measure("service with two LoRA adapters, apply to Ready"):
            serving.create(body)
            serving.ready(SPACE, SPACE, READY_WITHIN_S)
        found = address(serving, SPACE, SPACE)
        serving.wait("tokens", lambda: tokens(found, PROMPT, 1), 60)
        yield found
    finally:
        remove(serving, SPACE)
        for name in places:
            serving.delete("FineTunedWeight", "", name)
        serving.delete("ClusterServingRuntime", "", SPACE)
        serving.cluster.kubectl("label", "node", NAME, *(f"{label}-" for label in labels))


def with_adapter(url: str, name: str) -> list[int]:
    """Return the token IDs that the model generates at temperature 0 with an adapter."""
    body = {"text": PROMPT, "lora_path": name, "sampling_params": {"temperature": 0, "max_new_tokens": 16}}
    found: list[int] = post(f"{url}/generate", body)["output_ids"]
    return found


def test_lora_adapter_changes_the_generated_tokens(url: str) -> None:
    """Each request selects an adapter, and the tokens with an adapter differ from those without one. With an adapter of
    zeros, the tokens are the same as without an adapter, so it is the weights of the other adapter that change them.
    """
    plain = tokens(url, PROMPT)
    assert with_adapter(url, POET) != plain
    assert with_adapter(url, POET) == with_adapter(url, POET)
    assert with_adapter(url, SILENT) == plain
    assert tokens(url, PROMPT) == plain, "a request without an adapter uses the base model"


def test_chat_selects_an_adapter_with_model_and_adapter_name(url: str) -> None:
    """A chat selects an adapter by `<model>:<adapter>`. The adapter's bare name, which /v1/models lists, selects the base
    model.
    """

    def said(model: str) -> str:
        messages = [{"role": "user", "content": "Hello"}]
        body = {"model": model, "messages": messages, "temperature": 0, "max_tokens": 12}
        content: str = post(f"{url}/v1/chat/completions", body)["choices"][0]["message"]["content"]
        return content

    plain = said("any")
    assert said(f"any:{POET}") != plain
    assert said(f"any:{SILENT}") == plain
    assert said(POET) == plain
