"""Tests of the parameters and experts of model families, compared with the real classes of transformers.

tests/data/models has one JSON object in each line. All models were counted on meta tensors with torch 2.14.1: the text part
alone, without draft layers.

published.jsonl contains published config.json files (those in the package aiconfigurator-core 0.12.0), reduced to their
sizes; defaults.jsonl contains the config that each class with experts saves with its own default values; variants.jsonl
contains small configs of the families whose parameters are counted, with random sizes and switches.

Every number that is read must be right, and every number that is not known must be listed as unknown.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ome_operator.api import Facts
from ome_operator.modelinfo import layers
from ome_operator.modelinfo.architecture import FAMILIES, has_tied_embedding
from ome_operator.modelinfo.extract import facts
from ome_operator.modelinfo.json_fields import text_part
from tests.support import parts

DATA = parts.ROOT / "tests/data/models"
PAGE = parts.ROOT / "docs/models.md"
MARKS = "<!-- counted models -->", "<!-- end of counted models -->"


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]


PUBLISHED = rows("published")


def of(config: dict[str, Any]) -> Facts:
    return facts({"config.json": json.dumps(config)})


def correction(config: dict[str, Any], seen: Facts) -> int:
    """Return the number of biases that correct the choice of experts. The weights contain these biases, but the classes do
    not count them.
    """
    text = text_part(config)
    kind = text.get("model_type")
    listed = ("deepseek_v3", "deepseek_v32", "glm_moe_dsa", "kimi_k2", "mimo_v2_flash")
    corrected = (kind in listed and text.get("topk_method") == "noaux_tc") or kind in (
        *("glm4_moe", "glm4v_moe_text", "minimax_m2", "minimax_m3_vl", "minimax_m3_vl_text"),
        *("nemotron_h", "deepseek_v4", "kimi_linear"),
    )
    if seen.experts is None or not corrected:
        return 0
    hashed = text.get("mlp_layer_types", []).count("hash_moe") or text.get("num_hash_layers", 0)
    return (seen.experts.layers - hashed) * seen.experts.routed


def wrong(row: dict[str, Any]) -> list[str]:
    """Return the differences between the facts of a config and the numbers of its class in transformers."""
    seen, found = of(row["config"]), []
    if seen.experts is not None and seen.experts.layers != row["expertLayers"]:
        found.append(f"{seen.experts.layers} layers with experts, not {row['expertLayers']}")
    if seen.parameters is not None:
        more = seen.parameters - row["total"] - correction(row["config"], seen)
        if more:
            found.append(f"{more:+,} parameters")
        active = row.get("active")
        if active and seen.active_parameters != active + correction(row["config"], seen):
            found.append(f"{seen.active_parameters:,} active parameters, not {active:,}")
    said = any(sentence.startswith("experts:") for sentence in seen.unknown or ())
    if seen.experts is None and bool(row["expertLayers"]) != said:
        found.append("nothing says that the experts are not known" if row["expertLayers"] else "a dense model has experts")
    return found


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: row["model"])
def test_published_model_is_counted_correctly_or_not_at_all(row: dict[str, Any]) -> None:
    assert wrong(row) == []
    known = text_part(row["config"]).get("model_type") in FAMILIES
    seen = of(row["config"])
    assert (seen.parameters is not None) == known, "the families that are counted are those of FAMILIES"
    assert known == (seen.kv_bytes_per_token is not None)


@pytest.mark.parametrize("row", rows("defaults"), ids=lambda row: row["family"])
def test_default_config_is_counted_correctly_or_not_at_all(row: dict[str, Any]) -> None:
    assert wrong(row) == []


@pytest.mark.parametrize("row", rows("variants"), ids=lambda row: row["family"])
def test_options_of_a_family_are_taken_into_account(row: dict[str, Any]) -> None:
    assert wrong(row) == []
    seen = of(row["config"])
    assert seen.parameters is not None or (row["family"] == "qwen2_moe" and not row["expertLayers"])


def test_every_counted_family_is_compared_with_its_class() -> None:
    """Every counted family is compared with its class: with variants, or with published models and default values where the
    kinds of attention leave few switches.
    """
    varied = {text_part(row["config"])["model_type"] for row in rows("variants")} | {"kimi_k2", "minimax_m3"}
    others = {text_part(row["config"]).get("model_type") for row in (*PUBLISHED, *rows("defaults"))}
    assert varied | (layers.FAMILIES.keys() | {"deepseek_v32", "glm_moe_dsa"}) & others == FAMILIES


TIES = {  # three values of the outer field (absent, false, true), each with the same three of the text part
    "qwen3_vl_moe": "---" "---" "ttt",
    "qwen3_vl": "---" "---" "ttt",
    "llama4": "--t" "--t" "--t",
    "glm4v_moe": "--t" "--t" "ttt",
    "qwen2_5_vl": "--t" "--t" "ttt",
    "llava": "--t" "--t" "ttt",
}  # fmt: skip
"""Type of a config.json with a text part and another part -> what its class of transformers 5.24.0 does with the input
embedding. Each character is `t` if the class also uses the embedding as the output matrix, and `-` if not.
"""
_VALUES = ({}, {"tie_word_embeddings": False}, {"tie_word_embeddings": True})


@pytest.mark.parametrize("kind", TIES)
def test_multimodal_models_tie_embeddings_like_their_class(kind: str) -> None:
    found = [
        has_tied_embedding({"model_type": kind, **outer, "text_config": {"hidden_size": 8, **inner}})
        for outer in _VALUES
        for inner in _VALUES
    ]
    assert "".join("t" if value else "-" for value in found) == TIES[kind]


def test_contradictory_embedding_settings_are_unknown() -> None:
    assert (
        has_tied_embedding({"model_type": "new_vl", "tie_word_embeddings": True, "text_config": {"hidden_size": 8}}) is None
    )


KIMI_K3 = {
    "model_type": "kimi_k3",
    "text_config": {
        "attn_res_block_size": 12, "first_k_dense_replace": 1, "hidden_size": 7168, "intermediate_size": 33792,
        "kv_lora_rank": 512, "latent_moe_use_norm": True, "max_position_embeddings": 1048576, "mla_use_output_gate": True,
        "model_type": "kimi_linear", "moe_intermediate_size": 3072, "moe_layer_freq": 1, "num_attention_heads": 96,
        "num_experts": 896, "num_experts_per_token": 16, "num_hidden_layers": 93, "num_key_value_heads": 96,
        "num_shared_experts": 2, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "routed_expert_hidden_size": 3584, "tie_word_embeddings": False, "top_k": 50, "topk_method": "noaux_tc",
        "v_head_dim": 128, "vocab_size": 163840,
        "linear_attn_config": {
            "full_attn_layers": [*range(4, 93, 4), 93], "head_dim": 128, "num_heads": 96, "short_conv_kernel_size": 4,
            "use_full_rank_gate": True,
        },
    },
}  # fmt: skip
"""The sizes in the config.json of moonshotai/Kimi-K3."""
DELTA = {
    "q_proj, k_proj, v_proj, g_proj": 4 * (12288 * 7168), "b_proj": 96 * 7168, "f_a_proj": 128 * 7168,
    "f_b_proj": 12288 * 128, "dt_bias": 12288, "q, k, v conv1d": 3 * 12288 * 4, "A_log": 96, "o_norm": 128,
    "o_proj": 7168 * 12288,
}  # fmt: skip
LATENT = {
    "q_a_proj": 1536 * 7168, "q_a_layernorm": 1536, "q_b_proj": 96 * 192 * 1536, "kv_a_proj_with_mqa": 576 * 7168,
    "kv_a_layernorm": 512, "kv_b_proj": 96 * 256 * 512, "g_proj": 96 * 128 * 7168, "o_proj": 7168 * 96 * 128,
}  # fmt: skip
EVERY_LAYER = {"layernorms": 2 * 7168, "res_norms": 2 * 7168, "res_projs": 2 * 7168}
WITH_EXPERTS = {
    "gate": 896 * 7168, "e_score_correction_bias": 896, "routed_expert_down_proj": 3584 * 7168,
    "routed_expert_up_proj": 7168 * 3584, "routed_expert_norm": 3584, "shared_experts": 3 * 7168 * 2 * 3072,
}  # fmt: skip
ONE_EXPERT = 3 * 3584 * 3072
ONCE = {"lm_head": 163840 * 7168, "norm": 7168, "output_attn_res_norm": 7168, "output_attn_res_proj": 7168}


def test_kimi_k3_parameters_equal_the_tensors_of_the_sglang_class() -> None:
    """The numbers of Kimi K3 equal the sums over the tensors of its class in SGLang 0.5.23 (models/kimi_k3.py). No class of
    transformers has all of these tensors.
    """
    seen, dense = of(KIMI_K3), 3 * 7168 * 33792
    without_experts = 69 * sum(DELTA.values()) + 24 * sum(LATENT.values()) + 93 * sum(EVERY_LAYER.values()) + dense
    without_experts += 92 * sum(WITH_EXPERTS.values()) + sum(ONCE.values())
    assert seen.active_parameters == without_experts + 92 * 16 * ONE_EXPERT
    assert seen.parameters == without_experts + 163840 * 7168 + 92 * 896 * ONE_EXPERT
    assert seen.kv_bytes_per_token == {"bfloat16": 24 * 576 * 2, "fp8": 24 * 576}
    assert seen.bytes_per_request == 69 * (3 * 12288 * 3 * 2 + 96 * 128 * 128 * 4)
    assert seen.attention is not None and seen.attention.linear_heads == 96


def sized(model: str) -> Facts:
    return of(next(row["config"] for row in PUBLISHED if row["model"] == model))


@pytest.mark.parametrize(
    ("model", "token", "request_bytes"),
    [
        # 21 layers keep a latent vector and an index key for every 4 tokens, 20 a latent vector for every 128
        ("deepseek-ai/DeepSeek-V4-Flash", (3851, 3851), 43 * 128 * 584),
        # 5 layers of 2 heads of 512 for keys and values; 25 layers with a window of 1,024 and 8 heads of 256
        ("google/gemma-4-26B-A4B", (5 * 4 * 512 * 2, 5 * 4 * 512), 25 * 1024 * 16 * 256 * 2),
        # keys and values of 4 heads in 60 layers, and an index key in BF16 in 57
        ("nvidia/MiniMax-M3-NVFP4", (60 * 1024 * 2 + 57 * 256, 60 * 1024 + 57 * 256), None),
        # 6 layers of attention; 23 of Mamba 2 with a convolution of 6,144 numbers and a state of 64 heads x 64 x 128
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", (6 * 512 * 2, 6 * 512), 23 * (6144 * 3 * 2 + 64 * 64 * 128 * 4)),
        # 12 of 45 layers keep every token, the others a window of 512
        ("stepfun-ai/Step-3.7-Flash", (12 * 2048 * 2, 12 * 2048), 33 * 512 * 2048 * 2),
        # the indexers keep FP8 keys and a scale, whatever the type of the cache
        ("deepseek-ai/DeepSeek-V3.2", (61 * (576 * 2 + 132), 61 * (576 + 132)), None),
        # 36 layers, half of them with a window of 128
        ("openai/gpt-oss-120b", (18 * 1024 * 2, 18 * 1024), 18 * 128 * 1024 * 2),
    ],
)
def test_cache_bytes_of_request_by_model_family(model: str, token: tuple[int, int], request_bytes: int | None) -> None:
    seen = sized(model)
    assert seen.kv_bytes_per_token == dict(zip(("bfloat16", "fp8"), token, strict=True))
    assert seen.bytes_per_request == request_bytes


def table() -> Iterator[str]:
    """Yield the table of docs/models.md: the counted numbers, and the cache where it is known."""
    columns = "parameters | active | layers with experts | KV cache of a token (BF16) | more bytes of a request"
    yield f"| model | {columns} | counted with transformers |"
    yield "|---|---|---|---|---|---|---|"
    for row in PUBLISHED:
        seen = of(row["config"])
        cache = f"{seen.kv_bytes_per_token['bfloat16']:,}" if seen.kv_bytes_per_token else "not known"
        counted = "" if seen.parameters else " (not known to the operator)"
        experts = row["expertLayers"] or "none"
        versions, more = ", ".join(row["transformers"]), f"{seen.bytes_per_request:,}" if seen.bytes_per_request else "0"
        more = more if seen.kv_bytes_per_token else "not known"
        numbers = f"{row['total']:,}{counted} | {row['active']:,} | {experts} | {cache} | {more}"
        yield f"| {row['model']} | {numbers} | {versions} |"


def test_documentation_lists_the_counted_models(update: bool) -> None:
    text = PAGE.read_text()
    before, rest = text.split(MARKS[0])
    wanted = "\n".join((f"{before}{MARKS[0]}", *table(), f"{MARKS[1]}{rest.split(MARKS[1])[1]}"))
    if update:
        PAGE.write_text(wanted)
    assert wanted == text, "`pytest tests/unit/modelinfo/test_families.py --update-golden` writes it"
