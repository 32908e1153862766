"""Whether a worker fits into its GPUs: by the lines of `ome lint` (lint/memory.py), which are the only model of memory."""

from dataclasses import dataclass

from ome_operator.cookbook.roles import DECODE, PREFILL, redundant
from ome_operator.lint.launch import Launch
from ome_operator.lint.memory import DEFAULT_SHARE, FEWEST_TOKENS, GIB, Allocation, room
from ome_operator.lint.sglang import Sizes
from ome_operator.sizing.gpus import Gpu
from ome_operator.sizing.shapes import Shape
from ome_operator.sizing.workers import Worker

__all__ = ["BOTH", "DECODE", "PREFILL", "Fit", "fit"]
BOTH = "null"
"""Stage of an engine that reads and answers, as --disaggregation-mode spells it."""
_CACHE = "cache of"


SHARES = (0.85, 0.88, DEFAULT_SHARE, 0.93)
"""Of a GPU's memory for weights and cache: tried where a smaller share is too small, as `ome lint` proposes them."""


@dataclass(frozen=True)
class Fit:
    """A rank in a GPU."""

    lines: tuple[Allocation, ...]
    """What has to be there: weights and the smallest cache."""
    missing: float
    """Bytes; 0 or less where it fits."""
    tokens: int
    """Of cache that a rank of attention has."""
    redundant: int
    """Copies of busy experts."""
    share: float
    """Of the GPU's memory for weights and cache (--mem-fraction-static)."""

    @property
    def told(self) -> str:
        """The lines, in GiB."""
        return ", ".join(f"{line.what} {line.bytes / GIB:.1f}" for line in self.lines)


def fit(shape: Shape, gpu: Gpu, worker: Worker, stage: str, share: float = SHARES[0], spare: int = 1) -> Fit:
    """A rank of a worker, in the smallest share from `share` on that is large enough.

    `spare`: copies of busy experts on a GPU of decode; none are made where there is no room for them.
    """
    tries = [
        (copies, part) for copies in range(spare, -1, -1) for part in (share, *(more for more in SHARES if more > share))
    ]
    for copies, part in tries:
        found = _fit(shape, gpu, worker, stage, part, copies)
        if found.missing <= 0:
            break
    return found


def _fit(shape: Shape, gpu: Gpu, worker: Worker, stage: str, share: float, spare: int) -> Fit:
    copies = redundant(shape.experts, worker.gpus, spare if stage != PREFILL else 0) if worker.kind == "dep" else 0
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
    beside = sum(line.bytes for line in needed.beside)
    have = min(gpu.memory * share, gpu.memory - beside)
    smallest = next((line.bytes for line in needed.static if line.what.startswith(_CACHE)), 0.0)
    left = have - needed.needed + smallest
    tokens = int(left / smallest * FEWEST_TOKENS) if smallest else 0
    return Fit(needed.static, needed.needed - have, max(0, tokens), copies, share)
