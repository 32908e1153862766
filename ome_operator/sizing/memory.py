"""Check whether a rank of a worker fits into the memory of a GPU, with the memory model of `capacity`."""

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
    """The result of a check whether a rank fits into the memory of a GPU."""

    memory: Memory
    """The memory that the rank needs, in bytes."""
    missing: float
    """Bytes by which the needed memory exceeds the available memory. 0 or less if the rank fits."""
    tokens: int
    """Number of tokens for which the KV cache of an attention rank has space."""
    redundant: int
    """Total number of redundant copies of busy experts in the worker."""
    share: float
    """Fraction of the GPU's memory for weights and KV cache (--mem-fraction-static)."""

    def requests(self, shape: Shape, worker: Worker, length: float) -> float:
        """Return how many requests of `length` tokens fit into the memory of an attention rank. A request needs KV cache for
        its tokens, and memory for its attention windows and for its states of linear attention.
        """
        number = 1 if _cache_type(shape) == FP8 else 2
        window = (
            min(length, shape.request_cache.window)
            * shape.request_cache.windowed
            * number
            / min(worker.tp, shape.cache_heads)
        )
        beside = window + shape.request_cache.state / min(worker.tp, shape.state_heads)
        return self.tokens / (length + beside / max(1, self.memory.cache_per_token))


def _cache_type(shape: Shape) -> str:
    return FP8 if shape.precision in ("fp4", "mxfp4") else BF16


def compute_fit(shape: Shape, gpu: Gpu, worker: Worker, stage: str, share: float = SHARES[0], spare: int = 1) -> Fit:
    """Compute how a rank of a worker fits into the memory of its GPU.

    `share` is the smallest fraction of GPU memory to use for weights and KV cache. If the rank does not fit, larger
    fractions of SHARES are used. `spare` is the number of redundant experts on each GPU of a decode worker; if memory is
    short, fewer are used. If no combination fits, the result for the last combination is returned, with `missing` above 0.
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
        cache_type=_cache_type(shape),
        stage=stage,
        all_to_all="deepep" if wide and worker.gpus > gpu.node else "",
    )
    needed = memory(shape.known, spread, options)
    assert needed is not None, shape
    available = min(gpu.memory * share, gpu.memory - needed.unreserved_share_bytes)
    return Fit(needed, needed.reserved_share_bytes - available, needed.cache_tokens(available), copies, share)
