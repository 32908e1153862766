"""Check that sizes divide evenly when GPUs share a model: attention groups, heads, experts and quantization blocks."""

from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple

from ome_operator.capacity.model import ModelFacts
from ome_operator.capacity.shape import ParallelShape


class Division(Enum):
    """A rule of divisibility. An UnevenDivision names the rule that a size violates."""

    SIZES = auto()
    """A size is 0 or less."""
    STAGES = auto()
    """The layers do not divide evenly into pipeline stages."""
    ATTENTION = auto()
    """The TP size is not a multiple of the number of attention groups."""
    HEADS = auto()
    """The attention heads do not divide evenly among the GPUs."""
    EXPERT_GROUPS = auto()
    """The TP size is not a multiple of the number of expert groups."""
    EXPERTS = auto()
    """The experts and their redundant copies do not divide evenly among the expert groups."""
    BLOCKS = auto()
    """A matrix does not divide into pieces of complete quantization blocks."""


class UnevenDivision(NamedTuple):
    """A size that does not divide evenly."""

    division: Division
    sentence: str
    """What is wrong, as a clause without a full stop."""


def find_uneven_size(model: ModelFacts, shape: ParallelShape) -> UnevenDivision | None:
    """Return the first size of the shape that does not divide evenly; None if all sizes divide evenly."""
    return next(_uneven(model, shape), None)


def _uneven(model: ModelFacts, shape: ParallelShape) -> Iterator[UnevenDivision]:
    if min(shape.tp, shape.pp, shape.attention_dp, shape.attention_cp, shape.copies, shape.ep) < 1:
        yield UnevenDivision(Division.SIZES, "sizes must be at least 1")
        return
    layers = model.facts.layers
    if layers and shape.pp > layers:
        yield UnevenDivision(Division.STAGES, f"{layers} layers cannot be divided into {shape.pp} pipeline stages")
    checks = (
        attention_groups(shape.tp, shape.attention_dp),
        find_uneven_heads(model, shape.attention_tp),
        expert_groups(shape.tp, shape.ep),
        experts(model, shape.ep, shape.redundant),
        *_blocks(model, shape),
    )
    yield from (uneven for uneven in checks if uneven is not None)


def _blocks(model: ModelFacts, shape: ParallelShape) -> Iterator[UnevenDivision | None]:
    """Yield the result of `block` for each width of the model's matrices. An expert is divided only among the GPUs of its
    expert group; if each group is a single GPU, experts are not divided.
    """
    for number, width in enumerate(model.widths):
        of_experts = number == 0 and model.experts > 0
        yield block(model, width, shape.cut // shape.ep if of_experts else shape.cut)


def attention_groups(tp: int, groups: int) -> UnevenDivision | None:
    """Check that the TP size is a multiple of the number of data-parallel attention groups. Return None if it is a
    multiple.
    """
    if tp % groups == 0:
        return None
    message = f"TP {tp} is not a multiple of DP {groups}, the number of groups that divide attention"
    return UnevenDivision(Division.ATTENTION, message)


def find_uneven_heads(model: ModelFacts, gpus: int) -> UnevenDivision | None:
    """Check that `gpus` GPUs can evenly share the model's attention heads, its key-value heads, and its heads of linear
    attention. Return None if this is possible, or if the number of heads is unknown.

    More GPUs than key-value heads are possible: engines then put equally many copies of each on the GPUs. Latent attention
    has no key-value heads that are divided.
    """
    attention = model.facts.attention
    if attention is None:
        return None
    for count, what in ((attention.heads, "attention heads"), (attention.linear_heads, "heads of linear attention")):
        if count is not None and (not gpus or count % gpus):
            return UnevenDivision(Division.HEADS, f"{count} {what} cannot be divided by {gpus} GPUs")
    shared = attention.kv_heads if not attention.kv_lora_rank else 0
    if shared and shared % gpus and gpus % shared:
        sentence = f"{shared} key-value heads can neither be divided by {gpus} GPUs nor copied evenly to them"
        return UnevenDivision(Division.HEADS, sentence)
    return None


def expert_groups(tp: int, ep: int) -> UnevenDivision | None:
    """Check that the TP size `tp` is a multiple of `ep`, the number of expert groups. Return None if it is a multiple."""
    if tp % ep == 0:
        return None
    return UnevenDivision(
        Division.EXPERT_GROUPS, f"TP {tp} is not a multiple of EP {ep}, the number of groups that divide the experts"
    )


def experts(model: ModelFacts, ep: int, redundant: int) -> UnevenDivision | None:
    """Check that `ep` groups hold equally many of the model's experts and their `redundant` copies. Return None if this is
    the case.
    """
    total = model.experts + redundant
    if ep == 1 or not model.experts or total % ep == 0:
        return None
    copies = f" and {redundant} copies make {total}, which" if redundant else ""
    return UnevenDivision(Division.EXPERTS, f"{model.experts} experts{copies} cannot be divided by EP {ep}")


def redundant_experts(experts: int, gpus: int, spare: int) -> int:
    """Return the number of redundant experts with which all GPUs hold the same number of experts.

    If the experts divide evenly without redundant copies, the result is `spare` copies of busy experts for each GPU.
    """
    return -experts % gpus + (0 if experts % gpus else spare * gpus)


def block(
    model: ModelFacts, width: int, pieces: int, matrices: str = "matrices", *, uncut: bool = False
) -> UnevenDivision | None:
    """Check that a matrix of `width` columns can be cut into `pieces` pieces of complete quantization blocks. Return None
    if this is possible.

    The values of a block share a scale, so a block cannot be divided between two GPUs. The check always passes for a model
    without blocks. `matrices` is the name of the matrix in the message. `uncut` is true for matrices that need complete
    blocks even if they are not cut; SGLang requires this of experts (layers/quantization/fp8.py).
    """
    quantization = model.facts.quantization
    if quantization is None or not quantization.block or not quantization.block[1]:
        return None
    if whole_blocks(width, pieces, quantization.block[1], uncut=uncut):
        return None
    blocks = f"{quantization.name} blocks of {quantization.block[1]} columns"
    cut = f"be cut into {pieces} pieces that consist" if pieces > 1 else "consist"
    return UnevenDivision(Division.BLOCKS, f"{matrices} {width} columns wide cannot {cut} of whole {blocks}")


def whole_blocks(width: int, pieces: int, columns: int, *, uncut: bool = False) -> bool:
    """Return whether a matrix of `width` columns divides into `pieces` pieces of complete blocks, each with `columns`
    columns. The result is always true for one piece, unless `uncut` is true.
    """
    if pieces <= 1 and not uncut:
        return True
    return pieces > 0 and width % pieces == 0 and width // pieces % columns == 0


def possible_pieces(width: int, columns: int) -> tuple[int, ...]:
    """Return all numbers of pieces into which a matrix of `width` columns can be cut so that each piece consists of complete
    blocks of `columns` columns; () if the matrix itself does not consist of complete blocks.
    """
    if width % columns:
        return ()
    return tuple(pieces for pieces in range(1, width // columns + 1) if width // columns % pieces == 0)
