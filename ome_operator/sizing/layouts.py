"""The layouts that can work for a model, a GPU and a number of nodes, best first."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from ome_operator.capacity.division import whole_blocks
from ome_operator.capacity.memory import BOTH, DECODE, GIB, PREFILL, in_gib
from ome_operator.cookbook.library import engine as recipe
from ome_operator.sizing import steps
from ome_operator.sizing.constants import Constants
from ome_operator.sizing.loop import Load, Pair, Role, SteadyState, Together
from ome_operator.sizing.memory import Fit, fit
from ome_operator.sizing.refused import RefusedError
from ome_operator.sizing.steps import ServingStack
from ome_operator.sizing.workers import Worker

WIDEST_TP = 16
"""GPUs over which tensor parallelism is planned; beyond it every layer waits for the network twice."""
_BLOCK = 128
"""Columns of a quantization block, for a model in any precision."""
_MOST_SPLITS = 24
_BATCHES = (1.0, 32.0, 512.0)
"""Requests of a GPU at which decode layouts are compared, before pairs are made."""
MOST_BATCH = 1024
"""Requests of a rank of attention: more than any published run has."""


@dataclass(frozen=True)
class Ask:
    """What a service has to do."""

    place: ServingStack
    loads: tuple[Load, ...]
    nodes: int
    rate: float | None = None
    """Requests a second."""
    concurrency: float | None = None
    ttft: float = math.inf
    """Seconds, mean."""
    tpot: float = math.inf
    """Seconds, mean."""

    @property
    def per_node(self) -> int:
        """GPUs."""
        return self.place.gpu.node


@dataclass(frozen=True)
class Side:
    """A role on nodes."""

    nodes: int
    role: Role
    fit: Fit

    @property
    def slots(self) -> int:
        """Experts that a GPU holds, copies included; 0 where each expert is cut."""
        worker = self.role.worker
        return (self.experts + self.fit.redundant) // worker.gpus if worker.ep > 1 and self.experts else 0

    experts: int = 0


@dataclass(frozen=True)
class Layout:
    """An answer."""

    prefill: Side | None
    """None where the same engines read and answer."""
    decode: Side
    state: SteadyState

    @property
    def nodes(self) -> int:
        """Of both."""
        return (self.prefill.nodes if self.prefill else 0) + self.decode.nodes

    @property
    def gpus(self) -> int:
        """That work."""
        return (self.prefill.role.gpus if self.prefill else 0) + self.decode.role.gpus


def layouts(ask: Ask, c: Constants) -> list[Layout]:
    """All that can work and do what was asked, best first; RefusedError where there is none."""
    check(ask)
    splits = list(_splits(ask.nodes))
    reads, answers = _room_for(ask.place, PREFILL), _room_for(ask.place, DECODE)
    prefills = {nodes: _undominated(ask, PREFILL, nodes, reads, c) for nodes in {p for p, _ in splits}}
    decodes = {nodes: _undominated(ask, DECODE, nodes, answers, c) for nodes in {d for _, d in splits}}
    found: list[Layout] = []
    missed: list[Layout] = []
    for p, d in splits:
        for prefill in prefills[p]:
            for decode in decodes[d]:
                state = _state(ask, prefill, decode, c)
                if state is None:
                    continue
                (found if _good(ask, state) else missed).append(Layout(prefill, decode, state))
    for both in _sides(ask, ask.nodes, _room_for(ask.place, BOTH)):
        state = _together(ask, both, c)
        if state is not None:
            (found if _good(ask, state) else missed).append(Layout(None, both, state))
    if not found:
        raise RefusedError(_why(ask, missed))
    return sorted(found, key=lambda layout: _rank(ask, layout))


def _rank(ask: Ask, layout: Layout) -> tuple[float, ...]:
    """Engines that do both come behind: no run says how far their numbers are off."""
    state, behind = layout.state, layout.prefill is None
    if ask.rate is not None:
        return (behind, layout.gpus, state.ttft + state.tpot)
    return (behind, -round(state.rate, 6), layout.gpus)


def check(ask: Ask) -> None:
    """Refuse what no layout can do."""
    shape = ask.place.shape
    longest = max(load.prompt + load.answer for load in ask.loads)
    if shape.longest and longest > shape.longest:
        raise RefusedError(
            f"{longest:,.0f} tokens in and out are more than the {shape.longest:,} that {shape.name} can look at."
        )
    most = shape.experts or 256
    if ask.nodes > most:
        what = f"the {most} experts of {shape.name}" if shape.experts else f"{most}, which is the most for a dense model"
        raise RefusedError(f"{ask.nodes:,} nodes are more than {what}: plan fewer, and run copies of the service.")


def _splits(nodes: int) -> Iterator[tuple[int, int]]:
    step = max(1, nodes // _MOST_SPLITS)
    return ((prefill, nodes - prefill) for prefill in range(1, nodes, step))


@cache
def _sizes(gpus: int, node: int) -> tuple[int, ...]:
    """GPUs of a worker: parts of a node, or whole nodes."""
    parts = [size for size in (1, 2, 4, 8) if size <= min(node, gpus)]
    return tuple(dict.fromkeys([*parts, *(nodes * node for nodes in range(1, gpus // node + 1))]))


def workers(place: ServingStack, gpus: int) -> Iterator[Worker]:
    """Every way in which a worker of at most so many GPUs can hold the model, whether it fits or not."""
    shape, gpu = place.shape, place.gpu
    seen = shape.facts.attention
    heads = seen.heads if seen else 1
    for size in _sizes(gpus, gpu.node):
        if size <= WIDEST_TP and heads % size == 0:
            yield Worker(size, 1, 1 if _cuts(shape.known.widths, size) or not shape.experts else size)
        if shape.experts and 1 < size <= gpu.node and _cuts(shape.known.widths, size):
            yield Worker(1, size, 1)
        if shape.experts and 1 < size <= shape.experts:
            yield Worker(1, size, size)


def _cuts(widths: Iterable[int], size: int) -> bool:
    """Whether matrices of these widths can be cut into `size` pieces of whole quantization blocks."""
    return all(whole_blocks(width, size, _BLOCK) for width in widths)


def _room_for(place: ServingStack, stage: str) -> Callable[[Worker], Fit]:
    """How a worker fits, found once for all numbers of nodes."""
    part = share(place, stage)
    return cache(lambda worker: fit(place.shape, place.gpu, worker, stage, part))


def _sides(ask: Ask, nodes: int, fits: Callable[[Worker], Fit]) -> list[Side]:
    place, gpus = ask.place, nodes * ask.per_node
    out = []
    for worker in workers(place, gpus):
        found = fits(worker)
        if found.missing <= 0:
            out.append(Side(nodes, Role(gpus // worker.gpus, worker), found, place.shape.experts))
    return out


def share(place: ServingStack, stage: str) -> float:
    """Of a GPU's memory for weights and cache: what `ome generate` writes for SGLang."""
    chosen = recipe("sglang")
    return chosen.shares.get(stage, chosen.shares["default"])


def _undominated(ask: Ask, stage: str, nodes: int, fits: Callable[[Worker], Fit], c: Constants) -> list[Side]:
    """Those of which no other is better in everything."""
    sides = _sides(ask, nodes, fits)
    costs = [_costs(ask, stage, side, c) for side in sides]
    keep = []
    for at, mine in enumerate(costs):
        if not any(_better(other, mine, number < at) for number, other in enumerate(costs) if number != at):
            keep.append(sides[at])
    return keep


def _better(other: Sequence[float], mine: Sequence[float], first: bool) -> bool:
    return all(a <= b for a, b in zip(other, mine, strict=True)) and (first or tuple(other) != tuple(mine))


def _costs(ask: Ask, stage: str, side: Side, c: Constants) -> tuple[float, ...]:
    place, role = ask.place, side.role
    load = max(ask.loads, key=lambda each: each.prompt)
    if stage == PREFILL:
        seconds = steps.prefill(place, role.worker, load.read, load.prompt, c) / role.copies
        return seconds, steps.alone(place, role.worker, load.read, load.prompt, c)
    step = steps.decoder(place, role.worker, load.prompt + load.answer / 2, c)
    gpus = side.nodes * ask.per_node
    return (-_room(ask, side), *(step(batch * gpus / role.copies) for batch in _BATCHES))


def _room(ask: Ask, side: Side) -> float:
    """Requests that the cache of decode holds, over all workers."""
    weights = [load.share * load.answer for load in ask.loads]
    each = sum(w * (load.prompt + load.answer) for w, load in zip(weights, ask.loads, strict=True)) / sum(weights)
    return min(MOST_BATCH, side.fit.tokens / each) * side.role.worker.dp * side.role.copies


def _state(ask: Ask, prefill: Side, decode: Side, c: Constants) -> SteadyState | None:
    room = _room(ask, decode)
    if room < 1:
        return None
    pair = Pair(ask.place, prefill.role, decode.role, ask.loads, c, room)
    if ask.rate is not None:
        return pair.opened(ask.rate)
    if ask.concurrency is not None:
        return pair.closed(ask.concurrency)
    return pair.highest(ask.tpot, ask.ttft)


def _together(ask: Ask, both: Side, c: Constants) -> SteadyState | None:
    room = _room(ask, both)
    if room < 1:
        return None
    loop = Together(ask.place, both.role, ask.loads, c, room)
    if ask.rate is not None:
        return loop.opened(ask.rate)
    if ask.concurrency is not None:
        return loop.closed(ask.concurrency)
    return loop.highest(ask.tpot, ask.ttft)


def _good(ask: Ask, state: SteadyState) -> bool:
    return state.ttft <= ask.ttft * 1.0001 and state.tpot <= ask.tpot * 1.0001 and state.batch > 1e-6


def _why(ask: Ask, missed: Sequence[Layout]) -> str:
    """Why there is no layout, and the smallest change."""
    name, title = ask.place.shape.name, ask.place.gpu.name.upper()
    if not _sides(ask, ask.nodes, _room_for(ask.place, BOTH)):
        return _short(ask)
    if missed:
        fastest = min(missed, key=lambda layout: max(layout.state.ttft / ask.ttft, layout.state.tpot / ask.tpot))
        state = fastest.state
        return (
            f"No layout of {name} on {counted(ask.nodes)} of {title} keeps these bounds: the nearest has a first "
            "token after "
            f"{state.ttft:.2f} s and another every {state.tpot * 1000:.1f} ms, means. Ask for these, or for more nodes."
        )
    if ask.rate is not None:
        best = layouts(Ask(ask.place, ask.loads, ask.nodes, ttft=ask.ttft, tpot=ask.tpot), _constants())[0]
        return (
            f"{counted(ask.nodes)} of {title} can answer {best.state.rate:.2f} requests a second of {name} at most, and "
            f"{ask.rate:g} are asked for: about {math.ceil(ask.nodes * ask.rate / best.state.rate)} nodes would do it."
        )
    return f"The cache of {name} on {counted(ask.nodes)} of {title} holds no request of this length: ask for more nodes."


def _constants() -> Constants:
    from ome_operator.sizing.constants import fitted

    return fitted()


def _short(ask: Ask) -> str:
    """What is missing, and the smallest number of nodes that has it."""
    place = ask.place
    name, title = place.shape.name, place.gpu.name.upper()
    gpus = ask.nodes * ask.per_node
    tight = [(fit(place.shape, place.gpu, worker, BOTH, share(place, BOTH), 0), worker) for worker in workers(place, gpus)]
    least, worker = min(tight, key=lambda item: item[0].missing)
    said = (
        f"{name} does not fit on {counted(ask.nodes)} of {ask.per_node} {title}: a rank with {worker} needs "
        f"{least.memory.needed / GIB:.1f} GiB ({in_gib(least.memory.needed_parts)})"
    )
    more = next((nodes for nodes in range(1, (place.shape.experts or 256) + 1) if _fits(place, nodes)), None)
    lacking = f", {least.missing / GIB:.1f} GiB more than its share" if least.missing > 0 else ""
    return f"{said}{lacking}. " + (
        f"The smallest change that fits: --nodes {more}." if more else "No number of nodes holds it."
    )


def _fits(place: ServingStack, nodes: int) -> bool:
    """Whether an engine on these nodes can hold it."""
    gpus = nodes * place.gpu.node
    found = (fit(place.shape, place.gpu, worker, BOTH, share(place, BOTH), 0) for worker in workers(place, gpus))
    return any(each.missing <= 0 for each in found)


def counted(nodes: int) -> str:
    """1 node, 2 nodes."""
    return f"{nodes} node{'' if nodes == 1 else 's'}"
