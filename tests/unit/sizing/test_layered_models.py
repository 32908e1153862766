"""Tests of plans for models whose layers differ, from their config.json."""

import json
from dataclasses import replace
from typing import Any

import pytest

from ome_operator.modelinfo.architecture import SPARSE
from ome_operator.sizing.gpus import gpu
from ome_operator.sizing.memory import compute_fit
from ome_operator.sizing.shapes import Shape, from_config, shape
from ome_operator.sizing.steps import ServingStack, attention_seconds, decode_terms, pairs, prefill_terms
from ome_operator.sizing.workers import Worker
from tests.support.parts import ROOT

TP8 = Worker(8, 1, 1)
MODELS = {
    row["model"]: row["config"]
    for row in map(json.loads, (ROOT / "tests/data/models/published.jsonl").read_text().splitlines())
}


def named(model: str) -> Shape:
    config: dict[str, Any] = MODELS[model]
    return from_config(model, config, "bf16")


@pytest.mark.parametrize("model", MODELS)
def test_every_counted_model_has_a_shape(model: str) -> None:
    found = named(model)
    assert sum(found.rest_flops.values()) > 0
    assert found.attended and all(each.operations > 0 and each.numbers + each.fixed > 0 for each in found.attended)
    assert not found.estimated


NAMES = json.loads((ROOT / "ome_operator/sizing/data/published_configs.json").read_text())


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("Kimi-K3", "MiniMax-M3") and "FP8" not in name])
def test_model_by_name_has_the_sizes_of_its_config_file(name: str) -> None:
    """A model that is given by its name has the same sizes as its config.json in tests/data/models, whose sizes were
    compared with the real classes. For Step 3.7 the difference may be 12,096 numbers: its file lacks the biases of its
    routers.
    """
    (file,) = [from_config(name, config) for model, config in MODELS.items() if model.endswith(f"/{name}")]
    found = shape(name, "bf16")
    assert found.facts.parameters == pytest.approx(file.facts.parameters, abs=12_096 if "Step" in name else 0)
    assert found.facts.active_parameters == pytest.approx(file.facts.active_parameters, abs=12_096 if "Step" in name else 0)
    assert (found.attended, found.request_cache, found.longest) == (file.attended, file.request_cache, file.longest)


@pytest.mark.parametrize(
    ("name", "precision", "gigabytes"),
    [
        ("zai-org/GLM-5-FP8", "fp8", 744),  # two bytes for the output matrix, one for the rest
        ("deepseek-v4-flash", "mxfp4", 155),
        ("DeepSeek-V4-Pro", "mxfp4", 848),
        ("DeepSeek-V3.2", "fp8", 672),
        ("MiniMax-M3", "bf16", 850),
        ("Kimi-K3", "mxfp4", 1558),
        ("Qwen3.5-27B", "bf16", 51),
    ],
)
def test_model_by_name_has_the_precision_of_its_published_weights(name: str, precision: str, gigabytes: int) -> None:
    """A model that is given by its name has the precision of its published weights. `gigabytes` is the size of the weights
    that a step may read: all but the input embedding.
    """
    found = shape(name)
    assert found.precision == precision
    assert (found.routed_bytes + found.rest_bytes) / 1e9 == pytest.approx(gigabytes, abs=1)


def test_requested_precision_replaces_that_of_every_part() -> None:
    found = shape("DeepSeek-V4-Flash", "fp8")
    assert found.routed_bytes == 277_025_390_592
    assert found.rest_bytes == shape("DeepSeek-V4-Flash").rest_bytes, "the other matrices are FP8 in both"


def test_operations_have_the_precision_of_their_weights() -> None:
    """The operations of each part of a model are counted in the precision of its weights: in DeepSeek V4, the experts have 4
    bits, the output matrix BF16, and the other matrices FP8.
    """
    found, head = shape("DeepSeek-V4-Flash"), 2 * 129280 * 4096
    assert set(found.rest_flops) == {"fp8", "bf16"}
    assert head < found.rest_flops["bf16"] < 2 * head < found.rest_flops["fp8"]
    assert found.head_flops == head
    assert shape("gpt-oss-120b").rest_flops.keys() == {"bf16"}, "only the experts are quantized"
    assert shape("Qwen3-32B").rest_flops.keys() == {"bf16"}


def test_decode_step_reads_and_writes_linear_attention_states() -> None:
    qwen = named("Qwen/Qwen3.5-397B-A17B")
    place = ServingStack(qwen, gpu("b200"), "sglang")
    short = decode_terms(place, TP8, 1, 0)["cache"]
    assert short * gpu("b200").bandwidth == pytest.approx(2 * qwen.request_cache.state / 8)
    assert named("openai/gpt-oss-120b").request_cache.state == 0


def test_window_and_state_caches_reduce_the_number_of_requests() -> None:
    nano, h200 = named("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"), gpu("h200")
    found = compute_fit(nano, h200, TP8, "null")
    alone = found.tokens / 2000
    assert found.requests(nano, TP8, 2000) == pytest.approx(alone / 2, rel=0.01), "23 states weigh as much as the tokens"
    gemma = named("google/gemma-4-26B-A4B")
    room = compute_fit(gemma, h200, TP8, "null")
    lengths = [room.tokens / room.requests(gemma, TP8, length) - length for length in (500, 1024, 4096)]
    assert lengths[0] < lengths[1] == pytest.approx(lengths[2]), "a window is full after 1,024 tokens"


def attention(model: str, contexts: tuple[int, ...]) -> list[tuple[float, float]]:
    """Return what a decode step of a single request on 8 GPUs of TP 8 reads and computes in attention: bytes of the cache
    beside the states, and operations, as if all were in BF16.
    """
    sizes, b200 = named(model), gpu("b200")
    work = [attention_seconds(ServingStack(sizes, b200, "sglang"), TP8, context) for context in contexts]
    state = 2 * sizes.state / min(8, sizes.state_heads)
    return [(reading * b200.bandwidth - state, computing * b200.rate("bf16")) for reading, computing in work]


@pytest.mark.parametrize("model", [name for name, config in MODELS.items() if config.get("model_type") in SPARSE])
def test_sparse_attention_reads_the_chosen_tokens_and_the_keys_of_all(model: str) -> None:
    """With sparse attention, each token reads a fixed number of chosen tokens. For a longer context than that, only the
    reading of the indexers' keys grows with the context.
    """
    sizes, config = named(model), MODELS[model]
    chosen, index = sizes.attended
    assert chosen.most == config["index_topk"]
    few, more, far, farther = attention(model, (1000, 2000, 20_000, 40_000))
    assert more[0] - few[0] == pytest.approx(1000 * (chosen.numbers + index.fixed))
    assert farther[0] - far[0] == pytest.approx(20_000 * index.fixed)
    own = sizes.layers - (config.get("indexer_types") or []).count("shared")
    assert index.fixed == own * (config["index_head_dim"] + 4)
    work = 2 * config["index_n_heads"] * config["index_head_dim"] * own
    assert 2 * (farther[1] - far[1]) == pytest.approx(20_000 * work), "FP8 is twice as fast as BF16"


def test_deepseek_v4_decode_reads_windows_and_compressed_vectors() -> None:
    """A decode step of DeepSeek V4 reads the bytes that follow from the sizes of V4-Flash: 43 layers, of which 21 compress 4
    tokens to a vector, 20 compress 128, and 2 have only a window of 128 tokens; an indexer chooses 512 vectors.
    """
    latent, key = 512 + 64 + 8, 128 + 4
    near, full, far, farther = attention("deepseek-ai/DeepSeek-V4-Flash", (64, 128, 100_000, 200_000))
    per_token = 43 * latent + 21 * (latent + key) / 4 + 20 * latent / 128
    assert full[0] - near[0] == pytest.approx(64 * per_token)
    assert farther[0] - far[0] == pytest.approx(100_000 * (21 * key / 4 + 20 * latent / 128))
    pair = 4 * 64 * 512 / 8
    indexed = 100_000 / 4 * 21 * 2 * 64 * 128 / 2
    assert farther[1] - far[1] == pytest.approx(100_000 / 128 * 20 * pair + indexed)


@pytest.mark.parametrize("model", ["nvidia/MiniMax-M3-NVFP4"])
def test_minimax_m3_decode_reads_chosen_blocks_and_all_index_keys(model: str) -> None:
    """In 57 of its 60 layers, MiniMax M3 has an indexer: a decode step reads the keys of all tokens, and 16 blocks of 128
    tokens. In the other 3 layers, the step reads all tokens. A key has 128 numbers in BF16.
    """
    few, more, far, farther = attention(model, (1000, 2000, 20_000, 40_000))
    layer, keys = 2 * 128 * 4 / 4, 57 * 128 * 2
    assert more[0] - few[0] == pytest.approx(1000 * (60 * layer + keys))
    assert farther[0] - far[0] == pytest.approx(20_000 * (3 * layer + keys))
    assert farther[1] - far[1] == pytest.approx(20_000 * (3 * 4 * 64 * 128 / 8 + 57 * 2 * 4 * 128 / 4))


@pytest.mark.parametrize(
    ("model", "window", "complete", "windowed"),
    [
        ("openai/gpt-oss-120b", 128, 18, 18),
        ("google/gemma-4-26B-A4B", 1024, 5, 25),
        ("XiaomiMiMo/MiMo-V2-Flash", 128, 9, 39),
    ],
)
def test_layers_with_a_window_read_only_the_window(model: str, window: int, complete: int, windowed: int) -> None:
    sizes = named(model)
    full, short = sorted(sizes.attended, key=lambda each: each.most)
    assert (full.most, short.most) == (0, window)
    half, whole, far, farther = attention(model, (window // 2, window, 10_000, 20_000))
    heads = min(8, sizes.cache_heads)
    assert whole[0] - half[0] == pytest.approx(window / 2 * (full.numbers + short.numbers) / heads)
    assert farther[0] - far[0] == pytest.approx(10_000 * full.numbers / heads)
    assert full.numbers % complete == 0 and short.numbers % windowed == 0


def test_prefill_attends_to_all_or_to_chosen_tokens_by_prompt_length() -> None:
    sizes, b200 = named("deepseek-ai/DeepSeek-V3.2"), gpu("b200")
    place, each_rank = ServingStack(sizes, b200, "sglang"), Worker(1, 8, 8)
    chosen, index = sizes.attended

    def seconds(place: ServingStack, length: int, prompt: int) -> float:
        return prefill_terms(place, each_rank, length, prompt)["attention"] * each_rank.gpus

    keys, latent = index.operations / b200.rate("fp8"), chosen.operations / b200.rate("bf16")
    dense = ServingStack(replace(sizes, attended=(replace(chosen, most=0),)), b200, "sglang")
    assert seconds(place, 2048, 2048) == pytest.approx(seconds(dense, 2048, 2048) + 2048 * 1024 * keys)
    assert seconds(place, 1000, 9000) == pytest.approx(1000 * (2048 * latent + 8500 * keys)), "the end of a long prompt"
    pairs = 2048 * 1024 + (9000 - 2048) * 2048
    assert seconds(place, 9000, 9000) == pytest.approx(pairs * latent + 9000 * 4500 * keys)
    assert seconds(place, 128_000, 128_000) < seconds(dense, 128_000, 128_000) / 4


@pytest.mark.parametrize(("every", "most"), [(1, 0), (4, 0), (1, 100), (4, 100), (128, 3)])
@pytest.mark.parametrize(("length", "prompt"), [(50, 50), (1000, 1000), (300, 1000), (20, 390)])
def test_attention_pairs_of_a_prompt_are_the_sum_over_its_tokens(every: int, most: int, length: int, prompt: int) -> None:
    tokens = [(number + 0.5) / every for number in range(prompt - length, prompt)]
    assert pairs(length, prompt, every, most) == pytest.approx(sum(min(n, most or n) for n in tokens), rel=0.01)
