"""Tests of the facts about stored weights that a model's files contain: the quantization, the bytes, and packed tensors."""

import json
from typing import Any

import pytest

from ome_operator.api import Facts
from ome_operator.modelinfo.extract import facts
from ome_operator.modelinfo.quantization import quantization_by_name
from ome_operator.modelinfo.weight_sizes import weight_bytes
from tests.unit.modelinfo import configs

LLAMA_70B = configs.LLAMA_31_8B | {
    "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
}  # fmt: skip
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def of(config: dict[str, Any], header: dict[str, Any] | None = None) -> Facts:
    return facts({"config.json": json.dumps(config)}, {"m.safetensors": json.dumps(header)} if header else None)


@pytest.mark.parametrize(
    ("settings", "gigabytes"),
    [
        (None, 141.1),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 39.8),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 39.8),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, 74.3),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 42.7),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, 42.7),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, 72.7),
    ],
)
def test_quantized_matrices_of_a_dense_model_are_counted_as_quantized(
    settings: dict[str, Any] | None, gigabytes: float
) -> None:
    """The matrices of a quantized dense model are counted with their quantization. Reported: the matrices of a 4-bit model
    were counted with 16 bits, so `ome lint` stated 131 GiB for weights of 37 GiB.
    """
    found = weight_bytes(LLAMA_70B | ({"quantization_config": settings} if settings else {}))
    assert found is not None and found.routed == 0
    assert found.rest / 1e9 == pytest.approx(gigabytes, abs=0.05)


@pytest.mark.parametrize(
    ("unchanged", "more"),
    [
        ([], 0.0),
        (["lm_head", "model.layers.0.input_layernorm", "model.layers.3.mlp.gate", "post_attention_layernorm"], 0.0),
        (["model.layers.0.self_attn.indexer*", "model.layers.1.self_attn.indexers_proj"], 0.0),
        (["re:.*self_attn.*"], 1.0),
        (["*.attn.*"], 1.0),
        ([f"model.layers.{number}.self_attn*" for number in range(20)], 0.25),
        (["model.layers.0*"], 1 / 80),
    ],
)
def test_modules_excluded_from_quantization_have_two_bytes_per_weight(unchanged: list[str], more: float) -> None:
    """Modules that a quantization lists as excluded are counted with two bytes for each weight. `more` is the share of the
    attention's modules that the list contains.
    """
    found = weight_bytes(LLAMA_70B | {"quantization_config": {**FP8, "modules_to_not_convert": unchanged}})
    attention = 80 * (2 * 8192 * 8192 + 2 * 8192 * 1024)
    dense = 3 * 8192 * 28672 if unchanged == ["model.layers.0*"] else 0
    plain = weight_bytes(LLAMA_70B | {"quantization_config": FP8})
    assert found is not None and plain is not None
    assert found.rest - plain.rest == pytest.approx(more * attention + dense, abs=1)


def test_only_listed_parts_of_latent_attention_are_unquantized() -> None:
    """Only the listed matrices of the attention keep 16 bits, and its output matrices are quantized, as in
    nvidia/DeepSeek-V3.1-NVFP4. The expected sum in gigabytes: experts 367.8, the listed part of the attention 8.5, its
    output 4.0, dense layers 0.7, shared experts 1.4, embeddings 3.7, routers 0.2.
    """
    names = ("kv_a_proj_with_mqa", "kv_b_proj", "q_a_proj", "q_b_proj")
    listed = [f"model.layers.{layer}.self_attn.{name}" for layer in range(61) for name in names]
    modelopt = {"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head", *listed]}}
    plain = {name: value for name, value in configs.DEEPSEEK_V3.items() if name != "quantization_config"}
    found = weight_bytes(plain, modelopt)
    assert found is not None
    assert found.total / 1e9 == pytest.approx(386.4, abs=0.1)


def test_quantization_file_overrides_the_config() -> None:
    found = weight_bytes(LLAMA_70B, quantized=quantization_by_name("fp8"))
    assert found == weight_bytes(LLAMA_70B | {"quantization_config": {"quant_method": "fp8"}})
    assert quantization_by_name("gptq") is None, "GPTQ has several numbers of bits"


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"expert_dtype": "fp4", "quantization_config": FP8}, "mxfp4"),
        ({"quantization_config": {**FP8, "routed_experts_quant_method": "mxfp4"}}, "mxfp4"),
        ({"quantization_config": {**FP8, "store_dtype": "mxfp4"}}, "mxfp4"),
        ({"expert_dtype": "fp4", "quantization_config": {**FP8, "moe_quant_algo": "NVFP4"}}, "nvfp4"),
        ({"quantization_config": FP8}, "fp8"),
    ],
)
def test_model_with_four_bit_experts_and_fp8_has_its_own_quantization_name(config: dict[str, Any], name: str) -> None:
    """A model of 4-bit experts with other weights in FP8 has a quantization name of its own. Reported: DeepSeek V4 was
    called fp8, so a runtime for FP8 experts was selected.
    """
    seen = of(configs.DEEPSEEK_V3 | config)
    assert seen.quantization is not None
    assert (seen.quantization.name, seen.quantization.method) == (name, "fp8")
    assert (seen.quantization.bits, seen.quantization.block) == ((8, [128, 128]) if name == "fp8" else (4, None))
    sizes = weight_bytes(configs.DEEPSEEK_V3 | config)
    assert sizes is not None
    assert sizes.rest == 672_987_104_256 - 653_908_770_816, "the other matrices are FP8"


FOUR, EIGHT = {"quant_algo": "W4A16_NVFP4", "group_size": 16}, {"quant_algo": "FP8"}


def mixed(modules: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": modules}


def test_modules_with_different_quantizations_are_counted_separately() -> None:
    """If the modules of a model have different quantizations, each module is counted with its own, as in
    nvidia/Qwen3.6-27B-NVFP4: the feed-forward networks and the output matrix have 4 bits, and the attention FP8.
    """
    names = ("self_attn.q_proj", "self_attn.o_proj")
    modules = {f"model.layers.{layer}.{name}": EIGHT for layer in range(80) for name in names}
    modules |= {f"model.layers.{layer}.mlp.up_proj": FOUR for layer in range(80)} | {"lm_head": FOUR}
    found = weight_bytes(LLAMA_70B | {"quantization_config": mixed(modules)})
    attention, dense, head = 80 * (2 * 8192 * 8192 + 2 * 8192 * 1024), 80 * 3 * 8192 * 28672, 128256 * 8192
    others = 2 * (head + 161 * 8192)
    assert found is not None
    assert found.rest == pytest.approx(attention + 0.5625 * (dense + head) + others)
    assert dict(found.quantized) == {4: pytest.approx(dense + head), 8: pytest.approx(attention)}
    seen = of(LLAMA_70B | {"quantization_config": mixed(modules)})
    assert seen.quantization is not None and seen.quantization.name == "nvfp4", "most weights are those of the networks"


def test_weights_of_unlisted_modules_and_draft_layers_are_unknown() -> None:
    names = ["model.layers.0.mlp.experts.0.up_proj", "model.layers.0.mlp.shared_experts.up_proj"]
    modules = dict.fromkeys(names, FOUR) | {"model.layers.61.self_attn.o_proj": {"quant_algo": "MXFP8"}}
    plain = {name: value for name, value in configs.DEEPSEEK_V3.items() if name != "quantization_config"}
    found = weight_bytes(plain, {"quantization": mixed(modules)})
    assert found is not None
    assert found.routed == round(653_908_770_816 * 0.5625)
    assert found.quantized == ((4, pytest.approx(3 * 7168 * 2048)),), "one of 58 layers; layer 61 predicts drafts"
    assert of(plain | {"quantization_config": mixed({})}).quantization is None


def test_modules_not_listed_beside_fp8_stay_fp8() -> None:
    """Matrices that `quantized_layers` does not list stay FP8, as in nvidia/DeepSeek-V4-Flash-NVFP4, which lists only the
    experts.
    """
    listed = {**mixed({"layers.0.ffn.experts": FOUR}), **FP8, "moe_quant_algo": "NVFP4", "group_size": 16}
    found = weight_bytes(configs.DEEPSEEK_V3 | {"quantization_config": listed})
    assert found is not None
    assert found.rest == 672_987_104_256 - 653_908_770_816


@pytest.mark.parametrize("kind", ["I8", "U8", "F4"])
def test_packed_four_bit_experts_have_two_weights_per_byte(kind: str) -> None:
    shape = [2048, 4096] if kind == "F4" else [2048, 2048]
    header = {
        "layers.0.ffn.experts.0.w1.weight": {"dtype": kind, "shape": shape, "data_offsets": [0, 2048 * 2048]},
        "layers.0.ffn.experts.0.w1.scale": {"dtype": "F8_E8M0", "shape": [2048, 64], "data_offsets": [4194304, 4325376]},
    }
    seen = of({"model_type": "deepseek_v4", "expert_dtype": "fp4", "quantization_config": FP8}, header)
    assert seen.parameters == 8_388_608


def test_int8_weights_are_not_packed() -> None:
    header = {"layers.0.mlp.experts.0.w1.weight": {"dtype": "I8", "shape": [8, 8], "data_offsets": [0, 64]}}
    settings = {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 8, "type": "int"}}}}
    assert of({"model_type": "new", "quantization_config": settings}, header).parameters == 64


def group(bits: int, kind: str, *targets: str, **more: Any) -> dict[str, Any]:
    return {"weights": {"num_bits": bits, "type": kind, **more}, "targets": list(targets)}


@pytest.mark.parametrize(
    ("groups", "name"),
    [
        ([group(8, "float", "re:.*self_attn.*"), group(4, "int", "re:.*experts.*", group_size=32)], "int4"),
        ([group(4, "int", "re:.*mlp.*", group_size=32), group(8, "float", "re:.*self_attn.*")], None),
        ([group(8, "float", "re:.*shared_experts.*"), group(4, "int", "re:.*mlp.*", group_size=32)], None),
        ([group(8, "float", "re:.*self_attn.*"), group(8, "float", "re:.*mlp.*")], "fp8"),
    ],
)
def test_differing_quantization_groups_are_named_after_the_experts(groups: list[dict[str, Any]], name: str | None) -> None:
    settings = {"quant_method": "compressed-tensors", "config_groups": {f"g{n}": each for n, each in enumerate(groups)}}
    seen = of(configs.LLAMA_31_8B | {"quantization_config": settings})
    assert (seen.quantization.name if seen.quantization else None) == name


GGUF_TYPES = [
    "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q2_K_S", "Q3_K_S", "Q3_K_M", "Q3_K_L",
    "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS",
    "IQ3_XS", "IQ3_S", "IQ3_M", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4_MOE", "NVFP4", "Q1_0",
]  # fmt: skip
"""The file types of gguf 0.19.0 (`LlamaFileType`), as the names of files spell them."""


@pytest.mark.parametrize("kind", GGUF_TYPES)
def test_every_gguf_type_is_parsed_from_a_file_name(kind: str) -> None:
    for name in (f"m-{kind}.gguf", f"sub/m.{kind}-00001-of-00002.gguf", f"m-{kind.lower()}.gguf"):
        seen = facts({"config.json": "{}"}, ggufs=[name, "mmproj-F16.gguf", "m.imatrix.gguf", "mtp-m-Q8_0.gguf"])
        assert seen.quantization is not None, name
        assert seen.quantization.name == ("none" if kind in ("F32", "F16", "BF16") else kind.lower())
