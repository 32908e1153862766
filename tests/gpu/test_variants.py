"""The fit with arrays of tests/gpu/variants.py predicts and fits what the planner does."""

import importlib.util
import math

import pytest

if importlib.util.find_spec("numpy") is None:
    pytest.skip("needs numpy", allow_module_level=True)

import numpy as np

from ome_operator.sizing.constants import fitted
from ome_operator.sizing.predict import predict
from ome_operator.sizing.validate import figures
from tests.gpu import tables
from tests.gpu.variant_fit import FIGURES, VARIANTS, Problem, Variant, answered, measured
from tests.gpu.variants import PUBLISHED, published, rows_of_table

PRESENT = VARIANTS[0]


def test_each_row_is_predicted_as_by_the_planner() -> None:
    """With the planner's constants, the result is equal for every row and figure."""
    rows = answered()
    for row, ratios in zip(rows, Problem(rows, PRESENT).ratios(fitted().logs), strict=True):
        guessed, seen = figures(row, predict(row, fitted()))
        own = {name: ratio for name, ratio in zip(FIGURES, ratios, strict=True) if not math.isnan(ratio)}
        assert own == pytest.approx({name: guessed[name] / seen[name] for name in seen if name in guessed}, rel=1e-6)


def test_the_fit_costs_no_more_than_the_planner_s() -> None:
    """The fit minimizes the same cost as the planner's, from another start and with more iterations."""
    problem = Problem(answered(), PRESENT)

    def cost(constants: dict[str, float]) -> float:
        at = np.array([constants[name] for name in problem.prior])
        return problem.cost(problem.errors(problem.logs(at)), at)

    assert cost(problem.fitted()) <= cost(fitted().logs) * 1.0001


def test_a_bounded_term_is_never_faster_than_the_peak() -> None:
    """Without the time for messages, layers and requests, a step is never faster than the rates of the data sheet permit."""
    rows = [row for row in answered() if row.place.gpu.family == "hopper" and row.prefill is None]
    fast = dict.fromkeys(Problem(rows, PRESENT).prior, -5.0)
    free, bound = (Problem(rows, variant).ratios(fast) for variant in (PRESENT, Variant("bound", bound=True)))
    assert (bound[:, FIGURES.index("tokens")] < free[:, FIGURES.index("tokens")] / 10).all()


def test_copies_cost_time() -> None:
    """Redundant experts make a decode step with whole experts longer, and no other row."""
    rows = answered()
    free, copies = (Problem(rows, variant).ratios(fitted().logs) for variant in (PRESENT, Variant("copies", copies=True)))
    for row, before, after in zip(rows, free[:, 2], copies[:, 2], strict=True):
        wide = row.decode is not None and row.decode.worker.kind == "dep"
        assert after < before if wide and row.prefill is None else after <= before * 1.0001
        if not wide:
            assert after == before


def test_the_measured_factors_are_those_of_kernels() -> None:
    """The factors are those that docs/sizing.md states. On average, no kernel was faster than the data sheet."""
    factors = {name: round(factor, 2) for name, factor in measured().items()}
    assert factors == {
        "decode.weights": 1.72,
        "decode.matrices": 1.72,
        "decode.cache": 1.21,
        "decode.attention": 1.21,
        "prefill.matrices": 1.71,
        "prefill.attention": 1.70,
    }
    page = (tables.DOCS / "sizing.md").read_text()
    assert all(f"{factor:.2f} for " in page for factor in factors.values())


def test_the_page_has_a_row_for_every_variant() -> None:
    """The rows are in this order. If the test fails, run `python -m tests.gpu.variants`."""
    page = (tables.DOCS / "sizing.md").read_text()
    table = page.split("<!-- fit variants -->\n")[1].split("<!-- end of fit variants -->")[0].splitlines()
    assert [line.split(" | ")[0].removeprefix("| ") for line in table[2:]] == [PUBLISHED, *(each.title for each in VARIANTS)]
    same = list(rows_of_table({PUBLISHED: published(), "present": published()}, "present"))
    assert [same[0], same[2]] == [table[0], table[2]], "the published errors are those of crossvalidated.csv"
