"""Format plans and validation reports as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from ome_operator.cookbook.library import Library
from ome_operator.sizing.answer import document
from ome_operator.sizing.error_bars import FIGURES, Bar
from ome_operator.sizing.gpus import Price
from ome_operator.sizing.layouts import Layout
from ome_operator.sizing.request import PlanRequest
from ome_operator.sizing.validate import Answer, Report
from ome_operator.sizing.workloads import mean_load
from ome_operator.util.columns import table
from ome_operator.util.wording import count

SHOWN = 5
_TITLES = {"ttft": "TTFT", "tpot": "TPOT", "tokens": "throughput"}


def plan_text(request: PlanRequest, layouts: Sequence[Layout], price: Price | None, shelf: Library) -> str:
    """Return the text of a plan. It contains a table of the best layouts and the details of the first layout. `price` is the
    price of a GPU for an hour; None if it is unknown.
    """
    load = mean_load(request.loads)
    documents = [document(request, layout, price, shelf) for layout in layouts[:SHOWN]]
    head = (
        "",
        "prefill",
        "decode",
        "requests/s",
        "in tok/s",
        "out tok/s",
        "out a GPU",
        "TTFT s",
        "TPOT ms",
        "$/M in",
        "$/M out",
    )
    rows = [_row(number, each) for number, each in enumerate(documents, 1)]
    out = f"{request.title}: {load.prompt:,.0f} tokens in, {load.answer:,.0f} out\n\n{table(head, rows)}"
    if len(layouts) > len(documents):
        out += f"{len(layouts) - len(documents)} more layouts work: -o json prints all.\n"
    return f"{out}\n{_first(documents[0])}"


def _row(number: int, option: Mapping[str, Any]) -> tuple[str, ...]:
    found, price = option["prediction"], option["price"]
    return (
        f"{number}",
        _side(option["prefill"]) if option["prefill"] else "the same engines",
        _side(option["decode"]),
        f"{found['requestsPerSecond']:,.1f}",
        f"{found['inputTokensPerSecond']['deployment']:,}",
        f"{found['outputTokensPerSecond']['deployment']:,}",
        f"{found['outputTokensPerSecond']['gpu']:,.0f}",
        f"{found['ttftSeconds']:.2f}",
        f"{found['tpotMs']:.1f}",
        f"{price['usdPerMillionInput']:.3f}" if price else "-",
        f"{price['usdPerMillionOutput']:.3f}" if price else "-",
    )


def layout_cells(layout: Layout) -> tuple[str, str]:
    """Return the prefill side and the decode side of a layout as the cells of a table."""
    first, second = (
        _workers(side.nodes, side.role.copies, side.role.worker.tp, side.role.worker.dp, side.role.worker.ep)
        if side
        else "the same engines"
        for side in (layout.prefill, layout.decode)
    )
    return first, second


def _workers(nodes: int, copies: int, tp: int, dp: int, ep: int) -> str:
    return f"{count(nodes, 'node')}: {copies}x TP{tp} DP{dp} EP{ep}"


def _side(side: Mapping[str, Any]) -> str:
    return _workers(side["nodes"], side["workers"], side["tp"], side["dp"], side["ep"])


def _first(option: Mapping[str, Any]) -> str:
    found, decode, price, bars = option["prediction"], option["decode"], option["price"], option["trust"]
    lines = [f"The numbers are {found['is']}. Layout 1:"]
    prefill = option["prefill"]
    lines.append(
        f"  prefill {found['inputTokensPerSecond']['node']:,} tokens/s per node; decode "
        f"{found['outputTokensPerSecond']['node']:,} tokens/s per node, {decode['batchPerRank']:g} "
        f"{'request' if decode['batchPerRank'] == 1 else 'requests'} per rank; the KV cache has "
        f"{decode['cacheTokensPerRank']:,} tokens per rank, enough for {decode['requestsThatFit']:,} requests on all ranks "
        "together"
    )
    lines += _latencies(option)
    if decode["expertsPerGpu"] and prefill:
        lines.append(
            f"  experts per GPU: prefill {prefill['expertsPerGpu'] or 'a part of each'}, decode "
            f"{decode['expertsPerGpu']} ({decode['redundantExperts']} redundant experts)"
        )
    if price:
        lines.append(
            f"  price: ${price['usdPerGpuHour']:.2f} per GPU and hour ({price['date']}, {price['source']}); the cost of "
            "prefill is divided among the input tokens, the cost of decode among the output tokens. If output tokens carry "
            f"all costs: ${price['usdPerMillionOutputAllIn']:.3f} per million"
        )
        if price["others"]:
            lines.append(f"  prices of other sellers: {price['others']}")
    else:
        lines.append("  price: no public price is known. Pass --price with the USD per GPU and hour")
    lines += _trust(found, bars)
    if option["generate"]:
        lines.append(f"  as YAML: -o yaml, or {option['generate']} -o yaml")
    else:
        lines.append(f"  no YAML: {option['noRecipe']}")
    return "\n".join(lines) + "\n"


def _trust(found: Mapping[str, Any], bars: Mapping[str, Any]) -> list[str]:
    """Return the lines about the accuracy of a prediction."""
    errors = ", ".join(
        f"{name} ±{bars[key]['median']:.0%} (90 % of errors within {bars[key]['nineOfTen']:.0%})"
        for name, key in (("throughput", "throughput"), ("TPOT", "tpot"), ("TTFT", "ttft"))
        if key in bars
    )
    if errors:
        lines = [f"  median error: {errors}; from cross-validation over {bars['basis']}"]
    else:
        lines = [f"  error: not known, because the calibration has {bars['basis']}"]
    lines.append(f"  at the rates of the data sheet, TPOT is at least {found['tpotBoundMs']:.1f} ms with this batch")
    if bars["rows"]:
        lines.append(f"  engine versions of these rows: {bars['rows']}")
    if bars["extrapolated"] and errors:
        lines.append(f"  extrapolated: {bars['extrapolated']}")
    return lines


def _latencies(option: Mapping[str, Any]) -> list[str]:
    """Return the lines with percentiles of TTFT, and with the figures of each workload of a mix."""
    lines = []
    if found := option["prediction"]["ttftPercentiles"]:
        text = ", ".join(f"{name} {value:.2f} s" for name, value in found.items())
        lines.append(f"  TTFT: {text} (the queue of prefill is assumed to be M/M/1, and prompts to have the same length)")
    if found := option["prediction"]["tpotPercentilesMs"]:
        text = ", ".join(f"{name} {value:.1f} ms" for name, value in found.items())
        lines.append(f"  TPOT of a step: {text} (the number of requests in decode is assumed to be Poisson, M/G/infinity)")
    for each in option["workloads"] or ():
        lines.append(
            f"  {each['in']:,.0f} in, {each['out']:,.0f} out: {each['requestsPerSecond']:,.1f} requests/s, TTFT "
            f"{each['ttftSeconds']:.2f} s, TPOT {each['tpotMs']:.1f} ms, {each['seconds']:.1f} s in all"
        )
    return lines


def report(found: Report) -> str:
    """Return the text of a validation report: the numbers of rows, the errors of each class, and the rows that could not
    be predicted.
    """
    answered, refused = len(found.answered), len(found.refused)
    out = f"{found.rows} {'row' if found.rows == 1 else 'rows'}: {answered} answered, {refused} refused.\n"
    taught = sum(each.taught for each in found.answered)
    if taught:
        out += (
            f"{taught} of them are rows to which the constants were fitted, so their errors say nothing about the "
            "accuracy. docs/sizing.md contains the cross-validation.\n"
        )
    if found.classes:
        head = ("class", "rows", *(f"{_TITLES[name]} median, nine of ten, worst" for name in FIGURES))
        out += "\n" + table(head, class_rows(found.classes))
    if found.outliers:
        out += f"\n{len(found.outliers)} rows have a TPOT or a throughput beyond a factor of two:\n"
        out += "".join(f"  {name}\n" for name in found.outliers)
    elif found.answered:
        out += "\nNo TPOT and no throughput is beyond a factor of two.\n"
    if found.refused:
        out += "\nRefused:\n" + "".join(f"  {name}: {why}\n" for name, why in found.refused.items())
    return out


def class_rows(classes: Mapping[str, Mapping[str, Bar]]) -> list[tuple[str, ...]]:
    """Return a table row for each class: its name, its number of rows, and for each figure the median error, the error
    that nine of ten rows do not exceed, and the worst error.
    """
    return [
        (
            title,
            str(max(each.rows for each in found.values()) if found else 0),
            *(_errors(found.get(name)) for name in FIGURES),
        )
        for title, found in classes.items()
    ]


def _errors(bar: Bar | None) -> str:
    return f"{bar.median:.0%}, {bar.ninth:.0%}, {bar.worst:.0%}" if bar else "-"


def comparison_table(found: Report) -> str:
    """Return a table with the predicted and the measured values of each run."""
    head = ("run", "TTFT s", "measured", "TPOT ms", "measured", "out tok/s a GPU", "measured")
    scales = (("ttft", 1.0), ("tpot", 1000.0), ("tokens", 1.0))
    rows = [(each.id, *(text for name, scale in scales for text in _both(each, name, scale))) for each in found.answered]
    out = table(head, rows) if rows else ""
    return out + "".join(f"{name}: {why}\n" for name, why in found.refused.items())


def _both(answer: Answer, name: str, scale: float) -> tuple[str, str]:
    seen = answer.measured.get(name)
    return f"{answer.predicted[name] * scale:.2f}", f"{seen * scale:.2f}" if seen is not None else "-"


def report_data(found: Report) -> dict[str, Any]:
    """Return a validation report as data for `-o json`."""
    return {
        "rows": found.rows,
        "answered": len(found.answered),
        "refused": dict(found.refused),
        "beyondFactorTwo": found.outliers,
        "classes": {
            title: {
                _TITLES[name].lower(): {
                    "rows": each.rows,
                    "median": round(each.median, 4),
                    "nineOfTen": round(each.ninth, 4),
                    "worst": round(each.worst, 4),
                }
                for name, each in of.items()
            }
            for title, of in found.classes.items()
        },
        "predictions": [
            {
                "id": each.id,
                "class": each.row_class,
                "regime": each.regime or None,
                "fittedOn": each.taught,
                "predicted": _figures(each.predicted),
                "measured": _figures(each.measured),
                "ratio": {_TITLES[name].lower(): round(ratio, 4) for name, ratio in each.ratios.items()},
            }
            for each in found.answered
        ],
    }


def _figures(option: Mapping[str, float]) -> dict[str, float]:
    scale = {"ttft": ("ttftMs", 1000), "tpot": ("tpotMs", 1000), "tokens": ("tokensPerSecondPerGpu", 1)}
    return {scale[name][0]: round(value * scale[name][1], 3) for name, value in option.items()}
