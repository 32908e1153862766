"""Tests of plans for models whose layers differ, from their config.json."""

import json
from dataclasses import replace
from typing import Any

import pytest

from ome_operator.modelinfo.architecture import SPARSE
from ome_operator.sizing.gpus import gpu
from ome_operator.sizing.memory import fit
from ome_operator.sizing.shapes import Shape, from_config
from ome_operator.sizing.steps import ServingStack, decode_terms, prefill_terms
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
    assert found.rest_flops > 0 and found.pair_flops > 0 and found.cache_numbers > 0
    assert not found.estimated


def test_a_decode_step_reads_and_writes_the_states() -> None:
    shape = named("Qwen/Qwen3.5-397B-A17B")
    place = ServingStack(shape, gpu("b200"), "sglang")
    short = decode_terms(place, TP8, 1, 0)["cache"]
    assert short * gpu("b200").bandwidth == pytest.approx(2 * shape.kept.state / 8)
    assert named("openai/gpt-oss-120b").kept.state == 0


def test_windows_and_states_leave_space_for_fewer_requests() -> None:
    shape, h200 = named("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"), gpu("h200")
    found = fit(shape, h200, TP8, "null")
    alone = found.tokens / 2000
    assert found.requests(shape, TP8, 2000) == pytest.approx(alone / 2, rel=0.01), "23 states weigh as much as the tokens"
    gemma = named("google/gemma-4-26B-A4B")
    room = fit(gemma, h200, TP8, "null")
    lengths = [room.tokens / room.requests(gemma, TP8, length) - length for length in (500, 1024, 4096)]
    assert lengths[0] < lengths[1] == pytest.approx(lengths[2]), "a window is full after 1,024 tokens"


@pytest.mark.parametrize("model", [name for name, config in MODELS.items() if config.get("model_type") in SPARSE])
def test_sparse_attention_reads_the_chosen_tokens_and_the_keys_of_all(model: str) -> None:
    """With sparse attention, each token reads a fixed number of chosen tokens. For a longer context than that, only the
    reading of the indexers' keys grows with the context.
    """
    shape, b200 = named(model), gpu("b200")
    sparse, config = shape.sparse, MODELS[model]
    assert sparse is not None and sparse.tokens == config["index_topk"]
    place = ServingStack(shape, b200, "sglang")
    read = [decode_terms(place, TP8, 1, context) for context in (1000, 2000, 20_000, 40_000)]
    below, beyond = (after["cache"] - before["cache"] for before, after in (read[:2], read[2:]))
    assert below * b200.bandwidth == pytest.approx(1000 * (shape.cache_numbers - shape.kept.fixed + sparse.index_bytes))
    assert beyond * b200.bandwidth == pytest.approx(20_000 * sparse.index_bytes)
    own = shape.layers - (config.get("indexer_types") or []).count("shared")
    work = 2 * config["index_n_heads"] * config["index_head_dim"] * own
    assert (read[3]["attention"] - read[2]["attention"]) * b200.rate("fp8") == pytest.approx(20_000 * work)


def test_prefill_attends_to_all_tokens_of_a_short_prompt_and_to_chosen_tokens_of_a_long_one() -> None:
    shape, b200 = named("deepseek-ai/DeepSeek-V3.2"), gpu("b200")
    sparse, place = shape.sparse, ServingStack(shape, b200, "sglang")
    assert sparse is not None
    dense = ServingStack(replace(shape, sparse=None), b200, "sglang")

    def seconds(place: ServingStack, length: int, prompt: int) -> float:
        return prefill_terms(place, TP8, length, prompt)["attention"] * TP8.gpus

    assert seconds(place, 2048, 2048) == seconds(dense, 2048, 2048)
    index = sparse.index_operations / b200.rate("fp8")
    latent = shape.folded_flops / b200.rate("bf16")
    assert seconds(place, 1000, 9000) == pytest.approx(1000 * (2048 * latent + 8500 * index)), "the end of a long prompt"
    chosen = 2048 * 1024 + (9000 - 2048) * 2048
    assert seconds(place, 9000, 9000) == pytest.approx(chosen * latent + 9000 * 4500 * index)
    assert seconds(place, 128_000, 128_000) < seconds(dense, 128_000, 128_000) / 4
