"""Whether a worker fits into its GPUs: by the lines of `ome lint` (lint/memory.py), which are the only model of memory."""

from dataclasses import dataclass

from ome_operator.cookbook.roles import DECODE, PREFILL, redundant
from ome_operator.lint.launch import Launch
from ome_operator.lint.memory import DEFAULT_SHARE, FEWEST_TOKENS, GIB, Line, room
from ome_operator.lint.sglang import Sizes
from ome_operator.plan.gpus import Gpu
from ome_operator.plan.shapes import Shape
from ome_operator.plan.workers import Worker

__all__ = ["DECODE", "PREFILL", "Fit", "fit"]
_CACHE = "cache of"


@dataclass(frozen=True)
class Fit:
    """A rank in a GPU."""

    lines: tuple[Line, ...]
    """What has to be there: weights and the smallest cache."""
    missing: float
    """Bytes; 0 or less where it fits."""
    tokens: int
    """Of cache that a rank of attention has."""
    redundant: int
    """Copies of busy experts."""

    @property
    def told(self) -> str:
        """The lines, in GiB."""
        return ", ".join(f"{line.what} {line.bytes / GIB:.1f}" for line in self.lines)


def fit(shape: Shape, gpu: Gpu, worker: Worker, stage: str, share: float = DEFAULT_SHARE, spare: int = 1) -> Fit:
    """A rank of a worker.

    `share`: of a GPU's memory for weights and cache; `spare`: copies of busy experts on a GPU of decode.
    """
    copies = redundant(shape.experts, worker.gpus, spare if stage == DECODE else 0) if worker.kind == "dep" else 0
    found = Sizes(
        tp=worker.gpus,
        pp=1,
        attention_dp=worker.dp,
        attention_cp=1,
        copies=1,
        ep=worker.ep,
        nnodes=-(-worker.gpus // gpu.node),
        redundant=copies,
        backend="deepep" if worker.kind == "dep" and worker.gpus > gpu.node else "",
        deepep_mode="",
    )
    cache = ["--kv-cache-dtype=fp8_e4m3"] if shape.precision == "fp4" else []
    start = Launch("sglang", "", "", None, None, (f"--disaggregation-mode={stage}", *cache), {}, frozenset(), False, False)
    needed = room(shape.known, start, found)
    assert needed is not None, shape
    have = gpu.memory * share
    smallest = next((line.bytes for line in needed.static if line.what.startswith(_CACHE)), 0.0)
    left = have - needed.needed + smallest
    tokens = int(left / smallest * FEWEST_TOKENS) if smallest else 0
    return Fit(needed.static, needed.needed - have, max(0, tokens), copies)
