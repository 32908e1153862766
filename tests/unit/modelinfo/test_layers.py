"""Tests of families with windowed and linear attention, in addition to those with the real classes (test_families.py)."""

import pytest

from ome_operator.modelinfo import architecture
from ome_operator.modelinfo.experts import experts
from ome_operator.modelinfo.layer_sizes import CacheEntries
from ome_operator.modelinfo.request_cache import cache_entries, linear_state, request_cache

_QWEN35 = {
    "model_type": "qwen3_5_moe_text", "head_dim": 256, "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_value_head_dim": 128, "num_key_value_heads": 2,
    "vocab_size": 248320,
}  # fmt: skip
QWEN35_35B = {
    **_QWEN35, "hidden_size": 2048, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts": 256,
    "num_experts_per_tok": 8, "num_hidden_layers": 40, "num_attention_heads": 16, "linear_num_value_heads": 32,
}  # fmt: skip


def test_cache_of_linear_attention_grows_only_in_full_attention_layers() -> None:
    seen = architecture.attention_shape(QWEN35_35B)
    kept = request_cache(QWEN35_35B, seen)
    assert kept is not None and kept.numbers == 10 * 2 * 2 * 256
    assert seen is not None
    (read,) = cache_entries(QWEN35_35B, seen)
    assert read == CacheEntries(numbers=10 * 2 * 2 * 256, operations=10 * 4 * 16 * 256)
    assert linear_state(QWEN35_35B) == kept.state > 0


@pytest.mark.parametrize("missing", ["linear_num_value_heads", "full_attention_interval", "head_dim"])
def test_missing_size_makes_the_result_unknown(missing: str) -> None:
    config = {name: value for name, value in QWEN35_35B.items() if name != missing}
    seen = architecture.attention_shape(config)
    assert architecture.count_parameters(config, seen, experts(config), tied=False) is None


@pytest.mark.parametrize(
    ("written", "found"), [("3,4,5", 3), ("3, 4,4", 2), ("1,99", 1), (f"1,{'9' * 5000},x", 1), ("x", None)]
)
def test_step_expert_layers_are_parsed_from_text(written: str, found: int | None) -> None:
    config = {
        "model_type": "step3p5",
        "num_hidden_layers": 45,
        "moe_layers_enum": written,
        "moe_num_experts": 288,
        "moe_top_k": 8,
        "share_expert_dim": 1280,
    }
    seen = experts(config)
    assert (seen.layers if seen else None) == found
