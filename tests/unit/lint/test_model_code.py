"""Tests of the rule about models whose tokenizer or configuration is Python code that is stored with the weights."""

import json
from typing import Any

import pytest

from ome_operator.lint.rules import RULES
from tests.support.linting import found
from tests.support.parts import ROOT
from tests.support.yamls import API, service

PUBLISHED = [json.loads(line) for line in (ROOT / "tests/data/models/published.jsonl").read_text().splitlines()]
CODE = {"AutoConfig": "configuration_acme.AcmeConfig"}
IMAGES = {"sglang": "docker.io/lmsysorg/sglang:v0.5.23", "vllm": "docker.io/vllm/vllm-openai:v0.32.0"}
COMMANDS = {
    "sglang": ["python3", "-m", "sglang.launch_server", "--model-path=$(MODEL_PATH)"],
    "vllm": ["vllm", "serve", "$(MODEL_PATH)"],
}


def said(config: dict[str, Any], *args: str, engine: str = "sglang") -> list[str]:
    """Return the findings of the rule for a model with this config.json, served with these arguments."""
    storage = {"storageUri": "hf://acme/model", "path": "/models/acme"}
    whole = {"num_hidden_layers": 2, "hidden_size": 64, **config}
    model = {"apiVersion": API, "kind": "ClusterBaseModel", "metadata": {"name": "acme"}}
    model["spec"] = {"storage": storage, "modelConfiguration": whole}
    box = {"name": "ome-container", "image": IMAGES[engine], "command": COMMANDS[engine], "args": list(args)}
    runtime = {"apiVersion": API, "kind": "ClusterServingRuntime", "metadata": {"name": "rt"}}
    runtime["spec"] = {"engineConfig": {"runner": box}}
    bodies = [model, runtime, service("team", "svc", "rt", "engine", model="acme")]
    return [one.hit.says for one in found(bodies, whole=False) if one.rule is RULES["code-refused"]]


@pytest.mark.parametrize("engine", IMAGES)
@pytest.mark.parametrize("kind", ["kimi_k2", "kimi_vl", "chatglm", "internlm2", "baichuan", "qwen", "orion"])
def test_a_tokenizer_of_code_needs_the_flag(kind: str, engine: str) -> None:
    (message,) = said({"model_type": kind}, engine=engine)
    assert f"the tokenizer of {kind} is Python code" in message
    assert said({"model_type": kind}, "--trust-remote-code", engine=engine) == []


def test_configuration_with_python_code_needs_the_flag_without_a_known_class() -> None:
    (message,) = said({"model_type": "acme", "auto_map": CODE})
    assert "config.json names Python code for the model type acme" in message
    (message,) = said({"model_type": "acme_vl", "text_config": {"num_hidden_layers": 2, "auto_map": CODE}})
    assert "acme_vl" in message
    assert said({"model_type": "acme", "auto_map": CODE}, "--trust-remote-code") == []
    assert said({"model_type": "acme"}) == [], "nothing says that it needs code"
    for kind in ("deepseek_v3", "qwen3_moe", "step3_vl", "internvl_chat"):
        assert said({"model_type": kind, "auto_map": CODE}) == [], "transformers or SGLang has a class"


def test_only_kimi_k2_of_the_published_models_needs_the_flag() -> None:
    """Only Kimi K2 needs the flag that permits Python code of a model. The other published configs name such code, too, but
    transformers or SGLang has classes for these models and uses them instead.
    """
    kinds = {one["config"]["model_type"]: one["config"] for one in PUBLISHED}
    assert len(kinds) > 15
    assert {kind for kind, config in kinds.items() if said({**config, "auto_map": CODE})} == {"kimi_k2"}
