"""Tests that a request for an impossible combination is rejected with the reason and, if there is one, with an
alternative.
"""

from typing import Any

import pytest

from ome_operator.cookbook.layout import plan
from ome_operator.cookbook.library import Library
from ome_operator.cookbook.preset import in_shell
from ome_operator.cookbook.request import RecipeRefused, RecipeRequest

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "hardware unknown": ({"hardware": "h300"}, "The hardware h300 is unknown: use one of b200"),
    "model unknown": (
        {"model": "gpt"},
        "There is no recipe for the model gpt: use one of Kimi-K2-Base,",
    ),
    "model with a typo": ({"model": "kimi-k2-instuct"}, "Did you mean Kimi-K2-Instruct?"),
    "model with a sample": (
        {"model": "DeepSeek-V3"},
        "The service config/samples/isvc/deepseek-ai/deepseek-v3.yaml serves DeepSeek-V3 without a recipe.",
    ),
    "model with a recipe for something else": (
        {"model": "DeepSeek-R1"},
        "DeepSeek-R1 has recipes only for --strategy pd. The service config/samples/isvc/deepseek-ai/deepseek-r1.yaml",
    ),
    "groups that do not divide": (
        {"strategy": "pd", "prefill_groups": 3},
        "4 nodes of prefill cannot be divided into 3 groups: --prefill-groups must divide the number of nodes.",
    ),
    "a cache of prefixes elsewhere": (
        {"prefix_cache": True},
        "--prefix-cache works only with --strategy pd: leave it out, or use --strategy pd.",
    ),
    "a batch of decode elsewhere": (
        {"decode_batch": 64},
        "--decode-batch works only with --strategy pd: leave it out, or use --strategy pd.",
    ),
    "strategy unknown": ({"strategy": "pp"}, "There is no strategy pp: use one of tp,"),
    "engine unknown": ({"engine": "llama.cpp"}, "There is no preset for the engine llama.cpp"),
    "version unknown": ({"version": "9.9"}, "There is no preset for sglang 9.9: use one of the versions 0.5.23"),
    "no preset": ({"version": "0.4.9.post2", "strategy": "tp+ep"}, "sglang 0.4.9.post2 has no preset for tp+ep"),
    "no image": ({"version": "0.4.9.post2", "hardware": "mi300x"}, "no image of sglang 0.4.9.post2 for amd"),
    "memory": (
        {"hardware": "h100", "tp": 8},
        "the weights of Kimi-K2-Instruct take 120 GiB on each of 8 GPUs, but of the 80 GiB",
    ),
    "memory, what works": ({"hardware": "h100", "tp": 8}, "--tp 16 works."),
    "room for the cache": ({"hardware": "h100", "model": "thinking", "strategy": "tp+dp", "tp": 8}, "weights and cache"),
    "quantization blocks": (
        {"tp": 32},
        "matrices 2048 columns wide cannot be cut into 32 pieces that consist of whole fp8 blocks of 128 columns",
    ),
    "heads": ({"tp": 24, "gpus_per_node": 8, "model": "thinking"}, "64 attention heads cannot be divided by 24 GPUs"),
    "TP by DP": ({"strategy": "tp+dp", "tp": 8, "dp": 3}, "TP 8 is not a multiple of DP 3"),
    "TP by EP": ({"strategy": "tp+ep", "tp": 8, "ep": 3}, "TP 8 is not a multiple of EP 3"),
    "whole nodes": ({"tp": 12}, "12 GPUs do not fill complete nodes of 8 GPUs: use a multiple of 8"),
    "copies in a node": ({"tp": 8, "dp": 4}, "4 copies of 8 GPUs in one node, which needs 32 GPUs, but a node has 8"),
    "EP without its strategy": ({"ep": 4}, "--ep requires a strategy with EP, but --strategy is tp"),
    "too few nodes": ({"hardware": "h100", "nodes": 1}, "needs 2 nodes of 8 H100, but --nodes is 1"),
    "no reasoning": ({"reasoning_parser": True}, "Kimi-K2-Instruct has no reasoning parser: it answers at once"),
    "no tools": (
        {"model": "base", "tool_call_parser": True},
        "Kimi-K2-Base has no tool-call parser: it only continues texts",
    ),
    "more than TP can be": ({"engine": "vllm", "tp": 32}, "--tp 8 works. For more GPUs, use --strategy tp+pp."),
    "PP without its strategy": (
        {"engine": "vllm", "pp": 2},
        "--pp requires a strategy with PP, but --strategy is tp",
    ),
    "an engine without pipelines": ({"strategy": "tp+pp"}, "sglang 0.5.23 has no preset for tp+pp"),
    "more stages than layers": (
        {"engine": "vllm", "strategy": "tp+pp", "tp": 8, "pp": 62},
        "496 GPUs cannot work: 61 layers cannot be divided into 62 pipeline stages",
    ),
    "copies in a vLLM": (
        {"engine": "vllm", "tp": 8, "dp": 2},
        "--dp requires a strategy with DP, but --strategy is tp",
    ),
    "weights": (
        {"engine": "tensorrt-llm", "strategy": "tp+ep", "model": "thinking"},
        "tensorrt-llm has no recipe for int4 weights",
    ),
    "format": (
        {"engine": "ktransformers", "strategy": "cpu"},
        "ktransformers reads gguf files, but the files of Kimi-K2-Instruct are saf",
    ),
    "context": ({"context_length": 200000}, "more than the context length of Kimi-K2-Instruct, which is 131072 tokens"),
    "wide EP, vendor": (
        {"strategy": "pd", "hardware": "mi300x"},
        "DeepEP) runs on NVIDIA GPUs with RDMA, which MI300X is not",
    ),
    "wide EP, experts": (
        {"strategy": "pd", "model": "thinking"},
        "need fp8 experts, but the quantization of the experts of Kimi-K2-Thinking is int4",
    ),
    "wide EP, sizes": ({"strategy": "pd", "dp": 8}, "leave out --dp, --ep and --pp"),
    "TP inside EP": (
        {"strategy": "pd", "tp": 5},
        "prefill has 32 GPUs, which is not a multiple of 5: set --tp to a divisor of 32",
    ),
    "heads of TP inside EP": (
        {"strategy": "pd", "prefill_nodes": 12, "decode_nodes": 12, "tp": 24},
        "Prefill on 12 nodes cannot work: 64 attention heads cannot be divided by 24 GPUs",
    ),
    "wide EP, one node": ({"strategy": "pd", "nodes": 1}, "1 node is not enough for prefill and decode"),
    "wide EP, more than there are": (
        {"strategy": "pd", "nodes": 4, "prefill_nodes": 2, "decode_nodes": 3},
        "4 nodes are not enough",
    ),
    "wide EP, memory": (
        {"strategy": "pd", "hardware": "h100", "prefill_nodes": 1, "decode_nodes": 2},
        "Prefill on 1 node cannot",
    ),
    "name": ({"name": "Kimi K2"}, "--name Kimi K2 cannot be the name of a service: write, for example, kimi-k2."),
    "halves of nothing": (
        {"prefill_nodes": 2},
        "--prefill-nodes works only with --strategy pd: leave it out, or use --strategy pd.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_recipe_refusal_states_reason_on_one_line(case: str, shelf: Library) -> None:
    asked, reason = REFUSED[case]
    with pytest.raises(RecipeRefused) as said:
        plan(RecipeRequest(**{"hardware": "h200", "model": "instruct", **asked}), shelf)
    assert reason in str(said.value)
    assert "\n" not in str(said.value)


def test_kv_cache_type_unknown_to_the_engine_version_is_refused(shelf: Library) -> None:
    made = plan(RecipeRequest(hardware="h200", model="instruct", kv_cache_dtype="mxfp8", version="0.5.6.post1"), shelf)
    with pytest.raises(RecipeRefused, match=r"does not accept --kv-cache-dtype mxfp8: use one of auto, "):
        in_shell(made)


@pytest.mark.parametrize(
    ("asked", "shape"),
    [
        ({"nodes": 16}, [(1, 8, 16)]),
        ({"nodes": 16, "hardware": "h100"}, [(2, 16, 8)]),
        ({"nodes": 3, "hardware": "h100"}, [(2, 16, 1)]),
        ({"nodes": 2, "model": "thinking", "tp": 4, "hardware": "b200"}, [(1, 4, 4)]),
        ({"nodes": 16, "strategy": "pd"}, [(4, 32, 1), (12, 96, 1)]),
        ({"nodes": 8, "strategy": "pd"}, [(2, 16, 1), (6, 48, 1)]),
        ({"nodes": 8, "strategy": "pd", "decode_nodes": 4}, [(4, 32, 1), (4, 32, 1)]),
        ({"prefill_nodes": 5, "decode_nodes": 13, "strategy": "pd"}, [(5, 40, 1), (13, 104, 1)]),
    ],
)
def test_common_node_sizes_are_used(asked: dict[str, Any], shape: list[tuple[int, int, int]], shelf: Library) -> None:
    made = plan(RecipeRequest(**{"hardware": "h200", "model": "instruct", **asked}), shelf)
    assert [(role.nodes, role.tp, made.copies) for role in made.roles] == shape
    for role in made.roles:
        assert role.ep == 1 or (384 + role.redundant) % role.ep == 0


def test_fp8_kv_cache_holds_twice_the_tokens(shelf: Library) -> None:
    made = [
        plan(RecipeRequest(hardware="h200", model="instruct", kv_cache_dtype=kind), shelf).notes[0]
        for kind in (None, "fp8_e4m3")
    ]
    assert [int(note.rpartition("about ")[2].split(",")[0]) for note in made] == [108, 217]
