"""What the files in config/models say about a model is what its own config.json says."""

import json
from typing import Any

import pytest

from ome_operator.api import Model
from ome_operator.core.selection.model_profile import known
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
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_file_says_what_the_model_says(name: str) -> None:
    (body,) = parts.read(MODELS / f"{name}.yaml")
    model = parts.good(Model.parse(body))
    wrote, learned = known(model, False), facts({"config.json": json.dumps(CONFIGS[name])})
    assert wrote.architecture == learned.architecture
    assert learned.quantization is not None
    assert (wrote.quantization or "none") == learned.quantization.name
    assert model.spec.max_tokens == learned.context_length
    assert wrote.parameters == pytest.approx(learned.parameters, rel=0.012)
    assert model.spec.model_type == CONFIGS[name]["model_type"]


def test_int4_weights_are_called_by_their_container() -> None:
    """Runtimes of OME's time match Kimi K2 Thinking by this word; its files call the weights int4."""
    (body,) = parts.read(MODELS / "moonshotai/Kimi-K2-Thinking.yaml")
    learned = facts({"config.json": json.dumps(configs.KIMI_K2_THINKING)})
    assert body["spec"]["quantization"] == learned.quantization.method  # type: ignore[union-attr]
    assert body["spec"]["maxTokens"] == learned.context_length
