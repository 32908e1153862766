"""Tests that the facts about published models equal the figures that their makers published."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ome_operator.api.learned import Facts
from ome_operator.modelinfo.architecture import format_parameters
from ome_operator.modelinfo.extract import FILES, facts
from ome_operator.modelinfo.json_fields import LARGEST, LONGEST
from ome_operator.modelinfo.safetensors import header_length
from ome_operator.modelinfo.weight_sizes import weight_bytes
from tests.unit.modelinfo import configs


def of(config: dict[str, Any], **files: dict[str, Any]) -> Facts:
    return facts({"config.json": json.dumps(config)} | {name: json.dumps(file) for name, file in files.items()})


@pytest.mark.parametrize(
    ("config", "total", "active"),
    [  # billions, as published by the makers; where they round, the tolerance below covers it
        (configs.DEEPSEEK_V3, 671.03, 37),
        (configs.KIMI_K2, 1026.4, 32),
        (configs.KIMI_K2_THINKING, 1026.4, 32),
        (configs.KIMI_K25, 1026.4, 32),
        (configs.GLM_45, 355, 32),
        (configs.GLM_45_AIR, 106.85, None),
        (configs.QWEN3_235B, 235, 22),
        (configs.QWEN3_30B, 30.5, None),
        (configs.GPT_OSS_120B, 116.83, 5.13),
        (configs.GPT_OSS_20B, 20.91, 3.61),
        (configs.LLAMA4_SCOUT, 109, None),
        (configs.LLAMA4_MAVERICK, 400, None),
        (configs.LLAMA_31_8B, 8.03, None),
        (configs.LLAMA_31_405B, 405.9, 405.9),
        (configs.MIXTRAL, 46.7, 12.9),
    ],
)
def test_parameter_counts_equal_the_published_ones(config: dict[str, Any], total: float, active: float | None) -> None:
    seen = of(config)
    assert seen.parameters == pytest.approx(total * 1e9, rel=0.015)
    if active is not None:  # published in whole billions, so the difference may be half a billion
        assert seen.active_parameters == pytest.approx(active * 1e9, rel=0.03)


def test_all_facts_of_kimi_k2_are_extracted() -> None:
    seen = of(configs.KIMI_K2)
    assert seen.dump() == {
        "architecture": "DeepseekV3ForCausalLM",
        "modelType": "kimi_k2",
        "framework": {"name": "transformers", "version": "4.48.3"},
        "parameters": 1026408232448,
        "activeParameters": 31687095808,
        "parameterSize": "1.03T",
        "layers": 61,
        "draftLayers": 0,
        "hiddenSize": 7168,
        "vocabulary": 163840,
        "contextLength": 131072,
        "experts": {"routed": 384, "shared": 1, "perToken": 8, "layers": 60},
        "attention": {
            "heads": 64, "kvHeads": 64, "kvLoraRank": 512, "qLoraRank": 1536, "qkRopeHeadDim": 64, "qkNopeHeadDim": 128,
            "vHeadDim": 128,
        },
        "quantization": {"name": "fp8", "method": "fp8", "bits": 8, "block": [128, 128]},
        "dtype": "bfloat16",
        "kvBytesPerToken": {"bfloat16": 70272, "fp8": 35136},
    }  # fmt: skip


def test_sliding_window_layers_do_not_count_for_the_growing_cache() -> None:
    seen = of(configs.GPT_OSS_120B)
    assert seen.attention is not None
    assert (seen.attention.sliding_layers, seen.attention.sliding_window) == (18, 128)
    assert seen.kv_bytes_per_token == {"bfloat16": 18 * 2 * 8 * 64 * 2, "fp8": 18 * 2 * 8 * 64}


@pytest.mark.parametrize(
    ("more", "sliding", "window", "numbers"),
    [
        ({}, 36, 8192, 12), ({"attention_chunk_size": 4096}, 36, 4096, 12), ({"attention_chunk_size": None}, None, None, 48),
        ({"layer_types": [*["chunked_attention"] * 3, "full_attention"] * 12}, 36, 8192, 12),
    ],
)  # fmt: skip
def test_chunked_layers_of_llama_4_keep_a_window(
    more: dict[str, Any], sliding: int | None, window: int | None, numbers: int
) -> None:
    """The chunked layers of Llama 4 keep a window of the KV cache. Reported: four times the cache that SGLang keeps."""
    seen = of(configs.LLAMA4_SCOUT | {"text_config": configs.LLAMA4_SCOUT["text_config"] | more})
    assert seen.attention is not None
    assert (seen.attention.sliding_layers, seen.attention.sliding_window) == (sliding, window)
    assert seen.kv_bytes_per_token == {"bfloat16": numbers * 2 * 8 * 128 * 2, "fp8": numbers * 2 * 8 * 128}


def test_top_k_sampling_setting_is_not_a_number_of_experts() -> None:
    """`top_k` is not a number of experts. Reported: Kimi K3's `top_k` of 50 was taken for its experts per token."""
    config = {"model_type": "kimi_k3", "num_hidden_layers": 93, "first_k_dense_replace": 1, "n_shared_experts": 2}
    seen = of({**config, "num_experts": 896, "num_experts_per_token": 16, "top_k": 50})
    assert seen.experts is not None and seen.experts.per_token == 16
    seen = of({**config, "num_experts": 896, "top_k": 50})
    assert seen.experts is None
    assert "experts: config.json does not state the number of experts per token in a known field" in (seen.unknown or [])


def test_parameters_are_unknown_without_a_number_of_experts() -> None:
    """Without a number of experts per token, no parameters are stated. Reported: experts were counted as dense layers."""
    seen = of(configs.DEEPSEEK_V3 | {"num_experts_per_tok": None})
    assert seen.experts is None and seen.parameters is None


def test_experts_of_every_second_layer_are_counted() -> None:
    seen = of(configs.LLAMA4_MAVERICK)
    assert seen.experts is not None
    assert seen.experts.dump() == {"routed": 128, "shared": 1, "perToken": 1, "layers": 24}


@pytest.mark.parametrize(
    ("words", "name", "bits"),
    [
        (None, "none", None),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", 8),
        (configs.KIMI_K2_THINKING["quantization_config"], "int4", 4),
        ({"quant_method": "mxfp4"}, "mxfp4", 4),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", 4),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "awq", 4),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "gptq", 8),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes", 4),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes", 8),
        ({"quant_method": "fbgemm_fp8"}, "fbgemm_fp8", 8),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}},
            },
            "fp8",
            8,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "nvfp4-pack-quantized",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}},
            },
            "nvfp4",
            4,
        ),
    ],
)
def test_quantization_has_canonical_name(words: dict[str, Any] | None, name: str, bits: int | None) -> None:
    seen = of(configs.LLAMA_31_8B | ({"quantization_config": words} if words else {}))
    assert seen.quantization is not None
    assert (seen.quantization.name, seen.quantization.bits) == (name, bits)


def test_nvidia_quantization_is_read_from_its_separate_file() -> None:
    beside = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16}}
    seen = of(configs.LLAMA_31_8B, **{"hf_quant_config.json": beside})
    assert seen.quantization is not None
    assert seen.quantization.dump() == {"name": "nvfp4", "method": "modelopt", "bits": 4, "groupSize": 16}


def test_unknown_architecture_lists_what_is_not_known() -> None:
    seen = of({"architectures": ["NewForCausalLM"], "model_type": "new", "num_hidden_layers": 12, "hidden_size": 64})
    assert seen.parameters is None
    assert seen.layers == 12
    assert seen.unknown == [
        "attention: config.json does not contain the numbers of attention heads and key-value heads",
        "contextLength: config.json does not contain it",
        "parameters: the tensors of model type new are not known, and no file header contains the number",
    ]


def test_weights_of_an_unknown_architecture_come_from_tensor_headers() -> None:
    header = {
        "__metadata__": {"format": "pt"},
        "a.weight": {"dtype": "BF16", "shape": [4, 8], "data_offsets": [0, 64]},
        "b.weight_packed": {"dtype": "I32", "shape": [4, 1], "data_offsets": [64, 80]},
        "b.weight_scale": {"dtype": "BF16", "shape": [4, 1], "data_offsets": [80, 88]},
    }
    words = {"model_type": "new", "quantization_config": configs.KIMI_K2_THINKING["quantization_config"]}
    seen = facts({"config.json": json.dumps(words)}, {"model.safetensors": json.dumps(header)})
    assert seen.tensor_bytes == {"BF16": 72, "I32": 16}
    assert (seen.weight_bytes, seen.parameters) == (88, 32 + 32)


def test_weight_bytes_come_from_the_index_file() -> None:
    index = {"metadata": {"total_size": 1029206016000}, "weight_map": {}}
    seen = of(configs.KIMI_K2, **{"model.safetensors.index.json": index})
    assert seen.weight_bytes == 1029206016000
    assert seen.format is not None
    assert seen.format.name == "safetensors"


def test_diffusion_pipeline_is_identified_by_its_class() -> None:
    index = {"_class_name": "FluxPipeline", "_diffusers_version": "0.30.0", "scheduler": ["diffusers", "X"]}
    seen = facts({"model_index.json": json.dumps(index)})
    assert seen.dump() == {"framework": {"name": "diffusers", "version": "0.30.0"}, "pipeline": "FluxPipeline"}


def test_invalid_json_file_is_reported() -> None:
    seen = facts({"config.json": "<html>"})
    assert seen.unknown is not None
    assert seen.unknown[0] == "config.json cannot be read: it is not a JSON object"


def test_the_length_of_a_header_is_the_first_eight_bytes() -> None:
    assert header_length((1234).to_bytes(8, "little")) == 1234
    assert header_length(b"GGUF") is None
    assert header_length(b"\xff" * 8) is None


@pytest.mark.parametrize(
    ("number", "words"),
    [(1026408232448, "1.03T"), (671026419200, "671B"), (500_000_000, "500M"), (7, "7"), (30_532_122_624, "30.5B")],
)
def test_parameter_sizes_are_formatted_like_7b(number: int, words: str) -> None:
    assert format_parameters(number) == words


_NAMES = st.sampled_from(sorted(configs.DEEPSEEK_V3))
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**6) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=5),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from([*sorted(configs.DEEPSEEK_V3), "text_config", "layer_types", "moe_layers"]), _JSON))
def test_no_config_raises_an_exception(config: dict[str, Any]) -> None:
    wild = configs.KIMI_K2 | config
    assert Facts.read(of(wild).dump()) == of(wild)


@given(st.dictionaries(st.sampled_from(FILES), st.text(max_size=20) | st.binary(max_size=20)))
def test_no_file_content_raises_an_exception(files: dict[str, str | bytes]) -> None:
    assert isinstance(facts(files), Facts)


@pytest.mark.parametrize(
    ("config", "published"),
    [
        (configs.KIMI_K2, 1.029e12),
        (configs.KIMI_K2_THINKING, 0.594e12),
        (configs.GPT_OSS_120B, 65.2e9),
        (configs.LLAMA_31_8B, 16.06e9),
    ],
)
def test_weight_sizes_equal_those_of_the_published_files(config: dict[str, Any], published: float) -> None:
    found = weight_bytes(config)
    assert found is not None
    assert found.total == pytest.approx(published, rel=0.005)


def test_weights_of_unknown_tensors_are_unknown() -> None:
    assert weight_bytes(configs.KIMI_K2 | {"model_type": "new"}) is None
    assert weight_bytes(configs.KIMI_K2 | {"quantization_config": {"quant_method": "new"}}) is None


_SIZES = st.sampled_from([1, 2**31, 2**62, LARGEST, LARGEST + 1, 10**308, 10**4000]) | st.integers(1, 10**30)
_NUMBERS = sorted(name for name, value in configs.DEEPSEEK_V3.items() if type(value) is int)


def numbers_in(value: Any) -> list[int]:
    """Return all numbers in a JSON value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value] if type(value) is int else [number for each in inner for number in numbers_in(each)]


@pytest.mark.parametrize("config", [configs.DEEPSEEK_V3, configs.QWEN3_235B, configs.GPT_OSS_120B, configs.LLAMA4_SCOUT])
@given(sizes=st.dictionaries(st.sampled_from(_NUMBERS), _SIZES))
def test_sizes_of_any_magnitude_raise_no_exception(config: dict[str, Any], sizes: dict[str, int]) -> None:
    """Sizes of any magnitude give facts that the API server accepts. Reported: an OverflowError, and Failed forever."""
    text = config.get("text_config", config) | sizes
    found = of(text)
    assert all(abs(number) <= LARGEST for number in numbers_in(found.dump())), "the API server rejects a larger number"
    weight_bytes(text)


def test_oversized_shapes_are_reported_as_unknown() -> None:
    found = of(configs.KIMI_K2 | {"hidden_size": 10**155, "vocab_size": 10**155})
    assert found.parameters is None and found.hidden_size is None
    found = of(configs.KIMI_K2 | {"hidden_size": 2**62, "vocab_size": 2**62})
    assert found.unknown is not None
    assert "parameters: the sizes in config.json result in a number above 2^63" in found.unknown


def test_huge_number_of_layers_is_processed_quickly() -> None:
    """A model that states 2^62 layers is examined at once. Without a limit, counting the layers would not end."""
    found = of(configs.KIMI_K2 | {"num_hidden_layers": 2**62})
    assert found.experts is None and found.layers == 2**62
    found = of(configs.QWEN3_235B | {"num_hidden_layers": 9_999, "mlp_only_layers": list(range(10**5, 3 * 10**5))})
    assert found.experts is not None and found.experts.layers == 9_999


def test_nested_configs_of_any_depth_raise_no_exception() -> None:
    text = '{"text_config":' * 700 + '{"num_hidden_layers": 3}' + "}" * 700
    assert facts({"config.json": text}).layers in (3, None)


def test_texts_from_model_files_are_shortened_and_printable() -> None:
    """Texts from a model's files are shortened, without control characters. Reported: facts kept 1 MB of an architecture."""
    bad = "\x1b[2J\u202e\ud800" + "x" * 2**20
    config = {"architectures": [bad], "model_type": bad, "torch_dtype": bad, "transformers_version": bad}
    wild = {"config.json": json.dumps(configs.KIMI_K2 | config | {"quantization_config": {"quant_method": "fp8"}})}
    wild["model_index.json"] = json.dumps({"_class_name": bad, "_diffusers_version": bad})
    headers = {"m\n\x1b.safetensors": json.dumps({"a": {"dtype": bad, "shape": [1], "data_offsets": [0, 2]}})}
    for found in (
        facts(wild, headers),
        facts(wild, {"m\n\x1b.safetensors": "{"}),
        facts({"config.json": json.dumps(config)}),
    ):
        texts = texts_in(found.dump())
        assert texts and all(text.isprintable() and len(text) <= LONGEST + 80 for text in texts), texts
        assert found.architecture is not None and len(found.architecture) == LONGEST


def texts_in(value: Any) -> list[str]:
    """Return all texts in a JSON value, and the keys of its maps."""
    inner = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value] if isinstance(value, str) else [text for each in inner for text in texts_in(each)]


@pytest.mark.parametrize(
    "header",
    [
        {f"t{number}": {"dtype": f"T{number}", "shape": [1], "data_offsets": [0, 2]} for number in range(1_000)},
        {"a": {"dtype": "BF16", "shape": [2**62] * 100_000, "data_offsets": [0, 2]}},
        {"quant_state" * 100_000 + " ": {"dtype": "BF16", "shape": [2**62] * 17, "data_offsets": [0, 2]}},
        {f"t{number}": {"dtype": "BF16", "shape": [1], "data_offsets": [0, LARGEST]} for number in range(3)},
        {"a": {"dtype": "BF16", "shape": [2**62] * 3, "data_offsets": [0, 2]}},
    ],
    ids=["types", "dimensions", "a long name", "bytes", "elements"],
)
def test_malformed_header_is_rejected_quickly(header: dict[str, Any]) -> None:
    found = facts({"config.json": "{}"}, {"m.safetensors": json.dumps(header)})
    assert found.tensor_bytes is None and found.weight_bytes is None and found.parameters is None
    assert found.unknown is not None and "tensorBytes: a safetensors header cannot be parsed" in found.unknown


def test_long_tensor_name_is_matched_quickly() -> None:
    """A tensor's name with megabytes is matched quickly. The time to match it was quadratic in its length once."""
    header = {"quant_state" * 200_000 + " ": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}
    began = time.monotonic()
    assert facts({"config.json": "{}"}, {"m.safetensors": json.dumps(header)}).tensor_bytes == {"BF16": 2}
    assert time.monotonic() - began < 20
