"""Predict a layout that the user names, instead of searching for layouts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ome_operator.capacity.memory import BOTH, DECODE, GIB, PREFILL, in_gib
from ome_operator.sizing.constants import Constants
from ome_operator.sizing.errors import PlanRefused
from ome_operator.sizing.layouts import Layout, Side, check, share, steady_state, too_slow
from ome_operator.sizing.memory import compute_fit
from ome_operator.sizing.possible_workers import find_uneven
from ome_operator.sizing.queueing import Role
from ome_operator.sizing.request import PlanRequest
from ome_operator.sizing.steps import ServingStack
from ome_operator.sizing.workers import Worker, workers
from ome_operator.util.wording import count


def given_layout(request: PlanRequest, prefill: str, decode: str, c: Constants) -> tuple[PlanRequest, Sequence[Layout]]:
    """Return the request with the number of nodes of this layout, and the layout with its steady state.

    `prefill` and `decode` are texts such as 1xDEP32. If `prefill` is "", the workers of `decode` do both prefill and decode.
    Raises PlanRefused if the layout does not fit into memory, cannot serve the load, or exceeds a bound of the request.
    """
    if not decode:
        raise PlanRefused("--prefill needs --decode, the layout of the decode workers: add --decode.")
    first = _side(request, "--prefill", prefill, PREFILL) if prefill else None
    second = _side(request, "--decode", decode, DECODE if prefill else BOTH)
    sized = replace(request, nodes=second.nodes + (first.nodes if first else 0))
    check(sized, c)
    state = steady_state(sized, first, second, c)
    if state is None and sized.rate is None:
        raise PlanRefused(
            f"The KV cache of --decode {decode} cannot hold a request of this length: use more GPUs for a decode worker."
        )
    if state is None:
        most = steady_state(replace(sized, rate=None), first, second, c)
        reached = f"at most {most.rate:.2f} requests a second" if most else "no request of this length"
        raise PlanRefused(
            f"This layout can answer {reached}, but the load has {sized.rate:g} requests a second: use more workers."
        )
    layout = Layout(first, second, state)
    if reason := too_slow(sized, state):
        raise PlanRefused(f"This layout exceeds the bounds: {reason}. Relax the bounds, or change the layout.")
    return sized, [layout]


def _side(request: PlanRequest, option: str, text: str, stage: str) -> Side:
    try:
        role = Role(*workers(text))
    except PlanRefused as error:
        raise PlanRefused(f"{option}: {error}") from error
    place, worker = request.place, role.worker
    routed = place.shape.experts
    if worker.ep > 1 and not routed:
        raise PlanRefused(f"{option} {text} distributes experts, but {place.shape.name} has none: use TP.")
    if worker.ep > max(routed, 1):
        message = f"{option} {text} distributes experts over {worker.ep} GPUs, but {place.shape.name} has only {routed}"
        raise PlanRefused(f"{message} experts: use at most {routed} GPUs.")
    if (uneven := find_uneven(place.shape, worker)) is not None:
        raise PlanRefused(f"{option} {text} cannot work: {uneven.sentence}.{_instead(request.place, role, stage)}")
    found = compute_fit(place.shape, place.gpu, worker, stage, share(place, stage))
    nodes = -(-role.gpus // request.per_node)
    if found.missing > 0:
        raise PlanRefused(
            f"{option} {text} does not fit into {count(nodes, 'node')} of {place.gpu.name.upper()}: a rank needs "
            f"{found.memory.reserved_share_bytes / GIB:.1f} GiB ({in_gib(found.memory.needed_parts)}), "
            f"{found.missing / GIB:.1f} GiB more "
            "than is available. Use more GPUs for a worker."
        )
    return Side(nodes, role, found, routed)


def _instead(place: ServingStack, role: Role, stage: str) -> str:
    """Return a sentence that names a layout that can run on the same number of GPUs, for the end of a message; "" if there
    is none.
    """
    for kind, worker in _alternatives(role.worker, place.shape.experts):
        if find_uneven(place.shape, worker) is not None:
            continue
        if compute_fit(place.shape, place.gpu, worker, stage, share(place, stage)).missing <= 0:
            how = f", in which each of the {worker.ep} GPUs holds complete experts" if worker.ep > 1 else ""
            return f" Write {role.gpus // worker.gpus}x{kind}{worker.gpus}{how}."
    return ""


def _alternatives(worker: Worker, experts: int) -> Iterator[tuple[str, Worker]]:
    """Yield workers that could replace a worker on its GPUs, most similar first. Each worker comes with its name in texts of
    layouts, such as TEP. `experts` is the number of routed experts of the model; 0 if it has none.
    """
    gpus = worker.gpus
    if 1 < gpus <= experts:
        spread = [("TEP", Worker(gpus, 1, gpus)), ("DEP", Worker(1, gpus, gpus))]
        yield from spread if worker.dp == 1 else reversed(spread)
    yield from (("TP", Worker(size, 1, 1)) for size in range(gpus - 1, 0, -1) if gpus % size == 0)
