"""Adapt the shipped constants to additional rows, such as those of the user's own cluster.

The method is Gauss-Newton least squares on the logarithms of predicted / measured, with numerical derivatives, as in `fit`,
but without arrays: a user's file has few rows, and the operator does not depend on numpy. A prior pulls each constant
towards its shipped value.
"""

import math
from collections.abc import Mapping, Sequence

from ome_operator.sizing import priors
from ome_operator.sizing.calibration import Row
from ome_operator.sizing.constants import Constants
from ome_operator.sizing.errors import PlanRefused
from ome_operator.sizing.predict import predict
from ome_operator.sizing.priors import ConstantPrior
from ome_operator.sizing.validate import compare_figures

BEND = 0.15
"""Size of a logarithmic error up to which the error is weighted by its square. A larger error is weighted linearly."""
NOISE = 0.06
"""Typical logarithmic error of a row without outliers. It scales the weight of the priors."""
STEP = 1e-4
ROUNDS = 15
WEIGHT = {"tpot": 1.0, "ttft": 0.3, "tokens": 1.0}
"""Weight of the error of each figure. The weight of TTFT is lower, because TTFT includes waiting times that the file does
not explain."""
Errors = list[tuple[float, float]]
"""Pairs of two numbers: the logarithm of predicted / measured of a figure, and the weight of this error."""


def adapt_constants(rows: Sequence[Row], known: Constants) -> Constants:
    """Return the constants `known`, adapted to additional rows. The standard deviations of the priors are half as large as
    in a full fit.
    """
    prior: dict[str, ConstantPrior] = {}
    users: dict[str, set[int]] = {}
    for number, row in enumerate(rows):
        for name in sorted(priors.constants(row)):
            mean, spread = priors.prior_of(name)
            prior[name] = ConstantPrior(known.logs.get(name, mean), spread / 2)
            users.setdefault(name, set()).add(number)
    return Constants({**known.logs, **_fitted(rows, prior, users)})


def residuals(row: Row, c: Constants) -> Errors:
    """Return the logarithmic errors of the figures that a row has; empty if the row cannot be predicted."""
    try:
        guessed, seen = compare_figures(row, predict(row, c))
    except PlanRefused:
        return []
    return [(math.log(guessed[name] / value), WEIGHT[name]) for name, value in seen.items() if name in guessed]


def _fitted(rows: Sequence[Row], prior: Mapping[str, ConstantPrior], users: Mapping[str, set[int]]) -> dict[str, float]:
    names = list(prior)
    at = {name: prior[name].mean for name in names}
    found = _all(rows, at)
    best, damping = _cost(found, at, prior), 1e-3
    for _ in range(ROUNDS):
        normal = _normal(rows, at, found, prior, users)
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
    return at


def _all(rows: Sequence[Row], at: Mapping[str, float]) -> list[Errors]:
    c = Constants(at)
    return [residuals(row, c) for row in rows]


def _cost(found: Sequence[Errors], at: Mapping[str, float], prior: Mapping[str, ConstantPrior]) -> float:
    errors = sum(weight * _bent(error) for each in found for error, weight in each)
    return errors + sum((NOISE * (at[name] - mean) / spread) ** 2 for name, (mean, spread) in prior.items())


def _bent(error: float) -> float:
    size = abs(error)
    return size * size if size <= BEND else 2 * BEND * size - BEND * BEND


def _normal(
    rows: Sequence[Row],
    at: Mapping[str, float],
    found: Sequence[Errors],
    prior: Mapping[str, ConstantPrior],
    users: Mapping[str, set[int]],
) -> tuple[list[list[float]], list[float]]:
    """Return the matrix and the right side of the normal equations for one step of the fit. `at` maps the constants to their
    current logarithms, `found` contains the errors of each row with them, and `users` maps each constant to the indexes of
    the rows whose predictions depend on it.
    """
    names = list(prior)
    slopes: list[dict[int, list[float]]] = [{} for _ in rows]
    for column, name in enumerate(names):
        c = Constants({**at, name: at[name] + STEP})
        for number in users[name]:
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
    for i, (name, (mean, spread)) in enumerate(prior.items()):
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
