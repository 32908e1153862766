"""Tests of the statistics of each day: what a service cost, and how many requests were in time."""

from typing import Any

import pytest

from ome_operator.core.demand.days import DAYS, DaySums, add_to_days, from_status, to_status
from ome_operator.core.demand.facts import SizeDecision
from tests.unit.core.demand.loads import NOW, fleet, sample


def made(prefill: int, decode: int) -> SizeDecision:
    """Return the decision that a service shall have these numbers of groups, and one router."""
    return SizeDecision(NOW, prefill, decode, 1)


def test_hours_and_requests_of_a_day_are_summed() -> None:
    days: tuple[DaySums, ...] = ()
    for step in range(360):  # an hour: 2 and 1 groups of 8 GPUs, of which 3 and 1 are wanted
        days = add_to_days(days, sample(NOW + 10 * step, 4.0, late=0.25), fleet(2, 1), made(3, 1), 10.0)
    (day,) = days
    assert (round(day.gpu_hours, 3), round(day.gpu_hours_wanted, 3)) == (24.0, 32.0)
    assert (round(day.requests), round(day.met), round(day.met_wanted)) == (14400, 10800, 14400)


def test_requests_count_as_met_by_the_wanted_size_only_if_groups_were_missing() -> None:
    (day,) = add_to_days((), sample(NOW, 4.0, late=0.25), fleet(3, 1), made(3, 1), 10.0)
    assert day.met_wanted == day.met == 30.0


def test_requests_of_which_the_time_is_unknown_are_not_judged() -> None:
    (day,) = add_to_days((), sample(NOW, 4.0, late=None), fleet(), made(2, 1), 10.0)
    assert day.requests == day.met == day.met_wanted == 0 and day.gpu_hours > 0
    (day,) = add_to_days((), sample(NOW, late=0.5, arrivals=None), fleet(), made(2, 1), 10.0)
    assert day.requests == 0


def test_eight_days_are_kept_and_read_back() -> None:
    days: tuple[DaySums, ...] = ()
    for day in range(20):
        days = add_to_days(days, sample(NOW + 86400 * day), fleet(), made(2, 1), 10.0)
    assert len(days) == DAYS
    again = from_status(to_status(days))
    assert [one.day for one in again] == [one.day for one in days]
    assert again[-1].gpu_hours == round(days[-1].gpu_hours, 2)
    assert to_status(again) == to_status(days)


@pytest.mark.parametrize("stored", [None, "text", [1], [{}], [{"day": 5}], [{"day": "soon"}], {"day": "2026-11-28"}])
def test_unreadable_stored_days_are_left_out(stored: Any) -> None:
    assert from_status(stored) == ()


def test_a_number_that_cannot_be_read_counts_as_zero() -> None:
    (day,) = from_status([{"day": "2026-11-28", "gpuHours": "many", "requests": -5, "met": True, "gpuHoursWanted": 2.5}])
    assert day == DaySums("2026-11-28", gpu_hours_wanted=2.5)
