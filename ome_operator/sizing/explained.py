"""The published figures of Kimi K2 on 128 H200: what follows from what, and what the model says of each.

The figures are those of the announcement (LMSYS, 2025-07-20), of a shorter text that tells it again, and of the blog
before it (DeepSeek R1 on 96 H100, 2025-05-05); cookbook/data/published.yaml has their addresses.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ome_operator.capacity.memory import DECODE
from ome_operator.sizing import steps
from ome_operator.sizing.classes import trust
from ome_operator.sizing.constants import Constants
from ome_operator.sizing.gpus import gpu
from ome_operator.sizing.layouts import layouts
from ome_operator.sizing.loop import Load, Pair, Role
from ome_operator.sizing.memory import fit
from ome_operator.sizing.refused import PlanRefused
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


class Said(NamedTuple):
    """A published figure and where it comes from."""

    figure: str
    follows: str
    """From what, in a sentence."""


def place() -> ServingStack:
    """Kimi K2 on H200, as it was published."""
    return ServingStack(shape("Kimi-K2-Instruct"), gpu("h200"), "sglang")


def figures(c: Constants) -> Iterator[Said]:
    """All of them."""
    here = place()
    yield from _sizes(here)
    yield from _sums()
    yield from _rates(here, c)
    yield from _batch(here, c)
    yield from _prices(here)
    yield _ratio(here, c)
    yield from _agents(here, c)
    yield Said(
        "DeepSeek R1 on 96 H100: 52.3k and 22.3k a node",
        "the same layout with 256 experts: 3 or 4 nodes of prefill, 9 of decode with (256 + 32) / 72 = "
        f"{(256 + 32) // 72} slots a GPU; "
        f"{52300 / 8:,.0f} and {22300 / 8:,.0f} tokens/s a GPU are rows of the calibration",
    )


def _sizes(here: ServingStack) -> Iterator[Said]:
    """Experts of a GPU, and attention inside of them."""
    experts = here.shape.experts
    yield Said("EP 32 with 12 experts a GPU", f"{experts} experts over 4 nodes of 8 GPUs: {experts} / 32 = {experts // 32}")
    yield Said(
        "EP 96 with 5 slots a GPU",
        f"{experts} experts and {COPIES} copies of busy experts: ({experts} + {COPIES}) / 96 = {(experts + COPIES) // 96}",
    )
    yield Said(
        "TP 4 inside EP 32",
        "attention of a token on 4 GPUs and 8 ranks of attention (32 / 4), experts over all 32; the runtime of "
        "the announcement has a rank on each GPU (TP 1), which the shorter text tells otherwise",
    )


def _sums() -> Iterator[Said]:
    """Tokens a second of a cluster, from those of a node."""
    yield Said(
        "224k tokens/s of prefill, 288k of decode",
        f"{PREFILL_NODES} nodes x {NODE_IN:,} = {PREFILL_NODES * NODE_IN:,}; "
        f"{DECODE_NODES} nodes x {NODE_OUT:,} = {DECODE_NODES * NODE_OUT:,}",
    )
    yield Said(
        "896k and 384k tokens/s",
        f"the same rates times all {NODES} nodes ({NODES * NODE_IN:,} and {NODES * NODE_OUT:,}): no node does "
        "both, so the cluster never did either",
    )


def _rates(here: ServingStack, c: Constants) -> Iterator[Said]:
    """Tokens a second of a node, beside what the model says."""
    read = IN / steps.prefill(here, PREFILL, IN, IN, c) / 32 * 8
    step = steps.decoder(here, DECODE_96, IN + OUT / 2, c)(BATCH * 96)
    yield Said(
        f"{NODE_IN // 1000}k tokens/s of prefill a node", f"the model says {read:,.0f}, of a row that it was fitted on"
    )
    yield Said(
        f"{NODE_OUT // 1000}k tokens/s of decode a node",
        f"{BATCH} requests a rank with another token every {BATCH * 8 / NODE_OUT * 1000:.0f} ms; the model says "
        f"{step * 1000:.0f} ms and {BATCH * 8 / step:,.0f}, of a row that it was fitted on",
    )


def _batch(here: ServingStack, c: Constants) -> Iterator[Said]:
    """480 requests: of a rank, or of all."""
    room = fit(here.shape, here.gpu, DECODE_96, DECODE, 0.8).tokens
    yield Said(
        f"a batch of {BATCH}",
        f"a rank each, so {BATCH * 96:,} requests in all: {BATCH * (IN + OUT):,} tokens of cache on a GPU, which "
        f"holds {room:,} beside its {here.shape.layers} layers' weights",
    )
    yield Said(
        f"{BATCH} requests in all, 4,800 tokens/s, the first within 1 s",
        f"the shorter text takes the batch of a rank for all: {BATCH} requests are {BATCH // 96} a rank, and "
        f"4,800 tokens/s another token every {BATCH / 4800 * 1000:.0f} ms; {_few(here, c)}",
    )


def _ratio(here: ServingStack, c: Constants) -> Said:
    """Why 4 nodes to 12."""
    feed, eat = PREFILL_NODES * NODE_IN / IN, DECODE_NODES * NODE_OUT / OUT
    even = (NODE_OUT / OUT) / (NODE_IN / IN)
    return Said(
        "4 nodes of prefill to 12 of decode, for 2000 in and 100 out",
        f"for the cache of decode, as the announcement says, not for balance: 4 nodes read {feed:,.0f} requests a "
        f"second and 12 answer {eat:,.0f}. By the published rates {even:.1f} nodes of prefill feed a node of decode; "
        f"both figures together cannot have been measured at a time. {_balance(here, Load(IN, OUT), c)}",
    )


def _agents(here: ServingStack, c: Constants) -> Iterator[Said]:
    """The ratio for long prompts, and for prompts of which a part is cached."""
    for prompt, answer in LONG:
        for hit in HITS:
            title = f"{prompt // 1000}k in, {answer // 1000}k out, {hit:.0%} of the prompt cached"
            yield Said(title, _balance(here, Load(prompt, answer, hit), c))


def _few(here: ServingStack, c: Constants) -> str:
    state = Pair(here, Role(1, PREFILL), Role(1, DECODE_96), [Load(IN, OUT)], c).closed(BATCH)
    return (
        f"the model says {state.rate * OUT:,.0f} tokens/s of answers, the first token after {state.ttft:.2f} s "
        f"and another every {state.tpot * 1000:.0f} ms (closed loop of {BATCH}, means)"
    )


def _prices(here: ServingStack) -> Iterator[Said]:
    def usd(gpus: int, price: float, tokens: int) -> float:
        return gpus * price / 3600 / tokens * 1e6

    shown = usd(GPUS, PRICE, NODES * NODE_OUT)
    yield Said(
        f"$0.21 for a million tokens of answers, at ${PRICE:.2f} for an H200 and hour",
        f"128 GPUs x ${PRICE:.2f} / 384k tokens/s = ${shown:.3f}, or the 96 GPUs of decode alone over 288k: "
        f"${usd(96, PRICE, 288_000):.3f}, "
        f"the same; all 128 GPUs over 288k are ${usd(GPUS, PRICE, 288_000):.3f}",
    )
    today = here.gpu.price
    if today is not None:
        yield Said(
            "the same at a later price",
            f"${usd(96, today.usd, 288_000):.3f} for decode alone and ${usd(GPUS, today.usd, 288_000):.3f} for "
            f"all, at ${today.usd:.2f} "
            f"({today.date}, {today.source})",
        )


def _balance(here: ServingStack, load: Load, c: Constants) -> str:
    """The best split of 16 nodes."""
    try:
        best = layouts(PlanRequest(here, (load,), NODES), c)[0]
    except PlanRefused as error:
        return str(error)
    assert best.prefill is not None, "pairs come first"
    state, sides = best.state, (best.prefill, best.decode)
    far = trust(here, best.prefill.role, best.decode.role, load).extrapolated
    return (
        f"The model's best of 16 nodes: {sides[0].nodes} of prefill to {sides[1].nodes} of decode, "
        f"{state.rate:,.1f} requests a second, "
        f"{state.rate * load.answer:,.0f} tokens/s of answers, TTFT {state.ttft:.1f} s, TPOT {state.tpot * 1000:.0f} ms"
        + (f" (extrapolated: {far})" if far else "")
    )


def text(c: Constants) -> str:
    """All figures, for people."""
    lines = ["Kimi K2 on 128 H200 (16 nodes), published 2025-07-20: how the figures fit together.", ""]
    for said in figures(c):
        lines += [said.figure, f"    {said.follows}."]
    return "\n".join(lines) + "\n"
