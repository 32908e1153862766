"""Rules about quantization blocks, which share a scale and cannot be divided between GPUs."""

from collections.abc import Iterator

from ome_operator.capacity import division
from ome_operator.capacity.model import ModelFacts
from ome_operator.lint.division import engines, locate_flag
from ome_operator.lint.finding import Rule, RuleHit, Severity, rule
from ome_operator.lint.subject import Subject


@rule(
    "blocks-divide",
    Severity.ERROR,
    "TP cuts a weight matrix inside a quantization block",
    ignored="The engine exits with `is not divisible by weight quantization block_n` when it builds its layers.",
    evidence="SGLang 0.5.23, layers/quantization/fp8.py: each part of a matrix must consist of complete blocks, because "
    "each block has a single scale.",
)
def blocks_divide(subject: Subject) -> Iterator[RuleHit]:
    quantization = subject.model.facts.quantization if subject.model is not None else None
    for role, start, found in engines(subject):
        if subject.model is None or quantization is None or not quantization.block or not found.tp or not found.ep:
            continue
        widths, columns = subject.model.widths, quantization.block[1]
        if subject.model.experts and widths:
            uneven = division.block(subject.model, widths[0], found.tp // found.ep, "experts", uncut=True)
            if uneven is not None:
                remedy = _whole_experts(found.tp, division.possible_pieces(widths[0], columns))
                yield RuleHit(locate_flag(role, start, "--ep-size", "--tp-size"), uneven.sentence, remedy)
            widths = widths[1:]
        dense = start.whole_number("--moe-dense-tp-size") or found.tp
        for width in widths:
            if uneven := division.block(subject.model, width, dense, "dense layers"):
                yield RuleHit(
                    locate_flag(role, start, "--tp-size"), uneven.sentence, _whole_layers(subject.model, width, columns)
                )


def _whole_experts(tp: int, possible: tuple[int, ...]) -> str:
    """Return the remedy for experts that are cut inside a block. `tp` is the TP size of the server, and `possible` contains
    the numbers of pieces into which an expert can be cut without cutting a block.
    """
    fitting = [pieces for pieces in possible if tp % pieces == 0]
    if not fitting:
        return (
            "use weights without blocks, such as BF16 weights or weights with a scale for each channel, because no "
            "size divides these blocks"
        )
    return f"write --ep-size={tp // fitting[-1]}: an expert can be cut into {_either(possible)}"


def _whole_layers(model: ModelFacts, width: int, columns: int) -> str:
    """Return the remedy for dense layers that are cut inside a block. `width` is the width of the layers, and
    `columns` is the width of a block.
    """
    if model.experts:
        return "write --moe-dense-tp-size=1, which does not cut these layers"
    possible = division.possible_pieces(width, columns)
    return f"write a --tp-size that cuts them into {_either(possible)}" if possible else "write --tp-size=1"


def _either(numbers: tuple[int, ...]) -> str:
    """Return "1, 2 or 6 pieces" for (1, 2, 6)."""
    *others, last = numbers
    return f"{', '.join(map(str, others))} or {last} pieces" if others else "1 piece"


RULES: tuple[Rule, ...] = (blocks_divide,)
