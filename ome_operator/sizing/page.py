"""Write the tables of docs/sizing.md: `python -m ome_operator.sizing.page` replaces them by tables of the current data."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ome_operator.sizing.calibration import Row, shipped
from ome_operator.sizing.constants import fitted
from ome_operator.sizing.error_bars import (
    DEPLOYMENT,
    ENGINE,
    ENOUGH,
    GPU,
    MODEL,
    Bar,
    bar,
    by_class,
    class_of,
    held,
    left_out,
)
from ome_operator.sizing.gpus import gpus

PAGE = Path(__file__).parents[2] / "docs" / "sizing.md"
WAITS, OTHERS = "waits", "others"
AIMS = {"narrow": {"tokens": 0.07, "tpot": 0.06}, "wide": {"tokens": 0.20, "tpot": 0.20}}
TTFT_AIMS = {WAITS: 0.25, OTHERS: 0.40}
NEW_GPU = 0.35
TERMS = {
    "decode.layer": "time of kernel launches and small kernels, in units of 10 µs per layer",
    "decode.weights": "time to read the weights, divided by the time at full memory bandwidth",
    "decode.cache": "time to read the KV cache, divided by the time at full memory bandwidth",
    "decode.attention": "time of the attention operations, divided by their time at the BF16 peak rate",
    "decode.matrices": "time of the matrix operations, divided by their time at the peak rate of their precision",
    "decode.request": "time that each request adds to a step, in units of 1 µs",
    "decode.hop.tp": "time of an all-reduce without data, in units of 10 µs (30 µs beyond a link domain)",
    "decode.hop.dtp": "time of a gather without data, in units of 10 µs (30 µs beyond a link domain)",
    "decode.hop.dep": "time of an all-to-all without data, in units of 10 µs (30 µs beyond a link domain)",
    "decode.wire.tp": "time to transfer the data of all-reduces, divided by the time at the link's bandwidth",
    "decode.wire.dtp": "time to transfer the data of gathers, divided by the time at the link's bandwidth",
    "decode.wire.dep": "time to transfer the data of the all-to-all, divided by the time at the link's bandwidth",
    "prefill.matrices": "time of the matrix operations, divided by their time at the peak rate of their precision",
    "prefill.attention": "time of the attention operations, divided by their time at the BF16 peak rate",
    "prefill.wire.tp": "time to transfer the data of all-reduces, divided by the time at the link's bandwidth",
    "prefill.wire.dtp": "time to transfer the data of gathers, divided by the time at the link's bandwidth",
    "prefill.wire.dep": "time to transfer the data of the all-to-all, divided by the time at the link's bandwidth",
    "prefill.request": "time that each prompt adds, in units of 10 µs per layer",
    "alone.fixed": "TTFT without the prefill step, in units of 100 ms",
    "alone.ranks": "exponent of the number of attention ranks: 0 if they share the work of a prompt, 1 if they do not",
    "wait.queue": "waiting time in the queue of prefill, divided by that of a queue with a single server (M/M/1)",
    "wait.burst": "waiting time caused by the initial burst, in tenths of the time to prefill all concurrent requests",
    "slots": "waiting time for a free slot in decode with one request per worker, as a fraction of the time in decode; "
    "requests wait because the router assigns them to workers at random",
}


def tables() -> dict[str, str]:
    """Return each table of the page as Markdown, by the name of the marker that precedes it."""
    return {
        "classes": _table(("class", "rows", "throughput", "TPOT", "TTFT, waits", "TTFT, others"), _classes()),
        "left-out": _table(("left out", "figure", "rows", "median", "nine of ten", "worst"), _left_out()),
        "constants": _table(("factor", "value", "of what"), _constants()),
        "gpus": _table(
            ("GPU", "memory GiB", "GB/s", "dense TFLOPS", "link, network GB/s", "price", "source", "checked"), _gpus()
        ),
    }


def written(text: str) -> str:
    """Return the page with its tables replaced by those of the current data."""
    for name, table in tables().items():
        head, tail = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, found, rest = text.partition(head)
        assert found, name
        text = f"{before}{head}{table}{tail}{rest.partition(tail)[2]}"
    return text


def _table(head: Sequence[str], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _classes() -> Iterator[tuple[str, ...]]:
    rows = {row.id: row for row in shipped()}
    errors: dict[tuple[str, str], list[float]] = {}
    for each in held():
        row = rows[each.id]
        if each.left_out == DEPLOYMENT and "ttft" in each.ratios:
            regime = WAITS if _waits(row) else OTHERS
            errors.setdefault((class_of(row.place, (row.prefill, row.decode)), regime), []).append(
                abs(each.ratios["ttft"] - 1)
            )
    for title, found in by_class().items():
        aims = AIMS[title.rpartition(" ")[2]]
        ttft = {regime: bar(errors[title, regime]) for regime in TTFT_AIMS if (title, regime) in errors}
        yield (
            title,
            str(found["tokens"].rows),
            _cell(found.get("tokens"), aims["tokens"]),
            _cell(found.get("tpot"), aims["tpot"]),
            *(_cell(ttft.get(regime), aim) for regime, aim in TTFT_AIMS.items()),
        )


def _waits(row: Row) -> bool:
    """Return whether the measured TTFT of a row is more than half of the total time of a request."""
    assert row.ttft is not None and row.tpot is not None
    return row.ttft > (row.load.answer - 1) * row.tpot


def _cell(found: Bar | None, aim: float) -> str:
    if found is None:
        return "-"
    said = f"{found.median:.0%}, worst {found.worst:.0%}"
    if found.rows < ENOUGH:
        return f"{said} ({found.rows} rows)"
    return f"{said}; aim {aim:.0%} {'met' if found.median <= aim else '**missed**'}"


def _left_out() -> Iterator[tuple[str, ...]]:
    titles = {
        DEPLOYMENT: "a deployment",
        GPU: "all rows of a GPU",
        ENGINE: "all rows of an engine",
        MODEL: "all rows of Kimi K2, or of Qwen3",
    }
    for what, title in titles.items():
        for name, figure in (("tokens", "throughput"), ("tpot", "TPOT"), ("ttft", "TTFT")):
            found = left_out(what)[name]
            yield title, figure, str(found.rows), f"{found.median:.0%}", f"{found.ninth:.0%}", f"{found.worst:.0%}"


def _constants() -> Iterator[tuple[str, ...]]:
    logs: Mapping[str, float] = fitted().logs
    for name, meaning in TERMS.items():
        yield f"`{name}`", f"{math.exp(logs[name]):.2f}", meaning


def _gpus() -> Iterator[tuple[str, ...]]:
    for machine in dict.fromkeys(gpus()[name].name for name in gpus()):
        found = gpus()[machine]
        flops = ", ".join(f"{name} {rate / 1e12:,.0f}" for name, rate in found.flops.items())
        price = str(found.price) if found.price else "none found"
        links = f"{found.link * 2 / 1e9:,.0f} over {found.domain}, {found.network / 1e9:,.0f}"
        sources = found.source, found.checked
        yield found.name, f"{found.memory / 2**30:.0f}", f"{found.bandwidth / 1e9:,.0f}", flops, links, price, *sources


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
