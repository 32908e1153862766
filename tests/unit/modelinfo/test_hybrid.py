"""Tests of families with windowed and linear attention, beside those of the real classes (test_families.py)."""

import pytest

from ome_operator.modelinfo import architecture, hybrid
from ome_operator.modelinfo.experts import experts

_QWEN35 = {
    "model_type": "qwen3_5_moe_text", "head_dim": 256, "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_value_head_dim": 128, "num_key_value_heads": 2,
    "vocab_size": 248320,
}  # fmt: skip
QWEN35_35B = {
    **_QWEN35, "hidden_size": 2048, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts": 256,
    "num_experts_per_tok": 8, "num_hidden_layers": 40, "num_attention_heads": 16, "linear_num_value_heads": 32,
}  # fmt: skip


def test_the_cache_of_linear_attention_grows_in_complete_layers_only() -> None:
    assert architecture.complete_layers(QWEN35_35B) == 10
    assert hybrid.cache_numbers(QWEN35_35B, 40) == 10 * 2 * 2 * 256


@pytest.mark.parametrize("missing", ["linear_num_value_heads", "full_attention_interval", "head_dim"])
def test_a_missing_size_is_unknown(missing: str) -> None:
    config = {name: value for name, value in QWEN35_35B.items() if name != missing}
    seen = architecture.attention(config)
    assert architecture.count_parameters(config, seen, experts(config), tied=False) is None
