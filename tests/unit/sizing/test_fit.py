"""Tests of the fit with arrays: it has the same predictions as the planner, and rows that a fit leaves out do not influence
it.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from ome_operator.sizing import priors
from ome_operator.sizing.calibration import Row
from ome_operator.sizing.constants import Constants, shipped_constants
from ome_operator.sizing.error_bars import DEPLOYMENT, FIGURES, GPU, held_out_predictions
from ome_operator.sizing.fit import fit_constants, held_out, left_out, predictable_rows
from ome_operator.sizing.predict import predict
from ome_operator.sizing.row_arrays import Rows
from ome_operator.sizing.validate import compare_figures
from tests.conftest import SOAK
from tests.gpu.measured import measured

FEW = [row for row in predictable_rows() if row.place.engine == "sglang" and row.place.gpu.name == "h200"]


@pytest.mark.parametrize("shift", [0.0, -0.4, 0.7])
def test_array_predictions_equal_those_of_the_planner(shift: float) -> None:
    """The prediction with arrays equals that of the planner. The test compares every figure of every tenth row, with the
    shipped constants and with others.
    """
    rows = predictable_rows()[::10]
    constants = {name: value + shift for name, value in shipped_constants().logs.items()}
    for row, ratios in zip(rows, Rows(rows).ratios(constants), strict=True):
        guessed, seen = compare_figures(row, predict(row, Constants(constants)))
        own = {name: ratio for name, ratio in zip(FIGURES, ratios, strict=True) if not math.isnan(ratio)}
        assert own == pytest.approx({name: guessed[name] / seen[name] for name in seen if name in guessed}, rel=1e-4)


def test_fit_reduces_the_prediction_errors() -> None:
    problem = Rows(FEW)
    start = problem.ratios({name: priors.prior_of(name).mean for name in problem.names})
    end = problem.ratios(fit_constants(FEW))
    assert np.nanmean(abs(end[:, 1] - 1)) < 0.5 * np.nanmean(abs(start[:, 1] - 1))


def test_rows_left_out_do_not_influence_the_fit() -> None:
    """Rows that a fit leaves out do not influence the fit: if the figures of these rows are made ten times as large, fits
    without them give the same predictions.
    """
    seen: list[set[str]] = []

    def spy(rows: Sequence[Row]) -> Mapping[str, float]:
        seen.append({row.id for row in rows})
        return {}

    for kind in (DEPLOYMENT, GPU):
        seen.clear()
        rows = predictable_rows()
        for row, _ in held_out(rows, kind, spy):
            assert row.id not in seen[-1]
            left = {left_out(each, kind) for each in rows if each.id not in seen[-1]}
            assert left_out(row, kind) in left
        assert all(kept for kept in seen)


def test_repeated_runs_belong_to_the_same_deployment() -> None:
    """Runs of different versions and dates with equal layouts belong to the same deployment, so they are left
    out together.
    """
    same = [row for row in predictable_rows() if "minimax_m2_5_b200_sxm_vllm_fp8_agg_8192x1024_c64_tp2" in row.id]
    assert len({row.id for row in same}) > 1 and len({row.group for row in same}) == 1


def test_measured_factors_equal_the_kernel_measurements() -> None:
    assert dict(measured()) == pytest.approx(dict(priors.MEASURED), rel=0.04)


@pytest.mark.skipif(not SOAK, reason="a minute: set OME_SOAK=1")
def test_shipped_cross_validation_is_reproducible() -> None:
    shipped = {each.id: each.ratios for each in held_out_predictions() if each.left_out == DEPLOYMENT}
    for row, ratios in held_out(predictable_rows(), DEPLOYMENT):
        for name, ratio in ratios.items():
            assert ratio == pytest.approx(shipped[row.id][name], rel=0.05)
