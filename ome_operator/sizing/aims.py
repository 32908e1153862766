"""Compares the accuracy of the planner with its aims: `python -m ome_operator.sizing.aims` prints the table of
docs/sizing.md.

All figures come from data/crossvalidated.csv, so no row is predicted with constants that were fitted to its deployment.
"""

import itertools
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from ome_operator.sizing import steps
from ome_operator.sizing.calibration import Row, shipped
from ome_operator.sizing.constants import shipped_constants
from ome_operator.sizing.error_bars import DEPLOYMENT, FIGURES, GPU, MODEL, bar, held_out_predictions, trust
from ome_operator.sizing.priors import phases

PAIRS = 1.1
"""If the ratio of two measured throughputs is at least this number, the planner has to predict which of the two is
higher."""
TITLES = {"tokens": "throughput", "tpot": "TPOT", "ttft": "TTFT"}
Key = Callable[[Row], tuple[object, ...]]


class Aim(NamedTuple):
    """An aim for the accuracy of the planner, with the accuracy that was measured."""

    description: str
    rows: int
    found: str
    target: str


def aims() -> Iterator[Aim]:
    """Yield the aims for the accuracy of the planner, each with the accuracy that was measured."""
    rows = {row.id: row for row in shipped()}
    ratios = {each.id: each.ratios for each in held_out_predictions() if each.left_out == DEPLOYMENT and each.ratios}
    one, apart = ({name for name in ratios if rows[name].together is together} for together in (True, False))
    yield from _errors(
        "engines that do both prefill and decode", [ratios[name] for name in one], ("15 % / 45 %", "15 % / 40 %", "40 %")
    )
    yield from _errors("disaggregation", [ratios[name] for name in apart], ("7.2 % / 26 %", "6.3 % / 19 %", "35 %"))
    for what, title in ((GPU, "a GPU left out"), (MODEL, "a model left out")):
        found = [each.ratios for each in held_out_predictions() if each.left_out == what and each.id in one]
        yield from _errors(f"engines that do both prefill and decode, {title}", found, ("-", "-", "-"))
    beyond = [name for name in one if any(not 0.5 <= ratios[name].get(figure, 1) <= 2 for figure in FIGURES[1:])]
    yield Aim(
        "engines that do both prefill and decode: throughput or TPOT beyond a factor of two",
        len(one),
        _percent(len(beyond), len(one)),
        "3 %",
    )
    yield _order("pairs of GPUs in the right order", rows, ratios, by_gpu, lambda row: (row.place.gpu.name,), "85 %")
    yield _order("pairs of engines in the right order", rows, ratios, by_engine, lambda row: (row.place.engine,), "70 %")
    yield from _bars(rows, ratios)
    yield _below_roofline(rows.values())


def _errors(title: str, ratios: list[Mapping[str, float]], wanted: tuple[str, str, str]) -> Iterator[Aim]:
    for name, aim in zip(("tokens", "tpot", "ttft"), wanted, strict=True):
        errors = [abs(each[name] - 1) for each in ratios if name in each]
        found = bar(errors)
        yield Aim(
            f"{title}: {TITLES[name]}, median / nine of ten", len(errors), f"{found.median:.1%} / {found.ninth:.0%}", aim
        )


def by_gpu(row: Row) -> tuple[object, ...]:
    """Return a key of a run. If two runs have equal keys, only their GPUs can explain that their throughputs differ."""
    return (row.place.engine, *_common(row))


def by_engine(row: Row) -> tuple[object, ...]:
    """Return a key of a run. If two runs have equal keys, only their engines can explain that their throughputs differ."""
    return (row.place.gpu.name, *_common(row))


def _common(row: Row) -> tuple[object, ...]:
    shape, role = row.place.shape, row.decode
    return shape.facts.parameters, shape.precision, role and role.worker.gpus, row.isl, row.osl, row.concurrency


def _order(
    title: str, rows: Mapping[str, Row], ratios: Mapping[str, Mapping[str, float]], common: Key, differs: Key, aim: str
) -> Aim:
    groups: dict[tuple[object, ...], list[Row]] = {}
    for name in ratios:
        if rows[name].together and rows[name].written:
            groups.setdefault(common(rows[name]), []).append(rows[name])
    right = every = 0
    for group in groups.values():
        for a, b in itertools.combinations(_medians(group, ratios, differs), 2):
            if max(a[0], b[0]) >= PAIRS * min(a[0], b[0]):
                every += 1
                right += (a[0] > b[0]) == (a[1] > b[1])
    return Aim(title, every, _percent(right, every), aim)


def _medians(group: list[Row], ratios: Mapping[str, Mapping[str, float]], differs: Key) -> list[tuple[float, float]]:
    """Group the rows by the key that `differs` returns for a row. Return (median measured throughput, median predicted
    throughput) of each group.
    """
    kinds: dict[tuple[object, ...], list[tuple[float, float]]] = {}
    for row in group:
        assert row.written is not None
        kinds.setdefault(differs(row), []).append((row.written, row.written * ratios[row.id]["tokens"]))
    return [(statistics.median(a for a, _ in found), statistics.median(b for _, b in found)) for found in kinds.values()]


def _bars(rows: Mapping[str, Row], ratios: Mapping[str, Mapping[str, float]]) -> Iterator[Aim]:
    """Yield, for each figure, the percentage of rows whose error is within the error bar that a plan of their deployment
    prints. An error bar is computed to contain nine of ten rows.
    """
    for name in ("tokens", "tpot", "ttft"):
        inside = every = 0
        for id_, found in ratios.items():
            row = rows[id_]
            bars = trust(row.place, row.prefill, row.decode, row.load).error_bars
            if name in found and name in bars:
                every += 1
                inside += abs(found[name] - 1) <= bars[name].ninth
        yield Aim(f"{TITLES[name]} within the error of nine of ten", every, _percent(inside, every), "80 % to 97 %")


def _below_roofline(rows: Iterable[Row]) -> Aim:
    """Return the aim that no predicted decode step is shorter than the rates of the data sheet permit for its bytes,
    operations and messages, and the number of steps that miss the aim.
    """
    below = every = 0
    for row in rows:
        role = phases(row).get("decode")
        if role is None:
            continue
        mode = steps.TOGETHER if row.together else steps.PAIR
        context = row.load.prompt + row.load.answer / 2
        step = steps.decoder(row.place, role.worker, context, shipped_constants(), mode)
        for batch in (1, 4, 16, 64, 256, 1024):
            every += 1
            below += step(batch) < steps.floor(steps.decode_terms(row.place, role.worker, batch, context))
    return Aim("decode steps below the roofline", every, str(below), "0")


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"


def main() -> None:
    """Print the table of the planner's accuracy and its aims."""
    for aim in aims():
        print(f"{aim.description:75} {aim.rows:6} {aim.found:>16}   aim {aim.target}")


if __name__ == "__main__":
    main()
