"""Build the JSON document of a layout: its sizes, the predicted performance, the price, and the error bars of the
prediction.
"""

from collections.abc import Sequence
from typing import Any

from ome_operator.cookbook.library import Library
from ome_operator.cookbook.request import RecipeRefused
from ome_operator.sizing import steps
from ome_operator.sizing.error_bars import FIGURES, Trust, trust
from ome_operator.sizing.gpus import Price
from ome_operator.sizing.layouts import Layout, Side, requests_that_fit
from ome_operator.sizing.queueing import PERCENTILES, Load
from ome_operator.sizing.recipe import recipe
from ome_operator.sizing.request import PlanRequest
from ome_operator.sizing.workloads import mean_load

NAMES = {"ttft": "ttft", "tpot": "tpot", "tokens": "throughput"}


def document(request: PlanRequest, layout: Layout, price: Price | None, shelf: Library) -> dict[str, Any]:
    """Return the document of one layout, as an element of `layouts` in `ome plan -o json`. `shelf` is the cookbook, which is
    searched for a recipe of the layout. `price` is the price of a GPU for an hour; None if it is unknown.
    """
    state, load = layout.state, mean_load(request.loads)
    reads = layout.prefill or layout.decode
    found = trust(request.place, layout.prefill.role if layout.prefill else None, layout.decode.role, load)
    return {
        "engine": request.place.engine,
        "strategy": "pd" if layout.prefill else "together",
        "prefill": _side(layout.prefill) if layout.prefill else None,
        "decode": {
            **_side(layout.decode),
            "batchPerRank": round(state.batch / _ranks(layout.decode), 1),
            "requestsThatFit": int(requests_that_fit(request, layout.decode)),
        },
        "prediction": {
            "requestsPerSecond": round(state.rate, 3),
            "inputTokensPerSecond": _spread(state.rate * load.prompt, reads),
            "outputTokensPerSecond": _spread(state.rate * load.answer, layout.decode),
            "ttftSeconds": round(state.ttft, 3),
            "ttftPercentiles": _percentiles(request, layout),
            "tpotMs": round(state.tpot * 1000, 2),
            "tpotPercentilesMs": _tpots(request, layout),
            "tpotBoundMs": round(tpot_bound(request, layout) * 1000, 2),
            "concurrency": round(state.rate * state.whole, 1),
            "regime": state.dominant_part,
            "is": kind(request),
        },
        "workloads": _workloads(request, layout) if len(request.loads) > 1 else None,
        "price": cost(layout, load, price, request.per_node),
        "trust": error_bars(found),
        **generate_command(request, layout, shelf),
    }


def plan_document(request: PlanRequest, layouts: Sequence[Layout], price: Price | None, shelf: Library) -> dict[str, Any]:
    """Return the request and a document for each layout, in the form that `ome plan -o json` prints. `price` is the price of
    a GPU for an hour; None if it is unknown.
    """
    place = request.place
    return {
        "asked": {
            "model": place.shape.name,
            "precision": place.shape.precision,
            "hardware": place.gpu.name,
            "nodes": request.nodes,
            "gpusPerNode": place.gpu.node,
            "draftTokens": request.drafts.tokens,
            "acceptedDraftTokens": round(request.drafts.accepted, 3),
            "workload": [
                {"in": load.prompt, "out": load.answer, "hit": load.hit, "share": load.share} for load in request.loads
            ],
        },
        "layouts": [document(request, layout, price, shelf) for layout in layouts],
    }


def kind(request: PlanRequest) -> str:
    """Return a phrase that states that the predicted figures are means, and whether they hold for a closed loop or an
    open loop of requests.
    """
    if request.concurrency is not None:
        return "means, closed loop"
    return "means, open loop" if request.rate is not None else "means, open loop, with prefill at most 90 % busy"


def _percentiles(request: PlanRequest, layout: Layout) -> dict[str, float] | None:
    """Return percentiles of TTFT in seconds; None for a closed loop, or if most of TTFT is a wait for a slot in decode."""
    found = {f"p{part * 100:.0f}": layout.state.ttft_percentile(part) for part in PERCENTILES}
    if request.concurrency is not None or None in found.values():
        return None
    return {name: round(value, 3) for name, value in found.items() if value is not None}


def _tpots(request: PlanRequest, layout: Layout) -> dict[str, float] | None:
    """Return percentiles of TPOT in milliseconds; None for a closed loop, or if prefill interrupts decode on the same
    GPUs.
    """
    if request.concurrency is not None or not layout.state.tpots:
        return None
    return {
        f"p{part * 100:.0f}": round(1000 * seconds, 2) for part, seconds in zip(PERCENTILES, layout.state.tpots, strict=True)
    }


def tpot_bound(request: PlanRequest, layout: Layout) -> float:
    """Return the shortest possible TPOT in seconds of this layout and batch, at the rates of the GPU's data sheet."""
    load, role = mean_load(request.loads), layout.decode.role
    batch = layout.state.batch / role.copies * (1 + request.drafts.tokens)
    terms = steps.decode_terms(request.place, role.worker, batch, load.prompt + load.answer / 2)
    return steps.floor(terms) / (1 + request.drafts.accepted)


def _workloads(request: PlanRequest, layout: Layout) -> list[dict[str, float]]:
    """Return the predicted figures of each workload of a mix. All workloads wait in the same queue and have the same TPOT,
    but each has the prefill time of its own prompts.
    """
    state = layout.state
    out = []
    for load, own in zip(request.loads, state.owns, strict=True):
        ttft = state.ttft - state.own + own
        out.append(
            {
                "in": load.prompt,
                "out": load.answer,
                "hit": load.hit,
                "requestsPerSecond": round(state.rate * load.share, 3),
                "ttftSeconds": round(ttft, 3),
                "tpotMs": round(state.tpot * 1000, 2),
                "seconds": round(ttft + (load.answer - 1) * state.tpot, 2),
            }
        )
    return out


def _ranks(side: Side) -> int:
    return side.role.copies * side.role.worker.dp


def _side(side: Side) -> dict[str, Any]:
    worker = side.role.worker
    return {
        "nodes": side.nodes,
        "workers": side.role.copies,
        "gpus": side.role.gpus,
        "tp": worker.tp,
        "dp": worker.dp,
        "ep": worker.ep,
        "redundantExperts": side.fit.redundant,
        "expertsPerGpu": side.slots,
        "cacheTokensPerRank": side.fit.tokens,
        "memFractionStatic": side.fit.share,
    }


def _spread(tokens: float, side: Side) -> dict[str, float]:
    return {"deployment": round(tokens), "node": round(tokens / side.nodes), "gpu": round(tokens / side.role.gpus, 1)}


def cost(layout: Layout, load: Load, price: Price | None, per_node: int) -> dict[str, Any] | None:
    """Return the price in USD per million tokens, or None if no price of the GPU is known or the predicted request rate is
    0. `per_node` is the number of GPUs of a node.

    The price of input tokens includes all prefill nodes, and the price of output tokens all decode nodes, including GPUs of
    these nodes that no worker uses. If the same engines do prefill and decode, each of the two prices includes all nodes, as
    if tokens of the other kind cost nothing.
    """
    if price is None or not layout.state.rate:
        return None
    rate = layout.state.rate
    second = per_node * price.usd / 3600 * 1e6
    into = (layout.prefill or layout.decode).nodes * second
    return {
        "usdPerGpuHour": price.usd,
        "date": price.date,
        "source": price.source,
        "others": price.others or None,
        "usdPerMillionInput": round(into / (rate * load.prompt), 4),
        "usdPerMillionOutput": round(layout.decode.nodes * second / (rate * load.answer), 4),
        "usdPerMillionOutputAllIn": round(layout.nodes * second / (rate * load.answer), 4),
    }


def error_bars(found: Trust) -> dict[str, Any]:
    """Return the error bars of a prediction as a document. For each figure it contains the median error, and the error
    that nine of ten rows do not exceed. Errors are fractions of the measured value.
    """
    return {
        "basis": found.basis,
        "rows": found.rows or None,
        "extrapolated": found.extrapolated or None,
        **{
            NAMES[name]: {
                "median": round(found.error_bars[name].median, 3),
                "nineOfTen": round(found.error_bars[name].ninth, 3),
            }
            for name in FIGURES
            if name in found.error_bars
        },
    }


def generate_command(request: PlanRequest, layout: Layout, shelf: Library) -> dict[str, str | None]:
    """Return the `ome generate` command that writes this layout, or the reason why the cookbook has no recipe for it."""
    try:
        return {"generate": recipe(request, layout, shelf).command, "noRecipe": None}
    except RecipeRefused as error:
        return {"generate": None, "noRecipe": str(error)}
