"""Compare GPUs: the best layout on each of them, as a table."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ome_operator.sizing.answer import cost, error_bars
from ome_operator.sizing.error_bars import trust
from ome_operator.sizing.gpus import Gpu, Price
from ome_operator.sizing.layouts import Layout
from ome_operator.sizing.report_text import layout_cells
from ome_operator.sizing.request import PlanRequest
from ome_operator.sizing.workloads import mean_load
from ome_operator.util.columns import table

HEAD = (
    "GPU", "GPUs", "prefill", "decode", "requests/s", "out tok/s a GPU", "TTFT s", "TPOT ms", "$/M out, all in",
    "median error", "rows",
)  # fmt: skip
_LATENCIES = {"ttft": "ttftSeconds", "tpot": "tpotMs"}


class GpuChoice(NamedTuple):
    """A GPU with its best layout, or with the reason why it has no layout."""

    gpu: Gpu
    request: PlanRequest | None
    layout: Layout | None
    price: Price | None
    reason: str = ""


def compare_gpus(choices: Sequence[GpuChoice], by: str = "price") -> list[dict[str, Any]]:
    """Return a document for each GPU, sorted by the figure `by`; the best GPU is first. `by` is `price` (of output tokens),
    `throughput` (for each GPU), `ttft` or `tpot`.

    For `price`, GPUs without a price follow, sorted by throughput. GPUs without a layout, for example because no layout
    meets the bounds of the request, come last.
    """
    documents = [_document(each) for each in choices]
    return sorted(documents, key=lambda each: _rank(each, by))


def _rank(document: dict[str, Any], by: str) -> tuple[bool, bool, float]:
    if "reason" in document:
        return True, True, 0.0
    tokens, usd = document["outputTokensPerSecondPerGpu"], document["usdPerMillionOutputAllIn"]
    if by == "price" and usd is not None:
        return False, False, usd
    return False, by == "price", document[_LATENCIES[by]] if by in _LATENCIES else -tokens


def _document(choice: GpuChoice) -> dict[str, Any]:
    if choice.layout is None or choice.request is None:
        return {"gpu": choice.gpu.name, "reason": choice.reason}
    request, layout, load = choice.request, choice.layout, mean_load(choice.request.loads)
    bill = cost(layout, load, choice.price, request.per_node)
    found = trust(request.place, layout.prefill.role if layout.prefill else None, layout.decode.role, load)
    prefill, decode = layout_cells(layout)
    return {
        "gpu": choice.gpu.name,
        "gpus": layout.nodes * request.per_node,
        "prefill": prefill,
        "decode": decode,
        "requestsPerSecond": round(layout.state.rate, 3),
        "outputTokensPerSecondPerGpu": round(layout.state.rate * load.answer / (layout.nodes * request.per_node), 1),
        "ttftSeconds": round(layout.state.ttft, 3),
        "tpotMs": round(layout.state.tpot * 1000, 2),
        "usdPerMillionOutputAllIn": bill["usdPerMillionOutputAllIn"] if bill else None,
        "trust": error_bars(found),
    }


def text(title: str, documents: Sequence[dict[str, Any]], gpus: dict[str, Gpu]) -> str:
    """Return the comparison as text: a table, the GPUs without an answer, and each pair of GPUs whose order contradicts
    their data sheets.
    """
    answered = [each for each in documents if "reason" not in each]
    out = f"{title}\n\n"
    if answered:
        out += table(HEAD, [_cells(each) for each in answered])
    out += "".join(f"{each['gpu']}: {each['reason']}\n" for each in documents if "reason" in each)
    for pair in inversions(answered, gpus):
        better, worse = (each["gpu"].upper() for each in pair)
        why = why_slower(pair, *(gpus[each["gpu"]] for each in pair))
        out += f"{better} is better than {worse} in every number of its data sheet, but slower per GPU: {why}.\n"
    return out


def why_slower(pair: tuple[dict[str, Any], dict[str, Any]], better: Gpu, worse: Gpu) -> str:
    """Return the reason why the better of two GPUs is predicted to be slower. `pair` has the documents of the better and of
    the worse GPU (see `inversions`). GPUs of a family differ only by their data sheets, so published runs can explain a
    difference only between GPUs of different families.
    """
    if better.family == worse.family and better.node != worse.node:
        return f"its nodes have {better.node} GPUs instead of {worse.node}, and divide the model in another way"
    runs = " and ".join(f"those of {each['gpu'].upper()} have {each['trust']['rows'] or 'no version'}" for each in pair)
    return f"the published runs are slower ({runs})"


def _cells(each: dict[str, Any]) -> tuple[str, ...]:
    usd, bars = each["usdPerMillionOutputAllIn"], each["trust"]
    return (
        each["gpu"],
        str(each["gpus"]),
        each["prefill"],
        each["decode"],
        f"{each['requestsPerSecond']:,.1f}",
        f"{each['outputTokensPerSecondPerGpu']:,.0f}",
        f"{each['ttftSeconds']:.2f}",
        f"{each['tpotMs']:.1f}",
        f"{usd:.3f}" if usd is not None else "no price",
        f"±{bars['throughput']['median']:.0%}" if "throughput" in bars else "not known",
        bars["rows"] or "-",
    )


def inversions(answered: Sequence[dict[str, Any]], gpus: dict[str, Gpu]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the pairs (better GPU, worse GPU) of documents in `answered` whose order contradicts the data sheets: the first
    GPU is at least as good as the second in every number, but is predicted to have a lower throughput for each GPU.
    """
    return [
        (a, b)
        for a in answered
        for b in answered
        if a is not b
        and gpus[a["gpu"]].at_least(gpus[b["gpu"]])
        and a["outputTokensPerSecondPerGpu"] < b["outputTokensPerSecondPerGpu"]
    ]
