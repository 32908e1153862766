"""Write the tables of docs/gpu.md and docs/sizing.md from the results in tests/gpu/results and from the planner.

    python -m tests.gpu.tables

The tables compare measured times of kernels with the planner's times of the same terms: the time at the peak rates of the
GPU, and that time multiplied by the fitted factors.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ome_operator.sizing import steps
from ome_operator.sizing.constants import shipped_constants
from ome_operator.sizing.gpus import Gpu, gpu
from ome_operator.sizing.shapes import shape
from ome_operator.sizing.steps import ServingStack
from tests.gpu.cases import ENGINE, EP32
from tests.gpu.models import FILE, Model, models

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
RESULTS = HERE / "results"
Facts = Mapping[str, Any]
ONCE = ("head", "dense_gate_up", "dense_down")
"""Parts that a step does once, or in the layers without experts."""
OF_EXPERTS = ("experts", "router", "shared_gate_up", "shared_down")
"""Parts of the layers with experts."""
SMALL = ("norms", "quantize_output", "rotary", "router")


@dataclass(frozen=True)
class Term:
    """One kind of work of a step on one GPU: its measured time and two predictions of the planner, in seconds."""

    name: str
    measured: float
    peak: float
    """The planner's time at the GPU's peak rates."""
    planned: float
    """The planner's time with its fitted factors."""
    kernels: tuple[str, ...]


class Run:
    """The results of one run of the script."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self.lines: list[Facts] = [json.loads(line) for line in path.read_text().splitlines()]
        self.machine = next(line for line in self.lines if line["step"] == "machine")

    @property
    def gpu(self) -> Gpu:
        """Return the GPU of the planner on which the run was made."""
        title = self.machine["gpus"][0].lower()
        return gpu(next(name for name in ("h200", "h100") if name in title))

    def parts(self, step: str, model: str = "", **labels: object) -> list[Facts]:
        """Return the measurements of a step with these labels that passed their check."""
        wanted = {"step": step, **({"model": model} if model else {}), **labels}
        return [
            line for line in self.lines
            if "part" in line and line["ok"] and all(line.get(name) == value for name, value in wanted.items())
        ]  # fmt: skip


def runs() -> list[Run]:
    """Return all runs, the newest last."""
    return [Run(path) for path in sorted(RESULTS.glob("*.jsonl"))]


def fastest(lines: Iterable[Facts]) -> dict[str, Facts]:
    """Return the fastest kernel of each part."""
    best: dict[str, Facts] = {}
    for line in lines:
        if line["part"] not in best or line["seconds"] < best[line["part"]]["seconds"]:
            best[line["part"]] = line
    return best


def times(model: Model, part: str) -> int:
    """Return how many times one step runs this part of a layer."""
    if part == "head":
        return 1
    if part in ONCE:
        return model.layers - model.expert_layers
    return model.expert_layers if part in OF_EXPERTS else model.layers


def decode_terms(run: Run, model: Model, batch: int, context: int) -> list[Term]:
    """Return the terms of a decode step of EP32 with `batch` requests of a rank, measured and planned."""
    fixed = run.parts("decode", model.name, tokens=batch)
    found = fastest(
        line for line in fixed if line.get("context", context) == context and line["part"] != "experts_without_copies"
    )
    read = shape(model.name, "fp8")
    place = ServingStack(read, run.gpu, ENGINE)
    peak = steps.decode_terms(place, EP32, float(batch * EP32.dp), float(context))
    factor = steps.decode_factors(place, EP32, shipped_constants())
    total = float(batch * EP32.dp)
    rate, bandwidth = run.gpu.rate("fp8"), run.gpu.bandwidth
    experts = {
        "weights": steps.expert_reads(place, EP32)
        * steps.expected_expert_fraction(read, total, steps.spread_slots(read, EP32)),
        "matrices": total * read.routed_flops / EP32.gpus / rate,
    }
    rest = {"weights": read.rest_bytes / bandwidth, "matrices": batch * steps.rest_seconds(place)}
    attention = {name: peak[name] for name in ("cache", "attention")}
    groups = {
        "experts": (experts, ("experts",)),
        "projections, head": (
            rest,
            _products(found),
        ),
        "attention": (attention, ("attention",)),
        "norms, rotary, router": ({name: peak[name] for name in ("layer", "moe")}, SMALL),
    }
    return _terms(groups, found, factor, model)


def prefill_terms(run: Run, model: Model, prompt: int) -> list[Term]:
    """Return the terms of a prefill step of EP32, measured and planned, of prompts of this length."""
    lines = run.parts("prefill", model.name, tokens=model.tokens)
    found = fastest(line for line in lines if line.get("context", prompt) == prompt)
    read = shape(model.name, "fp8")
    place = ServingStack(read, run.gpu, ENGINE)
    peak = steps.prefill_terms(place, EP32, float(prompt), float(prompt))
    factor = steps.prefill_factors(place, EP32, shipped_constants())
    tokens, rate = model.tokens, run.gpu.rate("fp8")
    share = tokens * EP32.gpus / prompt
    groups = {
        "experts": ({"experts": tokens * read.routed_flops / rate}, ("experts",)),
        "projections": (
            {"matrices": tokens * (steps.rest_seconds(place) - steps.head_seconds(place))},
            _products(found),
        ),
        "attention": ({"attention": share * peak["attention"]}, ("attention",)),
        "norms, rotary, router": ({"request": share * peak["request"]}, SMALL),
    }
    return _terms(groups, found, factor, model)


def _products(found: Iterable[str]) -> tuple[str, ...]:
    """Return the parts that are matrix products outside the routed experts."""
    return tuple(part for part in found if part not in (*SMALL, "experts", "attention", "layer"))


def _terms(
    groups: Mapping[str, tuple[Mapping[str, float], tuple[str, ...]]],
    found: Mapping[str, Facts],
    factor: Mapping[str, float],
    model: Model,
) -> list[Term]:
    """Return a term for each group whose parts were all measured. A group has the planner's terms, and parts."""
    out = []
    for name, (terms, parts) in groups.items():
        if parts and all(part in found for part in parts):
            measured = sum(times(model, part) * found[part]["seconds"] for part in parts)
            planned = sum(seconds * factor[term] for term, seconds in terms.items())
            kernels = tuple(dict.fromkeys(found[part]["kernel"] for part in parts))
            out.append(Term(name, measured, sum(terms.values()), planned, kernels))
    return out


TITLES = {
    "read": "memory read",
    "copy": "memory copied, bytes read and written",
    "gemm_bf16": "matrices, BF16",
    "gemm_fp8": "matrices, FP8, one scale each",
    "gemm_fp8_blocks": "matrices, FP8, scales of blocks of 128",
}
"""Titles of the parts of the step `roofline`."""


def rates(found: Sequence[Run]) -> Iterator[str]:
    """Yield the rows of the table of rates, one for each kind of work and run."""
    yield "| what | GPU | kernel | reached | data sheet | share |"
    yield "|---|---|---|---|---|---|"
    for part, title in TITLES.items():
        for run in found:
            for line in run.parts("roofline", part=part):
                reached, peak, unit = _rate(line, run.gpu)
                share = f"{reached / peak:.0%}"
                cells = (title, run.gpu.name.upper(), line["kernel"], f"{reached:,.0f} {unit}", f"{peak:,.0f} {unit}", share)
                yield f"| {' | '.join(cells)} |"


def _rate(line: Facts, card: Gpu) -> tuple[float, float, str]:
    """Return the rate that a part reached, the rate of the data sheet, and their unit."""
    if line["flops"]:
        peak = card.rate("bf16" if line["part"] == "gemm_bf16" else "fp8")
        return line["flops"] / line["seconds"] / 1e12, peak / 1e12, "TFLOP/s"
    return line["bytes"] / line["seconds"] / 1e9, card.bandwidth / 1e9, "GB/s"


def decode_rows(found: Sequence[Run], model: Model) -> Iterator[str]:
    """Yield the table of decode steps of a model: milliseconds measured / at peak rates / planned, for each term."""
    names = ("experts", "projections, head", "attention", "norms, rotary, router")
    yield f"| GPU | requests | tokens each | {' | '.join(names)} | sum | one graph |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for run in found:
        for context in model.contexts if model.latent else model.contexts[:1]:
            for batch in model.batches:
                terms = decode_terms(run, model, batch, context)
                if not terms:
                    continue
                whole = run.parts("decode", model.name, tokens=batch, context=context, part="layer")
                graph = f"{model.layers * whole[0]['seconds'] * 1e3:.1f}" if whole else ""
                yield _row([run.gpu.name.upper(), batch, f"{context:,}" if model.latent else ""], terms, names, graph)


def prefill_rows(found: Sequence[Run], model: Model) -> Iterator[str]:
    """Yield the table of prefill steps of a model, as `decode_rows` does."""
    names = ("experts", "projections", "attention", "norms, rotary, router")
    yield f"| GPU | prompt | {' | '.join(names)} | sum |"
    yield "|---|---|---|---|---|---|---|"
    for run in found:
        for prompt in model.prompts if model.latent else model.prompts[:1]:
            if terms := prefill_terms(run, model, prompt):
                yield _row([run.gpu.name.upper(), f"{prompt:,}" if model.latent else ""], terms, names)


def _row(first: Sequence[object], terms: Sequence[Term], names: Sequence[str], *more: str) -> str:
    of = {term.name: term for term in terms}
    cells = [_cell(of[name]) if name in of else "not measured" for name in names]
    total = Term("sum", *(sum(getattr(term, name) for term in terms) for name in ("measured", "peak", "planned")), ())
    return f"| {' | '.join(map(str, first))} | {' | '.join([*cells, _cell(total), *more])} |"


def _cell(term: Term) -> str:
    return f"{term.measured * 1e3:.1f} / {term.peak * 1e3:.1f} / {term.planned * 1e3:.1f}"


def efficiencies(found: Sequence[Run]) -> Iterator[str]:
    """Yield the table of the share of the peak rates that kernels reach, beside the share that the planner assumes."""
    yield "| step | term | GPU | measured | planned |"
    yield "|---|---|---|---|---|"
    every = models(FILE.read_text())
    for step in ("decode", "prefill"):
        for run in found:
            terms = [term for model in every for term in _all_terms(step, run, model)]
            for name in dict.fromkeys(term.name for term in terms):
                if name == "norms, rotary, router":  # Its peak is a constant time and not a rate of the GPU.
                    continue
                these = [term for term in terms if term.name == name]
                reached = _span([term.peak / term.measured for term in these])
                planned = _span([term.peak / term.planned for term in these])
                yield f"| {step} | {name} | {run.gpu.name.upper()} | {reached} | {planned} |"


def _all_terms(step: str, run: Run, model: Model) -> Iterator[Term]:
    if step == "prefill":
        for prompt in model.prompts:
            yield from prefill_terms(run, model, prompt)
        return
    for batch in model.batches:
        for context in model.contexts:
            yield from decode_terms(run, model, batch, context)


def _span(shares: Sequence[float]) -> str:
    return f"{min(shares):.0%} to {max(shares):.0%}"


def kernels(found: Sequence[Run]) -> Iterator[str]:
    """Yield the lines of a list that states, for each term of the planner, the kernels whose times the tables contain."""
    used: dict[str, dict[str, None]] = {}
    for run in found:
        for model in models(FILE.read_text()):
            for step in ("decode", "prefill"):
                for term in _all_terms(step, run, model):
                    for kernel in term.kernels:
                        name = re.sub(r", \d+ splits", "", kernel)
                        used.setdefault(f"{step}, {term.name}", {})[name] = None
    for name, names in used.items():
        yield f"* {name}: {'; '.join(names)}"


def machines(found: Sequence[Run]) -> Iterator[str]:
    """Yield a list of the machines, one for each run."""
    for run in found:
        packages = ", ".join(f"{name} {version}" for name, version in run.machine["packages"].items())
        name, driver = (field.strip() for field in run.machine["gpus"][0].split(",")[:2])
        yield f"* {run.machine['date']}: {name}, driver {driver}, Python {run.machine['python']}, {packages}"


def preflight(found: Sequence[Run]) -> Iterator[str]:
    """Yield the table of the preflight's duration on each GPU."""
    titles = {
        "clean-first": "first check on the machine, with NCCL",
        "clean-second": "second check",
        "clean-third": "third check",
        "without-torch": "without torch in the image, so without NCCL",
    }
    yield "| check | GPU | seconds | torch loaded after | NCCL, from then on |"
    yield "|---|---|---|---|---|"
    for run in found:
        for line in run.lines:
            if line["step"] == "preflight" and line.get("case") in titles:
                loaded = f"{line['torch_load_s']:.1f} s" if line["torch_load_s"] else ""
                after = f"{line['collective']['after_load_s']:.1f} s" if line["collective"] else ""
                yield f"| {titles[line['case']]} | {run.gpu.name.upper()} | {line['seconds']:.1f} | {loaded} | {after} |"


def tables() -> dict[str, dict[str, list[str]]]:
    """Return the lines of each table of each page, by the table's marker."""
    found = runs()
    gpu_page = {"machines": list(machines(found)), "rates": list(rates(found)), "kernels": list(kernels(found))}
    for model in models(FILE.read_text()):
        gpu_page[f"decode {model.name}"] = list(decode_rows(found, model))
        gpu_page[f"prefill {model.name}"] = list(prefill_rows(found, model))
    return {
        "gpu.md": gpu_page,
        "sizing.md": {"gpu efficiencies": list(efficiencies(found))},
        "preflight.md": {"gpu preflight": list(preflight(found))},
    }


def updated(text: str, tables_of_page: Mapping[str, Sequence[str]]) -> str:
    """Return a page with its tables replaced. Raises ValueError if the page lacks the marker of a table."""
    for name, rows in tables_of_page.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        if begin not in text or end not in text:
            raise ValueError(f"the page has no markers {begin.strip()} and {end.strip()}")
        before, rest = text.split(begin, 1)
        text = before + begin + "\n".join(rows) + "\n" + end + rest.split(end, 1)[1]
    return text


def main() -> None:
    """Write the tables into the pages."""
    for page, of_page in tables().items():
        path = DOCS / page
        path.write_text(updated(path.read_text(), of_page))


if __name__ == "__main__":
    main()
