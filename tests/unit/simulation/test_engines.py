"""Tests that simulated engines have the service times of the calibration's rows and of the planner."""

import pytest

from ome_operator.simulation import engines
from ome_operator.sizing import steps
from ome_operator.sizing.calibration import Row, shipped
from ome_operator.sizing.constants import shipped_constants
from ome_operator.sizing.error_bars import trust
from ome_operator.sizing.queueing import Load

PREFIX = "dsr1_b200_sglang_fp8_disagg_8192x1024_"
ROWS = {row.id.removeprefix(PREFIX): row for row in shipped() if row.id.startswith(PREFIX)}
LENGTH = 0.9 * 8192


def _decode(row: Row) -> tuple[float, float]:
    assert row.decode is not None and row.tpot is not None and row.written is not None
    return row.written * row.decode.worker.gpus * row.tpot, row.tpot


@pytest.mark.parametrize(
    ("name", "point"),
    list(zip(("c288_cfg649", "c160_cfg641", "c288_cfg641", "c512_cfg654", "c1024_cfg655"), engines.DECODE, strict=True)),
)
def test_simulated_decode_step_equals_the_measured_one(name: str, point: tuple[float, float]) -> None:
    batch, seconds = _decode(ROWS[name])
    assert batch == pytest.approx(point[0], rel=0.01) and seconds == pytest.approx(point[1])


def test_simulated_prefill_equals_the_measured_time_at_its_length() -> None:
    row = ROWS["c64_cfg453"]
    assert row.prefill is not None and row.read is not None
    assert engines.prefill_seconds(LENGTH) == pytest.approx(LENGTH / (row.read * row.prefill.worker.gpus), rel=0.01)


EARLIER = 0.15
"""Largest difference between the times of the present planner and those of the fit that docs/demand.md uses."""


def test_prefill_times_of_other_lengths_follow_the_planner() -> None:
    row = ROWS["c64_cfg453"]
    assert row.prefill is not None

    def planned(length: float) -> float:
        assert row.prefill is not None
        return steps.prefill(row.place, row.prefill.worker, length, length, shipped_constants())

    for length, seconds in engines.PREFILL:
        ratio = planned(length) / planned(LENGTH)
        assert seconds == pytest.approx(engines.prefill_seconds(LENGTH) * ratio, rel=EARLIER), length
    assert engines.PLANNED.work is not None
    for tokens in (100.0, LENGTH):
        slower = 1 + _error(row, "tokens")
        assert engines.PLANNED.work.seconds(1, tokens) == pytest.approx(slower * planned(tokens), rel=EARLIER)


def test_planned_decode_curve_is_close_to_that_of_the_planner() -> None:
    row = ROWS["c1024_cfg655"]
    assert row.decode is not None
    step = steps.decoder(row.place, row.decode.worker, 8500, shipped_constants())
    for batch, seconds in engines.PLANNED.curve:
        assert seconds == pytest.approx(step(batch) / (1 - _error(row, "tpot")), rel=EARLIER)


def _error(row: Row, figure: str) -> float:
    """Return the error that nine of ten similar rows do not exceed in a figure."""
    return trust(row.place, row.prefill, row.decode, Load(8000, 1000)).error_bars[figure].ninth


def test_measured_service_uses_the_time_of_the_calibration_row() -> None:
    known = engines.MEASURED
    assert known.work is not None
    assert known.scale * known.work.seconds(1, LENGTH) == pytest.approx(engines.prefill_seconds(LENGTH), rel=0.01)
