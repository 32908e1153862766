"""Cross-validate variants of the planner's fit that use the rates that kernels reached on a GPU.

    python -m tests.gpu.variants     # needs numpy; writes a table of docs/sizing.md

Each variant is a fit as in `ome_operator.sizing.fit`, computed with arrays for all rows at once, which takes 30 seconds of a
CPU for a variant. There are two differences. A fit without some rows starts from the means of the priors, because the
constants of all rows contain what those rows taught. And a fit ends when an iteration reduces the cost by less than 1e-5 of
it, so that the result does not depend on the start.
"""

import math
from collections.abc import Callable, Iterator, Mapping

from ome_operator.sizing import fit
from ome_operator.sizing.calibration import Row
from ome_operator.sizing.error_bars import DEPLOYMENT, ENGINE, FIGURES, GPU, MODEL, NARROW, Bar, bars, held
from tests.gpu import tables
from tests.gpu.variant_fit import VARIANTS, Problem, Variant, answered

PUBLISHED = "published"
"""Title of the fits in crossvalidated.csv. Their errors are not compared, because these fits start elsewhere."""
KINDS = (DEPLOYMENT, GPU, ENGINE, MODEL)
_TITLES = {"tokens": "throughput", "tpot": "TPOT", "ttft": "TTFT"}
Ratios = dict[tuple[str, str], dict[str, float]]
"""Id of a row and the kind of the group that was left out -> predicted / measured of each figure."""


def cross_validated(variant: Variant) -> Ratios:
    """Return the predictions of all rows, each with constants that were fitted without the rows of its group."""
    rows = answered()
    out: Ratios = {}
    for kind in KINDS:
        groups: dict[str, list[Row]] = {}
        for row in rows:
            groups.setdefault(fit._left_out(row, kind), []).append(row)
        for group in groups.values():
            if kind == MODEL and len(group) >= len(rows) / 2:
                continue  # Too few rows would remain, as in `fit.lines_of`.
            ids = {row.id for row in group}
            constants = Problem([row for row in rows if row.id not in ids], variant).fitted()
            for row, ratios in zip(group, Problem(group, variant).ratios(constants), strict=True):
                out[row.id, kind] = {
                    name: float(ratio) for name, ratio in zip(FIGURES, ratios, strict=True) if not math.isnan(ratio)
                }
    return out


def published() -> Ratios:
    """Return the predictions in crossvalidated.csv, whose fits start from the constants of all rows."""
    return {(each.id, each.left_out): dict(each.ratios) for each in held()}


def errors(ratios: Ratios, kind: str, only: Callable[[Row], bool] = lambda _: True) -> Mapping[str, Bar]:
    """Return the errors of each figure over the rows that `only` accepts, with groups of this kind left out."""
    wanted = {row.id for row in answered() if only(row)}
    return bars(each for (row, left), each in ratios.items() if left == kind and row in wanted)


def wide_hopper(row: Row) -> bool:
    """Return whether a row is a run on Hopper GPUs with more than eight GPUs in a worker."""
    widest = max(role.worker.gpus for role in (row.prefill, row.decode) if role)
    return row.place.gpu.family == "hopper" and widest > NARROW


def rows_of_table(of: Mapping[str, Ratios], base: str) -> Iterator[str]:
    """Yield the table: median and ninth decile of the errors of each variant, and how many of the 24 figures (four kinds of
    groups, three figures, median and ninth decile) are worse than those of the variant `base` by more than 1 %.
    """
    yield (
        "| fit | figures worse | most | a deployment left out: throughput | TPOT | a GPU left out: throughput | TPOT "
        "| wide Hopper, a deployment left out: throughput | a GPU left out: throughput |"
    )
    yield f"|{'---|' * 9}"
    before = _all(of[base])
    for title, ratios in of.items():
        now = _all(ratios)
        worse = {name: value / before[name] - 1 for name, value in now.items() if value > 1.01 * before[name]}
        most = max(worse.items(), key=lambda item: item[1], default=None)
        counted = [f"{len(worse)} of {len(now)}", f"{most[0]} {most[1]:+.0%}" if most else ""]
        cells = [title, *(counted if title not in (PUBLISHED, base) else ("", ""))]
        cells += [_cell(errors(ratios, kind)[name]) for kind in (DEPLOYMENT, GPU) for name in ("tokens", "tpot")]
        cells += [_cell(errors(ratios, kind, wide_hopper)["tokens"]) for kind in (DEPLOYMENT, GPU)]
        yield f"| {' | '.join(cells)} |"


def _all(ratios: Ratios) -> dict[str, float]:
    """Return all 24 figures by title."""
    return {
        f"{_TITLES[name]}, {'GPU' if kind == GPU else kind}, {part}": value
        for kind in KINDS
        for name, bar in errors(ratios, kind).items()
        for part, value in (("median", bar.median), ("nine of ten", bar.ninth))
    }


def _cell(bar: Bar) -> str:
    return f"{bar.median:.1%}, {bar.ninth:.0%}"


def main() -> None:
    """Fit and cross-validate all variants, and write the table into docs/sizing.md."""
    of = {PUBLISHED: published()}
    for variant in VARIANTS:
        of[variant.title] = cross_validated(variant)
        print(variant.title, flush=True)
    lines = list(rows_of_table(of, "present"))
    print("\n".join(lines))
    path = tables.DOCS / "sizing.md"
    path.write_text(tables.updated(path.read_text(), {"fit variants": lines}))


if __name__ == "__main__":
    main()
