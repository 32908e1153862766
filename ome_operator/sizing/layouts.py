"""Find the layouts of a model that fit into the memory of a number of nodes and meet the requested bounds, best first."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from ome_operator.capacity.memory import BOTH, DECODE, GIB, PREFILL, in_gib
from ome_operator.cookbook.library import engine as recipe
from ome_operator.sizing import steps
from ome_operator.sizing.constants import Constants
from ome_operator.sizing.error_bars import NARROW, newest_version
from ome_operator.sizing.errors import PlanRefused
from ome_operator.sizing.memory import Fit, compute_fit
from ome_operator.sizing.possible_workers import possible_workers
from ome_operator.sizing.predict import check_known
from ome_operator.sizing.queueing import Pair, Role, SteadyState, UnifiedDeployment
from ome_operator.sizing.request import PlanRequest
from ome_operator.sizing.steps import ServingStack
from ome_operator.sizing.workers import Worker
from ome_operator.util.wording import count

_MOST_SPLITS = 24
_BATCHES = (1.0, 32.0, 512.0)
"""Numbers of requests per GPU for which decode sides are compared. Each decode side is compared before it is combined
with prefill sides."""
MOST_BATCH = 1024
"""Largest planned number of concurrent requests of an attention rank. No published run has more."""


@dataclass(frozen=True)
class Side:
    """The nodes of a layout that do prefill, decode or both, and how the workers on these nodes divide the model."""

    nodes: int
    role: Role
    fit: Fit

    @property
    def slots(self) -> int:
        """The number of experts on each GPU, including redundant copies; 0 if every expert is divided among all GPUs."""
        worker = self.role.worker
        return (self.experts + self.fit.redundant) // worker.gpus if worker.ep > 1 and self.experts else 0

    experts: int = 0


@dataclass(frozen=True)
class Layout:
    """A layout with its predicted steady state."""

    prefill: Side | None
    """The prefill side of the layout; None if the decode side does both prefill and decode."""
    decode: Side
    state: SteadyState

    @property
    def nodes(self) -> int:
        """The number of nodes of the layout."""
        return (self.prefill.nodes if self.prefill else 0) + self.decode.nodes

    @property
    def gpus(self) -> int:
        """The number of GPUs that run a worker. Other GPUs of the nodes are not counted."""
        return (self.prefill.role.gpus if self.prefill else 0) + self.decode.role.gpus


class TriedLayouts(NamedTuple):
    """The layouts on a number of nodes for which a steady state was computed."""

    good_layouts: list[Layout]
    """The layouts that meet the bounds of the request, best first."""
    missed: list[Layout]
    """The layouts that exceed a bound of the request."""


def layouts(request: PlanRequest, c: Constants) -> list[Layout]:
    """Return all layouts that fit into memory and meet the bounds of the request, best first. Raises PlanRefused if there is
    no such layout.
    """
    check(request, c)
    tried = try_all(request, c)
    if not tried.good_layouts:
        raise PlanRefused(why_none(request, tried, c))
    return tried.good_layouts


def try_all(request: PlanRequest, c: Constants) -> TriedLayouts:
    """Compute the steady state of every layout on the nodes of the request."""
    found = [*_pairs(request, c), *_both(request, c)]
    good = [layout for layout in found if _good(request, layout.state)]
    missed = [layout for layout in found if not _good(request, layout.state)]
    return TriedLayouts(sorted(good, key=lambda layout: _rank(request, layout)), missed)


def _pairs(request: PlanRequest, c: Constants) -> Iterator[Layout]:
    """Yield the layouts with prefill and decode on different nodes."""
    splits = list(_splits(request.nodes))
    reads, answers = _fits(request.place, PREFILL), _fits(request.place, DECODE)
    prefills = {nodes: _undominated(request, PREFILL, nodes, reads, c) for nodes in {p for p, _ in splits}}
    decodes = {nodes: _undominated(request, DECODE, nodes, answers, c) for nodes in {d for _, d in splits}}
    for p, d in splits:
        for prefill in prefills[p]:
            for decode in decodes[d]:
                if (state := steady_state(request, prefill, decode, c)) is not None:
                    yield Layout(prefill, decode, state)


def _both(request: PlanRequest, c: Constants) -> Iterator[Layout]:
    """Yield the layouts whose engines do prefill and decode."""
    for both in _sides(request, request.nodes, _fits(request.place, BOTH)):
        if (state := steady_state(request, None, both, c)) is not None:
            yield Layout(None, both, state)


def _rank(request: PlanRequest, layout: Layout) -> tuple[float, ...]:
    """Return the sort key of a layout; better layouts have smaller keys. At a given request rate, layouts with fewer GPUs
    are better, otherwise layouts with a higher request rate.

    Two kinds of layouts follow all others:

    * layouts whose engines do both prefill and decode with more than NARROW GPUs, because no calibration row has such an
      engine;
    * in a closed loop, layouts with more attention ranks than requests, because some ranks are always idle.
    """
    state, role = layout.state, layout.decode.role
    behind = layout.prefill is None and role.worker.gpus > NARROW
    idle = request.concurrency is not None and role.copies * role.worker.dp > request.concurrency
    if request.rate is not None:
        return (behind, layout.gpus, state.ttft + state.tpot)
    return (behind, idle, -round(state.rate, 6), layout.gpus)


def check(request: PlanRequest, c: Constants) -> None:
    """Raise PlanRefused if no layout can serve the request, because a prompt exceeds the context length, there are more
    nodes than experts, or the family of the GPU is unknown to the constants.
    """
    check_known(request.place, c)
    shape = request.place.shape
    longest = max(load.prompt + load.answer for load in request.loads)
    if shape.longest and longest > shape.longest:
        raise PlanRefused(
            f"{longest:,.0f} tokens of prompt and answer together exceed the context length of {shape.name}, "
            f"{shape.longest:,} tokens: use shorter requests."
        )
    most = shape.experts or 256
    if request.nodes > most:
        what = (
            f"the {most} experts of {shape.name}"
            if shape.experts
            else (f"{most}, which is the largest number for a dense model")
        )
        raise PlanRefused(
            f"{request.nodes:,} nodes are more than {what}: plan fewer nodes and run several replicas of the service."
        )


def _splits(nodes: int) -> Iterator[tuple[int, int]]:
    step = max(1, nodes // _MOST_SPLITS)
    return ((prefill, nodes - prefill) for prefill in range(1, nodes, step))


def _fits(place: ServingStack, stage: str) -> Callable[[Worker], Fit]:
    """Return a function that computes whether a worker fits into memory, and with how much space. Its results are cached,
    because the same worker is checked for many numbers of nodes.
    """
    part = share(place, stage)
    return cache(lambda worker: compute_fit(place.shape, place.gpu, worker, stage, part))


def _sides(request: PlanRequest, nodes: int, fits: Callable[[Worker], Fit]) -> list[Side]:
    place, gpus = request.place, nodes * request.per_node
    out = []
    for worker in possible_workers(place, gpus):
        found = fits(worker)
        if found.missing <= 0:
            out.append(Side(nodes, Role(gpus // worker.gpus, worker), found, place.shape.experts))
    return out


def share(place: ServingStack, stage: str) -> float:
    """Return the fraction of GPU memory for weights and KV cache that `ome generate` writes for SGLang. `stage` is
    prefill, decode or both.
    """
    chosen = recipe("sglang")
    return chosen.shares.get(stage, chosen.shares["default"])


def _undominated(request: PlanRequest, stage: str, nodes: int, fits: Callable[[Worker], Fit], c: Constants) -> list[Side]:
    """Return the best sides of a stage on `nodes` nodes. A side is left out if another side is at least as good in every
    cost.
    """
    sides = _sides(request, nodes, fits)
    costs = [_costs(request, stage, side, c) for side in sides]
    keep = []
    for at, mine in enumerate(costs):
        if not any(_better(other, mine, number < at) for number, other in enumerate(costs) if number != at):
            keep.append(sides[at])
    return keep


def _better(other: Sequence[float], mine: Sequence[float], first: bool) -> bool:
    return all(a <= b for a, b in zip(other, mine, strict=True)) and (first or tuple(other) != tuple(mine))


def _costs(request: PlanRequest, stage: str, side: Side, c: Constants) -> tuple[float, ...]:
    place, role = request.place, side.role
    load = max(request.loads, key=lambda each: each.prompt)
    if stage == PREFILL:
        seconds = steps.prefill(place, role.worker, load.computed_tokens, load.prompt, c) / role.copies
        return seconds, steps.single_prompt_ttft(place, role.worker, load.computed_tokens, load.prompt, c)
    step = steps.decoder(place, role.worker, load.prompt + load.answer / 2, c)
    gpus = side.nodes * request.per_node
    return (-requests_that_fit(request, side), *(step(batch * gpus / role.copies) for batch in _BATCHES))


def requests_that_fit(request: PlanRequest, side: Side) -> float:
    """Return the number of requests for which the KV cache of the side has space, over all workers."""
    weights = [load.share * load.answer for load in request.loads]
    each = sum(w * (load.prompt + load.answer) for w, load in zip(weights, request.loads, strict=True)) / sum(weights)
    worker = side.role.worker
    return min(MOST_BATCH, side.fit.requests(request.place.shape, worker, each)) * worker.dp * side.role.copies


def steady_state(request: PlanRequest, prefill: Side | None, decode: Side, c: Constants) -> SteadyState | None:
    """Return the steady state of a layout under the load of the request; None if the layout cannot serve the load. If the
    engines do both prefill and decode, they are passed as `decode`, and `prefill` is None.
    """
    room = requests_that_fit(request, decode)
    if room < 1:
        return None
    place = request.place
    if not place.version:
        place = replace(place, version=newest_version(place.engine, place.gpu.family, prefill is None))
    loop = (
        Pair(place, prefill.role, decode.role, request.loads, c, room, request.drafts)
        if prefill
        else UnifiedDeployment(place, decode.role, request.loads, c, room, request.drafts)
    )
    if request.rate is not None:
        return loop.open_loop_state(request.rate)
    if request.concurrency is not None:
        return loop.closed(request.concurrency)
    return loop.highest_throughput(request.tpot, request.ttft)


def _good(request: PlanRequest, state: SteadyState) -> bool:
    return state.ttft <= request.ttft * 1.0001 and state.tpot <= request.tpot * 1.0001 and state.batch > 1e-6


def too_slow(request: PlanRequest, state: SteadyState) -> str:
    """Return a clause that states how a steady state exceeds the bounds of the request; "" if it meets them."""
    if _good(request, state):
        return ""
    return f"it has a mean TTFT of {state.ttft:.2f} s and a mean TPOT of {state.tpot * 1000:.1f} ms"


def why_none(request: PlanRequest, tried: TriedLayouts, c: Constants) -> str:
    """Return sentences that state why none of the layouts meets the bounds of the request, and the smallest change that
    helps.
    """
    name, machines = request.place.shape.name, _machines(request)
    if not _sides(request, request.nodes, _fits(request.place, BOTH)):
        return _too_little_memory(request)
    if tried.missed:
        return _nearest(request, tried.missed)
    if request.rate is None:
        return f"The KV cache of {name} on {machines} cannot hold a request of this length: use more nodes."
    unbounded = replace(request, rate=None)
    most = try_all(unbounded, c)
    if not most.good_layouts:
        return why_none(unbounded, most, c)
    reached = most.good_layouts[0].state.rate
    return (
        f"{machines} can answer at most {reached:.2f} requests a second of {name}, but the load has {request.rate:g}. "
        f"About {math.ceil(request.nodes * request.rate / reached)} nodes would be enough."
    )


def _nearest(request: PlanRequest, missed: Sequence[Layout]) -> str:
    """Return a text with the latencies of the layout among `missed` that is closest to the bounds of the request."""
    fastest = min(missed, key=lambda layout: max(layout.state.ttft / request.ttft, layout.state.tpot / request.tpot))
    state = fastest.state
    return (
        f"No layout of {request.place.shape.name} on {_machines(request)} meets these bounds: the closest layout has a "
        f"mean TTFT of {state.ttft:.2f} s and a mean TPOT of {state.tpot * 1000:.1f} ms. Relax the bounds, or use more "
        "nodes."
    )


def _machines(request: PlanRequest) -> str:
    """Return the nodes of a request as a text such as "2 nodes of H200"."""
    return f"{count(request.nodes, 'node')} of {request.place.gpu.name.upper()}"


def _too_little_memory(request: PlanRequest) -> str:
    """Return a text that states how much memory a rank lacks, and the smallest number of nodes on which the model fits."""
    place = request.place
    name, title = place.shape.name, place.gpu.name.upper()
    fits = cache(lambda worker: compute_fit(place.shape, place.gpu, worker, BOTH, share(place, BOTH), 0))
    least, worker = min(_tight(place, request.nodes, fits), key=lambda item: item[0].missing)
    message = (
        f"{name} does not fit on {count(request.nodes, 'node')} of {request.per_node} {title}: a rank with {worker} needs "
        f"{least.memory.reserved_share_bytes / GIB:.1f} GiB ({in_gib(least.memory.needed_parts)})"
    )
    enough = (
        nodes
        for nodes in range(1, (place.shape.experts or 256) + 1)
        if any(each.missing <= 0 for each, _ in _tight(place, nodes, fits))
    )
    more = next(enough, None)
    lacking = f", {least.missing / GIB:.1f} GiB more than is available" if least.missing > 0 else ""
    return f"{message}{lacking}. " + (
        f"The smallest change that fits: --nodes {more}." if more else "No number of nodes is enough."
    )


def _tight(place: ServingStack, nodes: int, fits: Callable[[Worker], Fit]) -> Iterator[tuple[Fit, Worker]]:
    """Yield the result of `fits` for every worker that is possible on `nodes` nodes, and the worker. `fits` computes how
    well the model fits on the GPUs of a worker.
    """
    for worker in possible_workers(place, nodes * place.gpu.node):
        yield fits(worker), worker
