"""Fit the constants of the model: `python -m ome_operator.sizing.fit` reads data/calibration.csv and writes
data/fitted.yaml and data/crossvalidated.csv. It needs numpy and takes minutes.

The method is Gauss-Newton least squares on the logarithms of predicted / measured, with numerical derivatives. A prior pulls
each constant towards its expected value. An error above `BEND` is weighted linearly instead of squared, because some runs
include waiting times that the file does not explain. Every fit starts at the priors, so a fit without some rows knows
nothing of these rows.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # several threads add up in another order, and the iterations end elsewhere

import numpy as np
import yaml

from ome_operator.sizing import priors
from ome_operator.sizing.calibration import Row, shipped
from ome_operator.sizing.error_bars import DEPLOYMENT, ENGINE, FIGURES, GPU, KINDS, MODEL
from ome_operator.sizing.learn import BEND, NOISE, STEP, WEIGHT
from ome_operator.sizing.row_arrays import Array, Rows

DATA = Path(__file__).parent / "data"
ROUNDS, ENOUGH = 40, 2e-4
"""Maximum number of iterations of a fit, and a fraction of the cost: the fit ends when an iteration reduces the cost by
less than this fraction."""
FOLDS = 12
"""Number of parts into which cross-validation divides the deployments. Each fit leaves out all deployments of a part."""
_WEIGHTS = np.array([WEIGHT[name] for name in FIGURES])


def fit_constants(rows: Sequence[Row]) -> dict[str, float]:
    """Return the logarithm of each constant by name, fitted to the rows by damped Gauss-Newton steps."""
    problem = Rows(rows)
    mean, spread = np.array([priors.prior_of(name) for name in problem.names]).T
    at = mean
    errors = problem.errors(problem.logs(at))
    best, damping = _cost(errors, at, mean, spread), 1e-3
    for _ in range(ROUNDS):
        matrix, right = _normal(problem, at, errors, mean, spread)
        while True:
            step = np.linalg.solve(matrix + damping * np.diag(np.diag(matrix)), right)
            tried = at + np.clip(step, -0.5, 0.5)
            moved = problem.errors(problem.logs(tried))
            cost = _cost(moved, tried, mean, spread)
            if cost < best or damping > 1e3:
                break
            damping *= 4
        if not cost < best:
            break
        gain, best, at, errors = best - cost, cost, tried, moved
        damping = max(1e-6, damping / 4)
        if gain < ENOUGH * best:
            break
    return dict(zip(problem.names, at.tolist(), strict=True))


def _cost(errors: Array, constants: Array, mean: Array, spread: Array) -> float:
    size = np.abs(errors)
    bent = np.where(size <= BEND, size**2, 2 * BEND * size - BEND**2)
    return float(np.nansum(_WEIGHTS * bent) + ((NOISE * (constants - mean) / spread) ** 2).sum())


def _normal(problem: Rows, at: Array, errors: Array, mean: Array, spread: Array) -> tuple[Array, Array]:
    """Return the matrix and the right side of the normal equations for one step of the fit. `at` contains the current
    logarithms of the constants, `errors` the errors of the predictions with them, and `mean` and `spread` the priors of the
    constants.
    """
    logs = problem.logs(at)
    by_factor = np.zeros((problem.factors, *errors.shape))
    for factor in range(problem.factors):
        moved = logs.copy()
        moved[:, factor] += STEP
        by_factor[factor] = np.nan_to_num((problem.errors(moved) - errors) / STEP)
    row, factors, constant = problem.places
    slopes = np.zeros((len(errors), len(at), len(FIGURES)))
    np.add.at(slopes, (row, constant), by_factor[factors, row])
    present = ~np.isnan(errors)
    with np.errstate(divide="ignore"):
        bent = (_WEIGHTS * np.minimum(1.0, BEND / np.abs(errors)))[present]
    slope = slopes.transpose(0, 2, 1)[present]
    strength = (NOISE / spread) ** 2
    matrix = slope.T @ (bent[:, None] * slope) + np.diag(strength)
    return matrix, -slope.T @ (bent * errors[present]) - strength * (at - mean)


def left_out(row: Row, grouping: str) -> str:
    """Return the group of a row, by the kind of grouping (`grouping`): its deployment, its GPU, its engine or its model
    family.
    """
    family = row.place.shape.facts.model_type or ""
    return {DEPLOYMENT: row.group, GPU: row.place.gpu.name, ENGINE: row.place.engine, MODEL: family}[grouping]


def parts(rows: Sequence[Row], grouping: str) -> list[set[str]]:
    """Return the sets of groups that are left out together: FOLDS sets of deployments, or a set for each group of the other
    kinds. `grouping` is DEPLOYMENT, GPU, ENGINE or MODEL.
    """
    groups = list(dict.fromkeys(left_out(row, grouping) for row in rows))
    return [set(groups[part::FOLDS]) for part in range(FOLDS)] if grouping == DEPLOYMENT else [{group} for group in groups]


def held_out(
    rows: Sequence[Row], grouping: str, fitted: Callable[[Sequence[Row]], Mapping[str, float]] = fit_constants
) -> Iterator[tuple[Row, dict[str, float]]]:
    """Yield each row with the ratio predicted / measured of each of its figures. The predictions use constants that were
    fitted without the rows of its part (see `parts`). `fitted` is the function that fits constants to rows.
    """
    for part in parts(rows, grouping):
        test = [row for row in rows if left_out(row, grouping) in part]
        constants = fitted([row for row in rows if left_out(row, grouping) not in part])
        for row, ratios in zip(test, Rows(test).ratios(constants).tolist(), strict=True):
            yield row, {name: ratio for name, ratio in zip(FIGURES, ratios, strict=True) if not math.isnan(ratio)}


def predictable_rows() -> list[Row]:
    """Return the rows of the shipped calibration that can be predicted."""
    return [row for row in shipped() if row.prefill is not None or row.concurrency is not None]


def main() -> None:
    """Fit the constants, cross-validate them, and write both results into data/."""
    rows = predictable_rows()
    head = (
        "# Written by `python -m ome_operator.sizing.fit` from calibration.csv: logarithms of factors of the terms "
        "in steps.py and queueing.py.\n"
        "# A name is a term, or its deviation for an engine, GPU family, precision or layout. docs/sizing.md describes "
        "the terms.\n"
    )
    text = yaml.safe_dump({"constants": {name: round(value, 4) for name, value in sorted(fit_constants(rows).items())}})
    (DATA / "fitted.yaml").write_text(head + text, encoding="utf-8")
    found: dict[str, list[str]] = {row.id: [row.id] for row in rows}
    for what in KINDS:
        for row, ratios in held_out(rows, what):
            found[row.id] += [f"{ratios[name]:.4f}" if name in ratios else "" for name in FIGURES]
    head = ",".join(["id", *(f"{what}_{name}" for what in KINDS for name in FIGURES)])
    lines = [head, *(",".join(cells) for cells in found.values())]
    (DATA / "crossvalidated.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
