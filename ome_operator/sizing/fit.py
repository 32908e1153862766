"""Fit the constants of the model: `python -m ome_operator.sizing.fit` reads data/calibration.csv and writes
data/fitted.yaml and data/crossvalidated.csv.

The method is Gauss-Newton least squares on the logarithms of predicted / measured, with numerical derivatives. A prior pulls
each deviation towards 0. An error above `BEND` is weighted linearly instead of squared, because some runs include waiting
times that the file does not explain.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from ome_operator.sizing import steps
from ome_operator.sizing.calibration import Row, shipped
from ome_operator.sizing.constants import Constants
from ome_operator.sizing.error_bars import DEPLOYMENT, ENGINE, FIGURES, GPU, MODEL
from ome_operator.sizing.errors import PlanRefused
from ome_operator.sizing.predict import Prediction, predict
from ome_operator.sizing.queueing import slots_keys
from ome_operator.sizing.validate import figures

DATA = Path(__file__).parent / "data"
BEND = 0.15
"""Size of a logarithmic error above which the error is weighted linearly instead of squared."""
NOISE = 0.06
"""Typical logarithmic error of a row without outliers. It scales the weight of the priors."""
STEP = 1e-4
ROUNDS = 15
WEIGHT = {"tpot": 1.0, "ttft": 0.3, "tokens": 1.0}
"""Weight of the error of each figure. The weight of TTFT is lower, because TTFT includes waiting times that the file does
not explain."""
Errors = list[tuple[float, float]]
"""Pairs of two numbers: the logarithm of predicted / measured of a figure, and the weight of this error."""
_TERMS = {"weights": 1.3, "cache": 1.3, "attention": 1.5, "matrices": 2.0}
_LADDER = (0.1, 0.15, 0.15, 0.2, 0.2, 0.2, 0.2, 0.15, 0.1)
"""Standard deviations of the priors for the names that `steps.ServingStack.keys` returns after the base constant, from
the most general to the most specific."""

_SLOTS = (0.7, 0.3, 1.5, 0.5)
"""Standard deviations of the priors for the names that `queueing.slots_keys` returns."""


def priors(rows: Sequence[Row]) -> dict[str, tuple[float, float, set[int]]]:
    """Return the prior of each constant: the expected logarithm, its standard deviation, and the indexes of the rows that
    depend on the constant.
    """
    out: dict[str, tuple[float, float, set[int]]] = {}

    def add(name: str, mean: float, spread: float, number: int) -> None:
        out.setdefault(name, (mean, spread, set()))[2].add(number)

    for number, row in enumerate(rows):
        place, engine = row.place, row.place.engine
        if row.decode:
            worker = row.decode.worker
            for name in steps.decode_terms(place, worker, 1, 1):
                add(f"decode.{name}", math.log(_TERMS.get(name, 1.0)), 0.7, number)
                if name not in _TERMS:
                    add(f"decode.{name}.{engine}", 0.0, 0.4, number)
            for name, spread in zip(place.keys("decode", worker)[1:], _LADDER, strict=True):
                if not name.endswith(".any"):
                    add(name, 0.0, spread, number)
        if row.prefill:
            worker = row.prefill.worker
            for name in steps.prefill_terms(place, worker, 1, 1):
                add(f"prefill.{name}", math.log(2.0), 0.7, number)
            for name, spread in zip(place.keys("prefill", worker)[1:], _LADDER, strict=True):
                if not name.endswith(".any"):
                    add(name, 0.0, 1.5 * spread, number)
        if row.prefill and row.decode:
            for name in ("alone.fixed", "wait.burst"):
                add(name, 0.0, 0.7, number)
                add(f"{name}.{engine}", 0.0, 0.5, number)
            add("wait.queue", 0.0, 0.7, number)
            add("alone.ranks", -0.7, 0.5, number)
            if row.decode.copies > 1:
                for name, mean, spread in zip(slots_keys(place, row.decode.worker), (-3.5, 0, 0, 0), _SLOTS, strict=True):
                    add(name, mean, spread, number)
    return out


def residuals(row: Row, c: Constants) -> Errors:
    """Return the logarithmic errors of the figures that a row has; empty if the row cannot be predicted."""
    try:
        said = predict(row, c)
    except PlanRefused:
        return []
    return [(math.log(ratio), WEIGHT[name]) for name, ratio in _ratios(row, said).items()]


def fit(rows: Sequence[Row], start: Mapping[str, float] | None = None, rounds: int = ROUNDS) -> Constants:
    """Return the constants fitted to these rows. `start` holds the initial logarithms of constants. `rounds` is the
    largest number of iterations.
    """
    return _fitted(rows, priors(rows), start or {}, rounds)


def _fitted(
    rows: Sequence[Row], prior: Mapping[str, tuple[float, float, set[int]]], start: Mapping[str, float], rounds: int
) -> Constants:
    names = list(prior)
    at = {name: start.get(name, prior[name][0]) for name in names}
    found = _all(rows, at)
    best, damping = _cost(found, at, prior), 1e-3
    for _ in range(rounds):
        normal = _normal(rows, at, found, prior)
        while True:
            step = _solve(*normal, damping)
            tried = {name: at[name] + max(-0.5, min(0.5, by)) for name, by in zip(names, step, strict=True)}
            now = _all(rows, tried)
            cost = _cost(now, tried, prior)
            if cost < best or damping > 1e3:
                break
            damping *= 4
        if cost >= best:
            break
        gain, best, at, found = best - cost, cost, tried, now
        damping = max(1e-6, damping / 4)
        if gain < 1e-3 * best:
            break
    return Constants(at)


def learn(rows: Sequence[Row], known: Constants) -> Constants:
    """Return the constants `known`, adapted to additional rows, such as those of the user's own cluster. The standard
    deviations of the priors are half of those of a full fit.
    """
    prior = {name: (known.logs.get(name, mean), spread / 2, of) for name, (mean, spread, of) in priors(rows).items()}
    return Constants({**known.logs, **_fitted(rows, prior, {}, ROUNDS).logs})


def _all(rows: Sequence[Row], at: Mapping[str, float]) -> list[Errors]:
    c = Constants(at)
    return [residuals(row, c) for row in rows]


def _cost(found: Sequence[Errors], at: Mapping[str, float], prior: Mapping[str, tuple[float, float, set[int]]]) -> float:
    errors = sum(weight * _bent(error) for each in found for error, weight in each)
    return errors + sum((NOISE * (at[name] - mean) / spread) ** 2 for name, (mean, spread, _) in prior.items())


def _bent(error: float) -> float:
    size = abs(error)
    return size * size if size <= BEND else 2 * BEND * size - BEND * BEND


def _normal(
    rows: Sequence[Row], at: Mapping[str, float], found: Sequence[Errors], prior: Mapping[str, tuple[float, float, set[int]]]
) -> tuple[list[list[float]], list[float]]:
    """Return the matrix and the right side of the normal equations for one step of the fit. They are computed from the
    derivatives of each row's errors with respect to the constants on which the row depends.
    """
    names = list(prior)
    slopes: list[dict[int, list[float]]] = [{} for _ in rows]
    for column, name in enumerate(names):
        c = Constants({**at, name: at[name] + STEP})
        for number in prior[name][2]:
            moved = residuals(rows[number], c)
            slopes[number][column] = [(a[0] - b[0]) / STEP for a, b in zip(moved, found[number], strict=True)]
    matrix = [[0.0] * len(names) for _ in names]
    right = [0.0] * len(names)
    for number, errors in enumerate(found):
        for which, (error, weight) in enumerate(errors):
            bent = weight * min(1.0, BEND / abs(error)) if error else weight
            row = [(column, slope[which]) for column, slope in slopes[number].items() if slope[which]]
            for i, x in row:
                right[i] -= bent * x * error
                line, times = matrix[i], bent * x
                for j, y in row:
                    line[j] += times * y
    for i, (name, (mean, spread, _)) in enumerate(prior.items()):
        matrix[i][i] += (NOISE / spread) ** 2
        right[i] -= (NOISE / spread) ** 2 * (at[name] - mean)
    return matrix, right


def _solve(matrix: list[list[float]], right: list[float], damping: float) -> list[float]:
    """Return the step that solves the normal equations, by elimination. No pivoting is needed, because the matrix is
    symmetric and positive definite; only its upper triangle is used.
    """
    n = len(right)
    lines = [[*row[i:], value] for i, (row, value) in enumerate(zip(matrix, right, strict=True))]
    for i, top in enumerate(lines):
        top[0] += damping
        for below in range(1, n - i):
            times = top[below] / top[0]
            if times:
                lines[i + below] = [x - times * y for x, y in zip(lines[i + below], top[below:], strict=True)]
    out: list[float] = []  # back substitution, from the last unknown to the first
    for *factors, value in reversed(lines):
        known = sum(x * y for x, y in zip(factors[1:], reversed(out), strict=True))
        out.append((value - known) / factors[0])
    return out[::-1]


def _ratios(row: Row, said: Prediction) -> dict[str, float]:
    guessed, seen = figures(row, said)
    return {name: guessed[name] / value for name, value in seen.items() if name in guessed}


def _left_out(row: Row, what: str) -> str:
    family = row.place.shape.facts.model_type or ""
    return {DEPLOYMENT: row.group, GPU: row.place.gpu.name, ENGINE: row.place.engine, MODEL: family}[what]


def held_out(rows: Sequence[Row], whole: Constants, what: str, only: str = "") -> dict[str, Prediction]:
    """Predict each row with constants fitted without the rows of its own group, and return the predictions by id of the
    row.

    A group consists of the rows with the same `what`: a deployment, a GPU, an engine or a model family. With `only`, predict
    only the rows of this group. `whole` holds the constants fitted to all rows, from which each fit starts. Rows that cannot
    be predicted are left out.
    """
    out = {}
    for group in [only] if only else dict.fromkeys(_left_out(row, what) for row in rows):
        kept = [row for row in rows if _left_out(row, what) != group]
        c = fit(kept, whole.logs)
        for row in (row for row in rows if _left_out(row, what) == group):
            try:
                out[row.id] = predict(row, c)
            except PlanRefused:
                continue
    return out


def main() -> None:
    """Fit the constants, cross-validate them, and write both results into data/."""
    rows = shipped()
    whole = fit(rows)
    head = (
        "# Written by `python -m ome_operator.sizing.fit` from calibration.csv: logarithms of factors of the terms "
        "in steps.py and queueing.py.\n"
        "# A name is a term, or its deviation for an engine, GPU, precision or layout. docs/sizing.md describes "
        "the terms.\n"
    )
    text = yaml.safe_dump({"constants": {name: round(value, 4) for name, value in sorted(whole.logs.items())}})
    (DATA / "fitted.yaml").write_text(head + text, encoding="utf-8")
    lines = ["id,left_out," + ",".join(FIGURES)]
    for what in (DEPLOYMENT, GPU, ENGINE, MODEL):
        lines += lines_of(rows, whole, what)
    (DATA / "crossvalidated.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def lines_of(rows: Sequence[Row], whole: Constants, what: str) -> list[str]:
    """Return the lines of crossvalidated.csv for the groups of kind `what`. A model family with at least half of all rows
    is not left out of a fit, because too few rows would remain.
    """
    few = {_left_out(row, what) for row in rows if _count(rows, row, what) < len(rows) / 2}
    out = []
    for group in sorted(few) if what == MODEL else [""]:
        said = held_out(rows, whole, what, group)
        for row in (row for row in rows if row.id in said):
            ratios = _ratios(row, said[row.id])
            out.append(",".join([row.id, what, *(f"{ratios[name]:.4f}" if name in ratios else "" for name in FIGURES)]))
    return out


def _count(rows: Sequence[Row], mine: Row, what: str) -> int:
    return sum(_left_out(row, what) == _left_out(mine, what) for row in rows)


if __name__ == "__main__":
    main()
