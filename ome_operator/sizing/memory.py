"""Whether a worker fits into its GPUs, by the model of memory in `capacity`."""

from dataclasses import dataclass

from ome_operator.capacity.division import redundant_experts
from ome_operator.capacity.memory import PREFILL, SHARES, EngineOptions, Memory, memory
from ome_operator.capacity.model import BF16, FP8
from ome_operator.capacity.shape import ParallelShape
from ome_operator.sizing.gpus import Gpu
from ome_operator.sizing.shapes import Shape
from ome_operator.sizing.workers import Worker


@dataclass(frozen=True)
class Fit:
    """What comes of putting a rank into a GPU."""

    memory: Memory
    """What the rank needs."""
    missing: float
    """Bytes; 0 or less where it fits."""
    tokens: int
    """Of cache that a rank of attention has."""
    redundant: int
    """Copies of busy experts."""
    share: float
    """Of the GPU's memory for weights and cache (--mem-fraction-static)."""


def fit(shape: Shape, gpu: Gpu, worker: Worker, stage: str, share: float = SHARES[0], spare: int = 1) -> Fit:
    """Fit a rank of a worker into its GPU, with the smallest share of its memory from `share` on that is large enough.

    `spare`: copies of busy experts on each GPU of decode; none are made where there is no space for them.
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
    wide = worker.kind == "dep"
    copies = redundant_experts(shape.experts, worker.gpus, spare if stage != PREFILL else 0) if wide else 0
    spread = ParallelShape(tp=worker.gpus, attention_dp=worker.dp, ep=worker.ep, redundant=copies)
    options = EngineOptions(
        cache_type=FP8 if shape.precision == "fp4" else BF16,
        stage=stage,
        all_to_all="deepep" if wide and worker.gpus > gpu.node else "",
    )
    needed = memory(shape.known, spread, options)
    assert needed is not None, shape
    available = min(gpu.memory * share, gpu.memory - needed.beside)
    return Fit(needed, needed.needed - available, needed.cache_tokens(available), copies, share)
