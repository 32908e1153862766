"""Write the tables of docs/sizing.md: `python -m ome_operator.sizing.page` replaces them by tables of the current data."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ome_operator.sizing.aims import aims
from ome_operator.sizing.constants import shipped_constants
from ome_operator.sizing.error_bars import DEPLOYMENT, ENGINE, GPU, MODEL, Bar, by_class, left_out
from ome_operator.sizing.gpus import gpus

PAGE = Path(__file__).parents[2] / "docs" / "sizing.md"
_FIGURES = {"tokens": "throughput", "tpot": "TPOT", "ttft": "TTFT"}
_FAMILIES = {"hopper": "Hopper", "blackwell": "Blackwell"}
_KERNELS = {
    "decode.weights": "time to read the weights, divided by the time at full memory bandwidth",
    "decode.attention": "time of attention, divided by the longer of two times: to read the KV cache at full bandwidth, "
    "and to compute at the BF16 peak rate",
    "decode.matrices": "time of the matrix operations, divided by their time at the peak rate of their precision",
    "prefill.experts": "time of the operations of routed experts, divided by their time at the peak rate of their precision",
    "prefill.matrices": "time of the other matrix operations, divided by their time at the peak rate of their precision",
    "prefill.attention": "time of the attention operations, divided by their time at the BF16 peak rate",
}
_MODES = {"pair": "disaggregation", "together": "engines that do both prefill and decode"}
_WAITS = {
    "fixed": "TTFT without the prefill step, in units of 100 ms",
    "ranks": "exponent of the number of attention ranks: 0 if they share the work of a prompt, 1 if they do not",
    "queue": "waiting time in the queue of prefill, divided by that of a queue with a single server (M/M/1)",
    "burst": "waiting time caused by the initial burst, in tenths of the time to prefill all concurrent requests",
}
TERMS = {
    "decode.layer": "time of kernel launches and small kernels, in units of 10 µs per layer",
    "decode.moe": "time that the choice of experts adds to them, in units of 10 µs per layer with routed experts",
    **{f"{name}.{family}": f"{title}: {text}" for name, text in _KERNELS.items() for family, title in _FAMILIES.items()},
    "decode.request": "time that each request of an attention rank adds to a step, in units of 1 µs",
    "decode.hop.tp": "time of an all-reduce without data, in units of 10 µs (30 µs over the network)",
    "decode.hop.dtp": "time of a gather without data, in units of 10 µs (30 µs over the network)",
    "decode.hop.dep": "time of an all-to-all without data, in units of 10 µs (30 µs over the network)",
    "decode.wire.tp": "time to transfer the data of all-reduces, divided by the time at the link's bandwidth",
    "decode.wire.dtp": "time to transfer the data of gathers, divided by the time at the link's bandwidth",
    "decode.wire.dep": "time to transfer the data of the all-to-all, divided by the time at the link's bandwidth",
    "decode.far.tp": "time to transfer the data of all-reduces over the network, divided by the time at its bandwidth",
    "decode.far.dep": "time to transfer the data of the all-to-all over the network, divided by the time at its bandwidth",
    "prefill.wire.tp": "time to transfer the data of all-reduces, divided by the time at the link's bandwidth",
    "prefill.wire.dtp": "time to transfer the data of gathers, divided by the time at the link's bandwidth",
    "prefill.wire.dep": "time to transfer the data of the all-to-all, divided by the time at the link's bandwidth",
    "prefill.far.dep": "time to transfer the data of the all-to-all over the network, divided by the time at its bandwidth",
    "prefill.request": "time that each prompt adds, in units of 10 µs per layer",
    **{f"{mode}.{name}": f"{title}: {text}" for mode, title in _MODES.items() for name, text in _WAITS.items()},
    "slots": "waiting time for a free slot in decode with one request per worker, as a fraction of the time in decode; "
    "requests wait because the router assigns them to workers at random",
}


def tables() -> dict[str, str]:
    """Return each table of the page as Markdown, by the name of the marker that precedes it."""
    return {
        "aims": _table(
            ("figure", "rows", "found", "aim"), ((a.description, str(a.rows), a.found, a.target) for a in aims())
        ),
        "classes": _table(("class", "rows", *_FIGURES.values()), _classes()),
        "left-out": _table(("left out", "rows", *_FIGURES.values()), _left_out()),
        "constants": _table(("factor", "value", "of what"), _constants()),
        "gpus": _table(
            ("GPU", "memory GiB", "GB/s", "dense TFLOPS", "link, network GB/s", "price", "source", "checked"), _gpus()
        ),
    }


def update_tables(text: str) -> str:
    """Return the page after its tables were replaced by tables of the current data."""
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
    for title, found in by_class().items():
        yield title, str(found["tokens"].rows), *(_cell(found.get(name)) for name in _FIGURES)


def _cell(bar: Bar | None) -> str:
    return f"{bar.median:.0%}, {bar.ninth:.0%}, {bar.worst:.0%}" if bar else "-"


def _left_out() -> Iterator[tuple[str, ...]]:
    titles = {DEPLOYMENT: "a deployment", GPU: "a GPU", ENGINE: "an engine", MODEL: "a model family"}
    for what, title in titles.items():
        for together, mode in ((True, "engines that do both prefill and decode"), (False, "disaggregation")):
            found = left_out(what, together)
            yield f"{title}; {mode}", str(found["tokens"].rows), *(_cell(found[name]) for name in _FIGURES)


def _constants() -> Iterator[tuple[str, ...]]:
    logs: Mapping[str, float] = shipped_constants().logs
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
    PAGE.write_text(update_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
