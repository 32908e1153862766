"""Tests of the memory of a rank, compared with sums computed by hand and with the cookbook."""

import pytest

from ome_operator.capacity.memory import GIB
from ome_operator.capacity.model import ModelFacts
from ome_operator.cli.generate import bookshelf
from ome_operator.cookbook import fit
from ome_operator.cookbook.layout import plan
from ome_operator.cookbook.request import RecipeRequest
from ome_operator.engines.flags import packaged_versions
from ome_operator.lint.launch import Launch, launch
from ome_operator.lint.memory import needed_memory, share
from ome_operator.lint.sglang import graph_batch, requests, sizes


def server(*args: str) -> Launch:
    box = {"image": "sglang:v0.5.23", "command": ["python3", "-m", "sglang.launch_server"], "args": list(args)}
    found = launch(box, {}, packaged_versions())
    assert found is not None
    return found


@pytest.fixture(scope="module")
def kimi() -> ModelFacts:
    return bookshelf().model("Kimi-K2-Instruct").sizes


@pytest.mark.parametrize(
    ("strategy", "args"),
    [
        ("pd", ["--tp-size=96", "--attn-dp-size=96", "--moe-a2a-backend=deepep", "--ep-num-redundant-experts=96"]),
        ("tp", ["--tp-size=16"]),
    ],
)
def test_weight_size_equals_that_of_the_cookbook(kimi: ModelFacts, strategy: str, args: list[str]) -> None:
    shelf = bookshelf()
    made = plan(
        RecipeRequest(hardware="h200", model="Kimi-K2-Instruct", strategy=strategy, tp=16 if strategy == "tp" else None),
        shelf,
    )
    wanted = fit.gpu_memory(made.served, made.hardware, made.roles[-1], None).weights
    start = server(*args)
    found = needed_memory(kimi, start, sizes(start))
    assert found is not None
    assert int(found.weights) == wanted


def test_kv_cache_size_per_token_equals_the_measured_size(kimi: ModelFacts) -> None:
    """The computed size of the KV cache for a token equals the measured one: 70,272 bytes in BF16 and 35,136 bytes in FP8 on
    every GPU.
    """
    for args, size in (([], 70_272), (["--kv-cache-dtype=fp8_e4m3"], 35_136)):
        start = server("--tp-size=16", *args)
        found = needed_memory(kimi, start, sizes(start))
        assert found is not None
        assert (found.cache_per_token, found.smallest_cache) == (size, size * 8192)


def test_memory_beside_static_fraction_is_itemized(kimi: ModelFacts) -> None:
    args = ["--tp-size=96", "--attn-dp-size=96", "--moe-a2a-backend=deepep", "--deepep-mode=low_latency"]
    start = server(*args, "--disaggregation-mode=decode", "--cuda-graph-bs-decode", "240", "480")
    found = needed_memory(kimi, start, sizes(start))
    assert found is not None
    assert {part.name: round(part.bytes / GIB, 2) for part in found.beside_parts} == {
        "activations": 3.0,
        "CUDA graphs": 0.94,
        "DeepEP's buffers": 2.0,
    }


def test_memory_is_not_computed_from_unknown_values(kimi: ModelFacts) -> None:
    for args in (
        ["--tp-size=$(TP)"],
        ["--tp-size=24", "--attn-dp-size=7"],
        ["--tp-size=8", "--ep-num-redundant-experts=$(X)"],
    ):
        start = server(*args)
        assert needed_memory(kimi, start, sizes(start)) is None
    start = server("--tp-size=8")
    assert needed_memory(ModelFacts("x", kimi.facts, None, ()), start, sizes(start)) is None
    assert share(server("--mem-fraction-static=$(X)")) is None and share(server()) == 0.9


@pytest.mark.parametrize(
    ("args", "batch"),
    [
        (["--disable-cuda-graph"], 0),
        (["--cuda-graph-backend-decode=disabled"], 0),
        (["--cuda-graph-bs-decode", "8", "64", "16"], 64),
        (["--cuda-graph-max-bs-decode=128"], 128),
        (["--cuda-graph-bs-decode", "$(N)"], None),
        ([], None),
    ],
)
def test_largest_cuda_graph_batch_is_found(args: list[str], batch: int | None) -> None:
    assert graph_batch(server(*args)) == batch


def test_lint_reads_sizes_of_old_and_new_flags() -> None:
    old = sizes(server("--tp-size=16", "--dp-size=4", "--enable-dp-attention"))
    new = sizes(server("--tp-size=16", "--attn-dp-size=4"))
    assert old == new and (new.attention_tp, new.copies, new.gpus) == (4, 1, 16)
    assert sizes(server("--tp-size=4", "--dp-size=2")).gpus == 8, "complete copies"
    spread = sizes(server("--tp-size=16", "--moe-a2a-backend=deepep", "--ep-size=2"))
    assert spread.ep == 16, "the all-to-all decides"
    assert requests(server("--max-running-requests=64", "--attn-dp-size=4", "--tp-size=4"), new) == 16
