"""Tests of the rate of arrivals, its trend and its steps, and of the age of the oldest waiting request."""

import random
from collections.abc import Callable

import pytest

from ome_operator.core.demand.arrivals import forecast, oldest_wait
from ome_operator.core.demand.facts import DemandSample


def seen(rate: Callable[[float], float], end: float = 600.0, noise: int | None = None) -> list[DemandSample]:
    """Return a sample for each 10 s, with the mean of `rate` over the minute before. `noise` is the seed of the random
    noise.
    """
    rng = random.Random(noise)
    bins = []
    for number in range(int(end / 10) + 12):
        mean = 10 * rate(10 * number - 120.0)
        bins.append(mean if noise is None else max(0.0, rng.gauss(mean, mean**0.5)))
    return [DemandSample(10.0 * n - 120 + 60, sum(bins[n : n + 6]) / 60, waiting=0) for n in range(len(bins) - 5)]


def test_a_constant_load_is_steady() -> None:
    found = forecast(seen(lambda _: 10.0), 100.0)
    assert found is not None
    assert (found.kind, round(found.now, 6), round(found.ahead, 6)) == ("steady", 10.0, 10.0)


@pytest.mark.parametrize("pause", [10.0, 10.9, 13.4, 17.0, 20.0])
def test_forecast_is_correct_for_any_distance_between_samples(pause: float) -> None:
    """The forecast is right for any distance between samples. The distance is the time of a round of decisions plus the
    pause after it, so it varies.
    """
    samples = [DemandSample(pause * number, 10.0, waiting=0) for number in range(round(600 / pause))]
    found = forecast(samples, 100.0)
    assert found is not None and (found.now, found.kind) == (pytest.approx(10.0), "steady")
    begin = samples[-1].at - 30
    samples = [one._replace(arrivals=10 + 30 * max(0.0, one.at - begin) / 60) for one in samples]
    found = forecast(samples, 100.0)
    assert found is not None and found.kind == "step" and found.now == pytest.approx(40.0)


def test_first_sample_is_not_used_for_an_earlier_window() -> None:
    """With samples from 8 s to 120 s there is only one window before the newest one. If the first sample also stood for the
    window that ended at 0 s, random arrivals would look like a trend.
    """
    samples = [DemandSample(float(at), 4.0 if at < 60 else 5.5, waiting=0) for at in (*range(8, 120, 10), 120)]
    found = forecast(samples, 100.0)
    assert found is not None and found.kind == "steady"
    assert found == forecast([one for one in samples if one.at >= 58], 100.0)


def test_a_slope_is_continued_to_the_end_of_the_horizon() -> None:
    found = forecast(seen(lambda at: 5 + at / 60), 120.0)
    assert found is not None and found.kind == "trend"
    assert abs(found.now - 15) < 0.5 and abs(found.ahead - found.now - 2.0) < 0.1


def test_trend_is_extrapolated_at_most_as_long_as_it_was_observed() -> None:
    found = forecast(seen(lambda at: 5 + at / 60), 3600.0)
    assert found is not None and found.kind == "trend"
    assert abs(found.ahead - found.now - 5.0) < 0.2, "five windows of a minute"


def test_rate_of_a_single_window_is_estimated_low() -> None:
    """After a restart, the rate is estimated below the measured one. The operator then knows the arrivals of a single
    minute, which may be many by chance.
    """
    found = forecast([DemandSample(600.0, 4.7, waiting=0)], 100.0)
    assert found is not None and found.kind == "steady"
    assert found.now == found.ahead == pytest.approx(4.7 - 2 * (4.7 / 60) ** 0.5)


def test_a_step_is_seen_within_twenty_seconds() -> None:
    found = forecast(seen(lambda at: 2.0 if at < 580 else 10.0), 120.0)
    assert found is not None and found.kind == "step"
    assert abs(found.now - 10) < 0.5


def test_random_arrivals_at_constant_load_rarely_count_as_a_change() -> None:
    kinds = [forecast(seen(lambda _: 10.0, noise=seed), 100.0) for seed in range(300)]
    assert sum(found is not None and found.kind != "steady" for found in kinds) <= 3


def test_the_rate_is_unknown_without_the_newest_number() -> None:
    assert forecast([], 100.0) is None
    assert forecast([*seen(lambda _: 10.0), DemandSample(610.0)], 100.0) is None


@pytest.mark.parametrize(("waiting", "age"), [(0, 0.0), (50, 5.0), (1200, 120.0)])
def test_the_age_of_the_oldest_request_follows_from_the_arrivals(waiting: int, age: float) -> None:
    samples = seen(lambda _: 10.0)
    samples[-1] = samples[-1]._replace(waiting=waiting)
    assert oldest_wait(samples) == pytest.approx(age)


def test_the_age_is_unknown_without_the_queue() -> None:
    assert oldest_wait([DemandSample(0.0, 10.0)]) is None
