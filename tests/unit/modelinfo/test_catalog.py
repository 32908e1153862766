"""Tests that the files in config/models agree with the models' own config.json."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ome_local import tinymodel
from ome_operator.agent.model_facts import read_facts
from ome_operator.api import Facts, Model, Runtime
from ome_operator.core.selection.match import violations
from ome_operator.core.selection.model_profile import profile_of
from ome_operator.modelinfo.extract import facts
from tests.support import parts
from tests.unit.modelinfo import configs

MODELS = parts.ROOT / "config/models"
NEWER = {"max_position_embeddings": 262144}
MINIMAX_M2: dict[str, Any] = {
    "architectures": ["MiniMaxM2ForCausalLM"], "model_type": "minimax_m2", "hidden_size": 3072, "intermediate_size": 1536,
    "num_hidden_layers": 62, "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 200064,
    "num_local_experts": 256, "num_experts_per_tok": 8, "use_qk_norm": True, "tie_word_embeddings": False,
    "max_position_embeddings": 196608, "quantization_config": configs.DEEPSEEK_V3["quantization_config"],
}  # fmt: skip
QWEN3_480B = configs.QWEN3_235B | NEWER | {
    "hidden_size": 6144, "intermediate_size": 8192, "num_hidden_layers": 62, "num_attention_heads": 96,
    "num_key_value_heads": 8, "num_experts": 160, "moe_intermediate_size": 2560,
    "quantization_config": configs.DEEPSEEK_V3["quantization_config"],
}  # fmt: skip
MAVERICK_FP8 = configs.LLAMA4_MAVERICK | {
    "text_config": configs.LLAMA4_MAVERICK["text_config"] | {"max_position_embeddings": 1048576},
    "quantization_config": {
        "quant_method": "compressed-tensors", "format": "float-quantized",
        "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}},
    },
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "moonshotai/Kimi-K2-Instruct": configs.KIMI_K2,
    "moonshotai/Kimi-K2-Base": configs.KIMI_K2,
    "moonshotai/Kimi-K2-Instruct-0905": configs.KIMI_K2 | NEWER,
    "deepseek-ai/DeepSeek-V3": configs.DEEPSEEK_V3,
    "deepseek-ai/DeepSeek-V3.1": configs.DEEPSEEK_V3,
    "deepseek-ai/DeepSeek-R1": configs.DEEPSEEK_V3,
    "Qwen/Qwen3-235B-A22B-Instruct-2507": configs.QWEN3_235B | NEWER,
    "Qwen/Qwen3-30B-A3B-Instruct-2507": configs.QWEN3_30B | NEWER,
    "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8": QWEN3_480B,
    "zai-org/GLM-4.5": configs.GLM_45,
    "zai-org/GLM-4.5-Air": configs.GLM_45_AIR,
    "zai-org/GLM-4.6": configs.GLM_45 | {"max_position_embeddings": 202752},
    "openai/gpt-oss-120b": configs.GPT_OSS_120B,
    "openai/gpt-oss-20b": configs.GPT_OSS_20B,
    "MiniMaxAI/MiniMax-M2": MINIMAX_M2,
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": configs.LLAMA4_SCOUT,
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8": MAVERICK_FP8,
    "moonshotai/Kimi-K2-Thinking": configs.KIMI_K2_THINKING,
    "moonshotai/Kimi-K2-Instruct-GGUF": configs.KIMI_K2,
    "ome/Kimi-K2-Tiny": tinymodel.CONFIG,
}
"""Every model of config/models, by the path of its file."""
GGUFS = {"moonshotai/Kimi-K2-Instruct-GGUF": ["Kimi-K2-Instruct-Q4_K_M-00001-of-00013.gguf"]}
RUNTIMES = [
    parts.ensure_valid(Runtime.parse(body))
    for file in sorted((parts.ROOT / "config/runtimes").rglob("*.yaml"))
    for body in parts.read_documents(file)
    if body["kind"] in Runtime.KINDS
]


def written(name: str) -> Model:
    """Return a model as its file defines it."""
    (body,) = parts.read_documents(MODELS / f"{name}.yaml")
    model: Model = parts.ensure_valid(Model.parse(body))
    return model


def from_files(name: str) -> Facts:
    """Return the facts that an agent reads from the model's files."""
    index = {"model.safetensors.index.json": "{}"}
    return facts({"config.json": json.dumps(CONFIGS[name]), **index}, ggufs=GGUFS.get(name, ()))


def only_learned(name: str) -> Model:
    """Return a model whose spec contains only its source."""
    model = written(name)
    body = {"kind": model.kind, "metadata": {"name": model.name}, "spec": {"storage": model.spec.storage.dump()}}
    return replace(parts.ensure_valid(Model.parse(body)), status={"facts": from_files(name).dump()})


def test_every_catalog_model_has_a_test_config() -> None:
    assert sorted(str(file.relative_to(MODELS).with_suffix("")) for file in MODELS.rglob("*.yaml")) == sorted(CONFIGS)


@pytest.mark.parametrize("name", CONFIGS)
def test_files_alone_lead_to_the_runtimes_of_the_catalog(name: str) -> None:
    """Everything that runtimes match is in the model's files, so a model without further fields gets the same runtimes."""
    told, learned = ({one.name for one in RUNTIMES if fits(one, model)} for model in (written(name), only_learned(name)))
    assert told, "the catalog has a runtime for each of its models"
    assert learned == told


def fits(runtime: Runtime, model: Model) -> bool:
    """Return whether a runtime serves a model, whether the runtime permits automatic selection or not."""
    return not violations(runtime, profile_of(model), chosen=False)


@pytest.mark.parametrize("name", CONFIGS)
def test_catalog_entry_equals_the_facts_of_the_config_file(name: str) -> None:
    model, learned = written(name), from_files(name)
    wrote = profile_of(model, False)
    assert wrote.architecture == learned.architecture
    assert learned.quantization is not None
    assert (wrote.quantization or "none") in (learned.quantization.name, learned.quantization.method)
    assert wrote.format is not None and learned.format is not None and wrote.format.name == learned.format.name
    assert model.spec.max_tokens == learned.context_length
    assert wrote.parameters == pytest.approx(learned.parameters, rel=0.013)
    assert model.spec.model_type == CONFIGS[name]["model_type"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["K2-Q4_K_M-00001-of-00002.gguf", "Q4_K_M/K2-Q4_K_M-00002-of-00002.gguf"], "q4_k_m"),
        (["k2-iq3_xxs.gguf"], "iq3_xxs"), (["k2.Q8_0.gguf"], "q8_0"), (["k2-BF16.gguf"], "none"),
        (["k2-Q4_K_M.gguf", "k2-Q8_0.gguf"], None), (["k2.gguf"], None),
    ],
)  # fmt: skip
def test_gguf_quantization_is_parsed_from_file_names(names: list[str], said: str | None) -> None:
    learned = facts({"config.json": json.dumps(configs.KIMI_K2)}, ggufs=names)
    assert (learned.quantization.name if learned.quantization else None) == said
    assert bool(said) != (
        "quantization: the names of the GGUF files contain different quantizations, or none" in (learned.unknown or [])
    )


def test_gguf_facts_do_not_come_from_the_files_of_the_original(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(configs.KIMI_K2))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 9}}))
    (tmp_path / "Q4_K_M").mkdir()
    (tmp_path / "Q4_K_M/K2-Q4_K_M.gguf").touch()
    learned = read_facts(tmp_path)
    assert (learned["format"]["name"], learned["quantization"]["name"]) == ("gguf", "q4_k_m")
    assert "weightBytes" not in learned
