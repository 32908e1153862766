"""Explain the published figures of Kimi K2 on 128 H200: how each figure is computed, and what the model predicts for it.

The figures come from the announcement (LMSYS, 2025-07-20), from a shorter text that repeats it, and from an earlier blog
post (DeepSeek R1 on 96 H100, 2025-05-05). The addresses are in cookbook/data/published.yaml.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ome_operator.capacity.memory import DECODE
from ome_operator.sizing import steps
from ome_operator.sizing.constants import Constants
from ome_operator.sizing.error_bars import trust
from ome_operator.sizing.errors import PlanRefused
from ome_operator.sizing.gpus import gpu
from ome_operator.sizing.layouts import layouts
from ome_operator.sizing.memory import compute_fit
from ome_operator.sizing.queueing import Load, Pair, Role
from ome_operator.sizing.request import PlanRequest
from ome_operator.sizing.shapes import shape
from ome_operator.sizing.steps import ServingStack
from ome_operator.sizing.workers import Worker

GPUS, NODES, PREFILL_NODES, DECODE_NODES = 128, 16, 4, 12
NODE_IN, NODE_OUT = 56_000, 24_000
IN, OUT, BATCH = 2000, 100, 480
PRICE, COPIES = 2.30, 96
PREFILL, DECODE_96 = Worker(1, 32, 32), Worker(1, 96, 96)
LONG = ((30_000, 2_000), (50_000, 4_000))
HITS = (0.0, 0.5, 0.9)


class Figure(NamedTuple):
    """A published figure and how it is computed."""

    figure: str
    computation: str
    """The computation of the figure, as a sentence."""


def published_stack() -> ServingStack:
    """Return Kimi K2 on H200 with SGLang, the stack of the publication."""
    return ServingStack(shape("Kimi-K2-Instruct"), gpu("h200"), "sglang")


def published_figures(c: Constants) -> Iterator[Figure]:
    """Yield the figures of publications, each with its computation by the planner with the constants `c`."""
    here = published_stack()
    yield from _sizes(here)
    yield from _sums()
    yield from _rates(here, c)
    yield from _batch(here, c)
    yield from _prices(here)
    yield _ratio(here, c)
    yield from _agents(here, c)
    yield Figure(
        "DeepSeek R1 on 96 H100: 52.3k tokens/s of prefill and 22.3k of decode per node",
        "the same layout for 256 experts: 3 or 4 prefill nodes, and 9 decode nodes with (256 + 32) / 72 = "
        f"{(256 + 32) // 72} expert slots per GPU; {52300 / 8:,.0f} and {22300 / 8:,.0f} tokens/s per GPU are rows of "
        "the calibration",
    )


def _sizes(serving_stack: ServingStack) -> Iterator[Figure]:
    """Yield the figures about the number of experts on each GPU and about the tensor parallelism of attention."""
    experts = serving_stack.shape.experts
    yield Figure(
        "EP 32 with 12 experts per GPU", f"{experts} experts over 4 nodes of 8 GPUs: {experts} / 32 = {experts // 32}"
    )
    yield Figure(
        "EP 96 with 5 expert slots per GPU",
        f"{experts} experts and {COPIES} copies of busy experts: ({experts} + {COPIES}) / 96 = {(experts + COPIES) // 96}",
    )
    yield Figure(
        "TP 4 inside EP 32",
        "the attention of a token runs on 4 GPUs, so there are 8 attention ranks (32 / 4), and the experts are "
        "distributed over all 32 GPUs. The runtime of the announcement has an attention rank on each GPU (TP 1) and "
        "contradicts the shorter text",
    )


def _sums() -> Iterator[Figure]:
    """Yield the token rates of the whole cluster, computed from the rates of a node."""
    yield Figure(
        "224k tokens/s of prefill, 288k of decode",
        f"{PREFILL_NODES} nodes x {NODE_IN:,} = {PREFILL_NODES * NODE_IN:,}; "
        f"{DECODE_NODES} nodes x {NODE_OUT:,} = {DECODE_NODES * NODE_OUT:,}",
    )
    yield Figure(
        "896k and 384k tokens/s",
        f"the same rates times all {NODES} nodes ({NODES * NODE_IN:,} and {NODES * NODE_OUT:,}). No node does both "
        "prefill and decode, so the cluster never reached either figure",
    )


def _rates(serving_stack: ServingStack, c: Constants) -> Iterator[Figure]:
    """Yield the published token rates of a node, with the model's prediction of each."""
    read = IN / steps.prefill(serving_stack, PREFILL, IN, IN, c) / 32 * 8
    step = steps.decoder(serving_stack, DECODE_96, IN + OUT / 2, c)(BATCH * 96)
    yield Figure(
        f"{NODE_IN // 1000}k tokens/s of prefill per node",
        (f"the sizing model predicts {read:,.0f}; it was fitted to this row"),
    )
    yield Figure(
        f"{NODE_OUT // 1000}k tokens/s of decode per node",
        f"{BATCH} requests per rank, each with a further token every {BATCH * 8 / NODE_OUT * 1000:.0f} ms; the sizing "
        f"model predicts {step * 1000:.0f} ms and {BATCH * 8 / step:,.0f}, and was fitted to this row",
    )


def _batch(serving_stack: ServingStack, c: Constants) -> Iterator[Figure]:
    """Yield the figures about a batch of 480 requests. Some sources state this batch for a rank, others for the whole
    deployment.
    """
    room = compute_fit(serving_stack.shape, serving_stack.gpu, DECODE_96, DECODE, 0.8).tokens
    yield Figure(
        f"a batch of {BATCH}",
        f"of each rank, so {BATCH * 96:,} requests in total: {BATCH * (IN + OUT):,} tokens of KV cache on a GPU, which "
        f"has capacity for {room:,} next to the weights of its {serving_stack.shape.layers} layers",
    )
    yield Figure(
        f"{BATCH} requests in total, 4,800 tokens/s, the first token within 1 s",
        f"the shorter text states the batch of one rank as the batch of the deployment: {BATCH} requests are "
        f"{BATCH // 96} per rank, and at 4,800 tokens/s each request gets a further token every "
        f"{BATCH / 4800 * 1000:.0f} ms; {_few(serving_stack, c)}",
    )


def _ratio(serving_stack: ServingStack, c: Constants) -> Figure:
    """Return the figure that explains why the deployment has 4 nodes of prefill and 12 nodes of decode."""
    feed, eat = PREFILL_NODES * NODE_IN / IN, DECODE_NODES * NODE_OUT / OUT
    even = (NODE_OUT / OUT) / (NODE_IN / IN)
    return Figure(
        "4 prefill nodes and 12 decode nodes, for 2000 tokens in and 100 out",
        "according to the announcement, decode needs 12 nodes for its KV cache, not to keep up with prefill: 4 prefill "
        f"nodes process {feed:,.0f} requests per second, and 12 decode nodes {eat:,.0f}. At the published rates, one "
        f"decode node needs {even:.1f} prefill nodes, so the two rates cannot have been measured at the same time. "
        f"{_balance(serving_stack, Load(IN, OUT), c)}",
    )


def _agents(serving_stack: ServingStack, c: Constants) -> Iterator[Figure]:
    """Yield the best ratio of prefill nodes to decode nodes for long prompts, for several fractions of the prompt that
    the prefix cache holds.
    """
    for prompt, answer in LONG:
        for hit in HITS:
            title = f"{prompt // 1000}k in, {answer // 1000}k out, {hit:.0%} of the prompt cached"
            yield Figure(title, _balance(serving_stack, Load(prompt, answer, hit), c))


def _few(serving_stack: ServingStack, c: Constants) -> str:
    state = Pair(serving_stack, Role(1, PREFILL), Role(1, DECODE_96), [Load(IN, OUT)], c).closed(BATCH)
    return (
        f"the sizing model predicts {state.rate * OUT:,.0f} output tokens/s, the first token after {state.ttft:.2f} s "
        f"and a further token every {state.tpot * 1000:.0f} ms (closed loop of {BATCH}, means)"
    )


def _prices(serving_stack: ServingStack) -> Iterator[Figure]:
    def usd(gpus: int, price: float, tokens: int) -> float:
        return gpus * price / 3600 / tokens * 1e6

    shown = usd(GPUS, PRICE, NODES * NODE_OUT)
    yield Figure(
        f"$0.21 per million output tokens, at ${PRICE:.2f} per H200 and hour",
        f"128 GPUs x ${PRICE:.2f} / 384k tokens/s = ${shown:.3f}; the 96 GPUs of decode alone at 288k tokens/s give the "
        f"same, ${usd(96, PRICE, 288_000):.3f}; all 128 GPUs at 288k give ${usd(GPUS, PRICE, 288_000):.3f}",
    )
    today = serving_stack.gpu.price
    if today is not None:
        yield Figure(
            "the same price per million output tokens at a later GPU price",
            f"${usd(96, today.usd, 288_000):.3f} for the GPUs of decode alone and ${usd(GPUS, today.usd, 288_000):.3f} "
            f"for all GPUs, at ${today.usd:.2f} ({today.date}, {today.source})",
        )


def _balance(serving_stack: ServingStack, load: Load, c: Constants) -> str:
    """Return a sentence that states the best division of 16 nodes into prefill and decode for this load, and the
    predicted performance.
    """
    try:
        found = layouts(PlanRequest(serving_stack, (load,), NODES), c)
    except PlanRefused as error:
        return str(error)
    best = next(layout for layout in found if layout.prefill)
    assert best.prefill is not None
    state, sides = best.state, (best.prefill, best.decode)
    far = trust(serving_stack, best.prefill.role, best.decode.role, load).extrapolated
    return (
        f"The best disaggregated layout of 16 nodes in the sizing model: {sides[0].nodes} for prefill and "
        f"{sides[1].nodes} for decode, {state.rate:,.1f} requests per second, "
        f"{state.rate * load.answer:,.0f} output tokens/s, TTFT {state.ttft:.1f} s, TPOT {state.tpot * 1000:.0f} ms"
        + (f" (extrapolated: {far})" if far else "")
    )


def text(c: Constants) -> str:
    """Return all figures as text for a terminal."""
    lines = ["Kimi K2 on 128 H200 (16 nodes): how the figures that were published on 2025-07-20 are related.", ""]
    for item in published_figures(c):
        lines += [item.figure, f"    {item.computation}."]
    return "\n".join(lines) + "\n"
