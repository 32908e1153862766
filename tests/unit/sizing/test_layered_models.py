"""Plans for models whose layers are not all alike, from their config.json."""

import json
from typing import Any

import pytest

from ome_operator.sizing.gpus import gpu
from ome_operator.sizing.memory import fit
from ome_operator.sizing.shapes import Shape, from_config
from ome_operator.sizing.steps import ServingStack, decode_terms
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
