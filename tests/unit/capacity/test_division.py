"""Tests of sizes that do not divide evenly, and of the message that names these sizes."""

import pytest

from ome_operator.api.learned import Attention
from ome_operator.capacity.division import (
    Division,
    block,
    experts,
    find_uneven_heads,
    find_uneven_size,
    redundant_experts,
    whole_blocks,
)
from ome_operator.capacity.model import ModelFacts
from ome_operator.capacity.shape import ParallelShape
from ome_operator.cli.generate import bookshelf
from ome_operator.sizing.shapes import shape

K2 = bookshelf().model("Kimi-K2-Instruct").sizes


@pytest.mark.parametrize(
    ("sizes", "division", "sentence"),
    [
        ({"tp": 0}, Division.SIZES, "sizes must be at least 1"),
        ({"tp": 8, "copies": 0}, Division.SIZES, "sizes must be at least 1"),
        ({"tp": 8, "pp": 62}, Division.STAGES, "61 layers cannot be divided into 62 pipeline stages"),
        (
            {"tp": 8, "attention_dp": 3},
            Division.ATTENTION,
            "TP 8 is not a multiple of DP 3, the number of groups that divide attention",
        ),
        ({"tp": 8, "attention_dp": 16}, Division.ATTENTION, "TP 8 is not a multiple of DP 16, the number"),
        ({"tp": 24}, Division.HEADS, "64 attention heads cannot be divided by 24 GPUs"),
        (
            {"tp": 8, "ep": 3},
            Division.EXPERT_GROUPS,
            "TP 8 is not a multiple of EP 3, the number of groups that divide the experts",
        ),
        ({"tp": 80, "attention_dp": 80, "ep": 80}, Division.EXPERTS, "384 experts cannot be divided by EP 80"),
        (
            {"tp": 32, "attention_dp": 32, "ep": 32, "redundant": 8},
            Division.EXPERTS,
            "384 experts and 8 copies make 392, which cannot be divided by EP 32",
        ),
        (
            {"tp": 32, "cut": 32},
            Division.BLOCKS,
            "matrices 2048 columns wide cannot be cut into 32 pieces that consist of whole fp8 blocks of 128 columns",
        ),
    ],
)
def test_uneven_shape_returns_division_and_sentence(sizes: dict[str, int], division: Division, sentence: str) -> None:
    found = find_uneven_size(K2, ParallelShape(**sizes))
    assert found is not None
    assert found.division is division
    assert found.sentence.startswith(sentence)


def test_divisible_shapes_are_accepted() -> None:
    for sizes in (
        {"tp": 16, "cut": 16},
        {"tp": 96, "attention_dp": 96, "ep": 96, "redundant": 96},
        {"tp": 32, "attention_dp": 8, "ep": 32},
    ):
        assert find_uneven_size(K2, ParallelShape(**sizes)) is None


def test_an_expert_is_cut_by_the_gpus_of_its_group_only() -> None:
    model = shape("MiniMax-M2.5").known  # experts of 1,536 columns in blocks of 128, and no layers without experts
    uneven = find_uneven_size(model, ParallelShape(tp=8, cut=8))
    assert uneven is not None and uneven.division is Division.BLOCKS
    assert find_uneven_size(model, ParallelShape(tp=8, ep=2, cut=8)) is None
    assert find_uneven_size(model, ParallelShape(tp=8, ep=8, cut=8)) is None
    dense = find_uneven_size(K2, ParallelShape(tp=32, ep=32, cut=32))
    assert dense is not None and dense.sentence.startswith("matrices 18432 columns wide cannot be cut into 32 pieces")


def test_unknown_or_absent_sizes_count_as_divisible() -> None:
    unknown = ModelFacts("x", K2.facts.model_copy(update={"attention": None, "layers": None}), None, ())
    assert find_uneven_heads(unknown, 7) is None and find_uneven_size(unknown, ParallelShape(tp=8, pp=99)) is None
    dense = shape("Llama-3.1-8B").known
    assert experts(dense, 8, 3) is None
    assert block(shape("Kimi-K2", "bf16").known, 2048, 3) is None, "the weights have no quantization blocks"


def test_heads_of_linear_attention_must_be_divisible() -> None:
    attention = Attention(heads=32, kv_heads=2, linear_heads=16)
    model = ModelFacts("x", K2.facts.model_copy(update={"attention": attention}), None, ())
    found = find_uneven_heads(model, 32)
    assert find_uneven_heads(model, 16) is None
    assert found is not None and found.sentence == "16 heads of linear attention cannot be divided by 32 GPUs"


def test_undivided_matrix_needs_no_whole_blocks() -> None:
    assert whole_blocks(100, 1, 128)
    assert [whole_blocks(2048, pieces, 128) for pieces in (2, 3, 16, 32)] == [True, False, True, False]


def test_expert_copies_fill_gpus_evenly_or_are_spare() -> None:
    assert redundant_experts(384, 96, spare=1) == 96
    assert redundant_experts(384, 96, spare=0) == 0
    assert redundant_experts(384, 80, spare=1) == 16, "the smallest number with which the experts divide"
    assert redundant_experts(0, 8, spare=0) == 0


@pytest.mark.parametrize(
    ("number", "gpus", "fits"),
    [
        (10, 8, False),
        (10, 4, False),
        (10, 2, True),
        (10, 5, True),
        (10, 20, True),
        (8, 16, True),
        (1, 8, True),
        (40, 8, True),
    ],
)
def test_key_value_heads_are_divided_or_copied_evenly(number: int, gpus: int, fits: bool) -> None:
    """Key-value heads have to be divided evenly among the GPUs, or copied evenly to them. Phi-4, for example, has 40 heads
    and 10 key-value heads, and engines exit with TP 8. Latent attention has no heads to divide.
    """
    attention = Attention(heads=40 * 4, kv_heads=number)
    model = ModelFacts("x", K2.facts.model_copy(update={"attention": attention}), None, ())
    found = find_uneven_heads(model, gpus)
    assert (found is None) is fits
    if found is not None:
        words = f"{number} key-value heads can neither be divided by {gpus} GPUs nor copied evenly to them"
        assert (found.division, found.sentence) == (Division.HEADS, words)
    latent = attention.model_copy(update={"kv_lora_rank": 512})
    assert find_uneven_heads(ModelFacts("x", K2.facts.model_copy(update={"attention": latent}), None, ()), gpus) is None


def test_quantization_block_without_columns_is_ignored() -> None:
    """A quantization block without columns is ignored. An agent may have read such a block from an unusual config.json."""
    assert K2.facts.quantization is not None
    quantization = K2.facts.quantization.model_copy(update={"block": [0, 0]})
    model = ModelFacts("x", K2.facts.model_copy(update={"quantization": quantization}), None, (2048,))
    assert block(model, 2048, 7) is None
