"""The ways in which a model can be divided over the GPUs of a worker."""

from collections.abc import Iterator
from functools import cache

from ome_operator.capacity.division import UnevenDivision, find_uneven_heads, find_uneven_size
from ome_operator.capacity.shape import ParallelShape
from ome_operator.cookbook.roles import MOST_NODES
from ome_operator.sizing.error_bars import NARROW
from ome_operator.sizing.shapes import Shape
from ome_operator.sizing.steps import ServingStack
from ome_operator.sizing.workers import Worker


@cache
def _sizes(gpus: int, node: int) -> tuple[int, ...]:
    """Return the numbers of GPUs that a worker may have: a part of a node, or complete nodes."""
    parts = [size for size in (1, 2, 4, 8) if size <= min(node, gpus)]
    return tuple(dict.fromkeys([*parts, *(nodes * node for nodes in range(1, gpus // node + 1))]))


def possible_workers(place: ServingStack, gpus: int) -> Iterator[Worker]:
    """Yield every way to divide the model over a worker of at most `gpus` GPUs, whether it fits into memory or not. A
    worker without data-parallel attention has at most MOST_NODES nodes, as in the cookbook.
    """
    shape, gpu = place.shape, place.gpu
    for size in _sizes(gpus, gpu.node):
        if size <= MOST_NODES * gpu.node and (worker := _tensor_parallel(shape, size)) is not None:
            yield worker
        cut = Worker(1, size, 1)  # attention ranks that divide each expert
        if shape.experts and 1 < size <= max(gpu.node, min(NARROW, gpu.domain)) and find_uneven(shape, cut) is None:
            yield cut
        if shape.experts and 1 < size <= shape.experts:
            yield Worker(1, size, size)


def _tensor_parallel(shape: Shape, size: int) -> Worker | None:
    """Return the worker whose `size` GPUs share the attention of each token. Each expert is divided among all GPUs if this
    is possible; otherwise, complete experts are distributed over the GPUs. Return None if neither is possible.
    """
    possible = (Worker(size, 1, ep) for ep in ((1, size) if shape.experts else (1,)))
    return next((worker for worker in possible if find_uneven(shape, worker) is None), None)


def find_uneven(shape: Shape, worker: Worker) -> UnevenDivision | None:
    """Return the first size of a model that does not divide evenly among the GPUs of a worker; None if all sizes do. The
    rules are those of `ome generate`.

    With data-parallel attention over all GPUs that have experts, only the attention heads are checked. The engine adds
    copies of experts until their number divides evenly, and does not divide the other matrices.
    """
    model = shape.known
    if worker.kind == "dep":
        return find_uneven_heads(model, worker.tp)
    return find_uneven_size(model, ParallelShape(tp=worker.gpus, attention_dp=worker.dp, ep=worker.ep, cut=worker.gpus))
