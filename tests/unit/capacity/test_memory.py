"""Tests of the memory of a rank: sums computed by hand, and equal results of `ome lint`, `ome generate` and `ome plan`."""

from dataclasses import replace

import pytest

from ome_operator.capacity.memory import DECODE, FEWEST_TOKENS, GIB, PREFILL, EngineOptions, Memory, in_gib, memory
from ome_operator.capacity.model import BF16, FP8, ModelFacts, cache_type
from ome_operator.capacity.shape import ParallelShape
from ome_operator.cli.generate import bookshelf
from ome_operator.cookbook import fit, roles
from ome_operator.cookbook.library import engine
from ome_operator.cookbook.request import RecipeRequest
from ome_operator.lint.division import engines
from ome_operator.lint.memory import needed_memory
from ome_operator.sizing.gpus import gpu
from ome_operator.sizing.memory import compute_fit as planned
from ome_operator.sizing.shapes import shape
from ome_operator.sizing.workers import Worker
from tests.support.linting import looked_at
from tests.support.parts import ROOT, read_documents

RECIPES = ROOT / "tests/data/capacity/recipes.txt"
K2 = bookshelf().model("Kimi-K2-Instruct").sizes


def needed(shape: ParallelShape, options: EngineOptions | None = None, model: ModelFacts = K2) -> Memory:
    found = memory(model, shape, options or EngineOptions())
    assert found is not None
    return found


def test_weights_of_rank_equal_sum_computed_by_hand() -> None:
    """The weights on a rank equal a sum computed by hand: 384 experts are spread over 96 GPUs with one redundant expert on
    each, and all other weights are complete on each GPU.
    """
    assert K2.weights is not None
    found = needed(ParallelShape(tp=96, attention_dp=96, ep=96, redundant=96))
    assert found.routed == K2.weights.routed / 96
    assert found.copies == found.routed / 4
    assert found.other_weights == K2.weights.rest
    assert found.weights == found.routed + found.copies + found.other_weights
    assert found.reserved_share_bytes == found.weights + 70_272 * FEWEST_TOKENS


def test_pipeline_stages_divide_the_layers() -> None:
    """The stages of a pipeline divide the layers. The largest of two stages has 31 of 61 layers."""
    whole, half = (needed(ParallelShape(tp=8, pp=stages)) for stages in (1, 2))
    assert half.weights == pytest.approx(whole.weights * 31 / 61)
    assert half.cache_per_token == 70_272 * 31 // 61


def test_kv_cache_is_divided_by_heads_unless_attention_is_latent() -> None:
    dense = shape("Llama-3.3-70B").known
    each = dense.cache_bytes(BF16)
    assert dense.cache_heads == 8
    assert [needed(ParallelShape(tp=tp), model=dense).cache_per_token for tp in (1, 4, 16)] == [each, each // 4, each // 8]
    assert [needed(ParallelShape(tp=tp)).cache_per_token for tp in (1, 16)] == [70_272, 70_272]
    assert needed(ParallelShape(tp=16), EngineOptions(cache_type=FP8)).cache_per_token == 35_136


@pytest.mark.parametrize(
    ("written", "type_"), [(None, BF16), ("", BF16), ("auto", BF16), ("fp8_e4m3", FP8), ("fp8_e5m2", FP8)]
)
def test_kv_cache_type_is_parsed(written: str | None, type_: str) -> None:
    assert cache_type(written) == type_


def test_memory_beside_weights_and_cache_is_computed() -> None:
    wide = ParallelShape(tp=96, attention_dp=96, ep=96)
    decode = EngineOptions(stage=DECODE, graph_batch=480, all_to_all="deepep", deepep_mode="low_latency")
    found = needed(wide, decode)
    assert (found.activations / GIB, found.graphs, found.deepep) == (3.0, 480 * 2 * 2**20, 2 * GIB)
    assert found.unreserved_share_bytes == found.activations + found.graphs + found.deepep
    for less in (decode._replace(stage=PREFILL), decode._replace(deepep_mode="normal"), decode._replace(graph_batch=0)):
        assert needed(wide, less).graphs == needed(wide, less).deepep == 0
    assert needed(ParallelShape(tp=8), EngineOptions(chunk=32768)).activations == 32768 * 1.5 * 2**20


def test_cache_tokens_follow_from_free_memory() -> None:
    found = needed(ParallelShape(tp=16))
    assert found.cache_tokens(found.weights - 1) == 0
    assert found.cache_tokens(found.reserved_share_bytes) == FEWEST_TOKENS
    assert found._replace(cache_per_token=0).cache_tokens(1e12) == 0


def test_memory_parts_are_named_and_empty_ones_omitted() -> None:
    found = Memory(routed=2 * GIB, copies=0, other_weights=GIB, cache_per_token=0, activations=GIB, graphs=0, deepep=0)
    assert in_gib(found.needed_parts) == "routed experts 2.0, everything else 1.0"
    assert in_gib(found.beside_parts) == "activations 1.0"


def test_a_model_of_unknown_weights_has_no_sum() -> None:
    assert memory(ModelFacts("x", K2.facts, None, ()), ParallelShape(tp=8), EngineOptions()) is None


@pytest.mark.parametrize("strategy", ["tp", "tp+dp", "tp+ep", "tp+dp+ep"])
def test_generate_and_plan_compute_the_same_memory(strategy: str) -> None:
    """`ome generate` and `ome plan` compute the same weights and the same cache tokens for the same GPUs, the same fraction
    of memory and the same shape.
    """
    served, hardware = bookshelf().model("Kimi-K2-Instruct"), bookshelf().machine("h200")
    ask = RecipeRequest(
        hardware="h200", model="instruct", strategy=strategy, tp=16, **({"dp": 16} if "dp" in strategy else {})
    )
    role = roles.role(ask, engine("sglang"), 16)
    role = replace(role, ep=16 if role.ep > 1 else 1)
    theirs = fit.gpu_memory(served, hardware, role, None)
    worker = Worker(role.attention_tp, role.dp if role.attention_dp else 1, role.ep)
    ours = planned(shape("Kimi-K2-Instruct"), gpu("h200"), worker, "null", role.share, 0)
    assert int(ours.memory.weights) == theirs.weights
    assert ours.tokens == theirs.tokens


def recipes() -> str:
    """Return a line for each SGLang server of the shipped samples whose memory can be computed: the memory of a rank, in
    GiB.
    """
    bodies = [body for path in sorted((ROOT / "config/samples/isvc").rglob("*.yaml")) for body in read_documents(path)]
    lines = []
    for subject in looked_at(bodies):
        for role, start, found in engines(subject):
            rank = needed_memory(subject.model, start, found) if subject.model is not None else None
            if rank is not None:
                parts = f"{in_gib(rank.needed_parts)}; beside them {in_gib(rank.beside_parts)}"
                lines.append(f"{subject.service} {role.title}: {parts}\n")
    return "".join(sorted(lines))


def test_memory_of_shipped_recipes_equals_the_expected_sums(update: bool) -> None:
    found = recipes()
    if update:
        RECIPES.write_text(found, encoding="utf-8")
    assert found.count("\n") > 20
    assert RECIPES.read_text(encoding="utf-8") == found, "`pytest tests/unit/capacity --update-golden` writes it"
