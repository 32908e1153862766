"""Tests of the time between tokens as a function of the number of requests in a decode group."""

import pytest

from ome_operator.core.demand.curves import batch_within, extend_curve, make_monotonic, seconds_at, shown_rate
from ome_operator.core.demand.facts import FULL

CURVE = ((10.0, 0.02), (100.0, 0.04), (200.0, 0.08))


def test_noise_never_makes_a_larger_batch_faster() -> None:
    assert make_monotonic(((10.0, 0.03), (20.0, 0.02), (40.0, 0.05))) == ((10.0, 0.03), (20.0, 0.03), (40.0, 0.05))


@pytest.mark.parametrize(
    ("target", "batch"), [(0.03, 55.0), (0.04, 100.0), (0.06, 150.0), (0.12, 300.0), (0.018, 1.0), (0.01, 0.0)]
)
def test_the_batch_is_read_from_the_curve(target: float, batch: float) -> None:
    assert batch_within(CURVE, target) == pytest.approx(batch)


@pytest.mark.parametrize(("target", "batch"), [(0.02, 5.0), (0.04, 10.0), (0.08, 20.0)])
def test_time_between_tokens_is_proportional_with_a_single_measured_point(target: float, batch: float) -> None:
    assert batch_within(((10.0, 0.04),), target) == pytest.approx(batch)


def test_curve_is_not_extrapolated_from_two_close_points() -> None:
    """A line is not extrapolated from two neighboring points with noise. The points are 10 requests at 20 ms and 10.1
    requests at 21 ms; the line through them would reach 50 ms at 13 requests.
    """
    assert batch_within(((10.0, 0.020), (10.1, 0.021)), 0.05) == pytest.approx(10.1 * 0.05 / 0.021)
    assert batch_within(((10.0, 0.060), (10.1, 0.066)), 0.05) == pytest.approx(10.0 * 0.05 / 0.06)


def test_curve_is_extrapolated_through_distant_points() -> None:
    """The line beyond the measured loads does not go through two neighboring points if there is a point farther away. The
    measured curve comes from a simulation. With the line through its last two points, 50 ms would be reached at 544
    requests, and the true number is 730.
    """
    measured = ((136.0, 0.0293), (357.0, 0.0369), (367.0, 0.0376))
    slope = (0.0376 - 0.0293) / (367 - 136)
    assert batch_within(measured, 0.05) == pytest.approx(367 + 0.0124 / slope, rel=1e-6)
    below = ((100.0, 0.060), (102.0, 0.0601), (200.0, 0.070))
    assert batch_within(below, 0.055) == pytest.approx(100 - 0.005 / 0.0001)


def test_curve_of_two_equal_times_is_extrapolated_with_a_slope() -> None:
    assert batch_within(((10.0, 0.02), (20.0, 0.02)), 0.04) == pytest.approx(20 + 0.02 / (0.02 / 20 / 4))
    assert batch_within(((10.0, 0.06), (20.0, 0.06)), 0.05) == 0.0


def test_shown_rate_counts_only_points_well_below_the_target() -> None:
    assert shown_rate(CURVE, 0.05) == pytest.approx(2500)
    assert shown_rate(CURVE, 0.041) == pytest.approx(500)
    assert shown_rate(CURVE, 0.02) == shown_rate((), 0.05) == 0.0


@pytest.mark.parametrize(("batch", "seconds"), [(1.0, 0.02), (55.0, 0.03), (100.0, 0.04), (300.0, 0.12)])
def test_a_time_is_read_from_the_curve(batch: float, seconds: float) -> None:
    assert seconds_at(CURVE, batch) == pytest.approx(seconds)


def test_planned_curve_is_scaled_to_extend_the_measured_points() -> None:
    planned = ((1.0, 0.01), (10.0, 0.02), (100.0, 0.04), (1000.0, 0.2))
    assert extend_curve((), planned) == planned and extend_curve(CURVE, ()) == CURVE
    found = extend_curve(((10.0, 0.03), (100.0, 0.05)), planned)
    assert found == ((1.0, pytest.approx(0.015)), (10.0, 0.03), (100.0, 0.05), (1000.0, pytest.approx(0.25)))


def test_full_kv_cache_limits_requests_without_changing_the_curve() -> None:
    """The number of requests that fit into the KV cache limits a group, but does not change the shape of the curve. The
    predicted curve ends at 100 requests, with which the cache is full. A group that was measured with more requests has more
    memory than predicted.
    """
    planned = ((1.0, 0.01), (10.0, 0.02), (50.0, 0.03), (100.0, 0.04), (101.0, FULL))
    beyond = extend_curve(((100.5, 0.05), (150.0, 0.06)), planned)
    assert [x for x, _ in beyond] == [1.0, 10.0, 50.0, 100.5, 150.0]
    assert [y for _, y in beyond] == pytest.approx([0.0125, 0.025, 0.0375, 0.05, 0.06], rel=0.01)
    assert extend_curve(((1000.0, 0.05),), planned)[0][1] > 0.001, "a ratio to predicted times, and not to the limit"
    below = extend_curve(((40.0, 0.03),), planned)
    assert below[-2:] == ((100.0, pytest.approx(0.03 / 0.0275 * 0.04)), (101.0, FULL))
    assert 100 < batch_within(below, 0.1) < 101
    near = extend_curve(((90.0, 0.05),), planned)
    assert near[-2:] == ((100.0, pytest.approx(0.05 / 0.038 * 0.04)), (101.0, FULL))
    assert 99 < batch_within(near, 0.0526) < 101
    assert extend_curve(((99.9, 0.05),), ((101.0, FULL),)) == ((99.9, 0.05),)
    assert extend_curve((), planned) == planned
