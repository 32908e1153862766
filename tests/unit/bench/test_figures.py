"""Tests of medians, percentiles, and values that are read from /proc."""

import pytest

from bench.figures import median, percentile
from bench.processes import cpu_seconds, peak_mib


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([3.0, 1.0, 2.0], 50, 2.0), ([1.0, 2.0], 50, 1.5), ([1.0], 99, 1.0), ([0.0, 10.0], 100, 10.0), ([0.0, 10.0], 99, 9.9)],
)
def test_percentile_interpolates_between_values(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == pytest.approx(expected)


def test_median_of_no_values_raises_value_error() -> None:
    with pytest.raises(ValueError, match="no values"):
        median([])


def test_cpu_time_is_parsed_for_any_program_name() -> None:
    stat = "12 (a b) c) S 1 1 1 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 1 0 100 0 0"
    assert cpu_seconds(stat, 100) == pytest.approx(3.0)


def test_peak_memory_is_read_from_proc_status() -> None:
    assert peak_mib("Name:\tx\nVmHWM:\t  2048 kB\n") == 2.0
    assert peak_mib("Name:\tx\n") == 0.0
