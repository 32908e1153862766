"""Tests of the limit on the number of changes of a service's size within an hour."""

from datetime import UTC, datetime

from ome_operator.core.demand.decide import decide_size
from ome_operator.core.demand.facts import PREFILL, GroupBounds, LearnedProperties, ScalingState, Targets
from ome_operator.core.demand.follow import follow
from ome_operator.core.demand.holds import HoldReason
from ome_operator.core.demand.task import APPLY, DemandTask, PeakTime
from tests.unit.core.demand.loads import NOW, TARGETS, fleet, samples, state

FEW: Targets = TARGETS._replace(changes_an_hour=2, in_flight_of_a_router=100)
USED = (NOW - 3599, NOW - 100)
"""The times of two changes within the last hour."""


def used(**other: object) -> ScalingState:
    """Return the state of a service that has reached its limit of changes within an hour."""
    return state(changes=USED, **other)


def test_no_group_or_router_is_added_above_the_hourly_limit() -> None:
    made, after = decide_size(samples(20.0, in_flight=250), fleet(), FEW, used(), NOW)
    assert (made.size, made.hold) == ((2, 1, 1), HoldReason.CAPPED)
    assert "the service needs 6 prefill and 1 decode groups" in made.why
    assert made.why.endswith(
        "; no further change is permitted now, because there were 2 changes within an hour (changesPerHour)"
    )
    assert after.last[-1].hold == HoldReason.CAPPED and after.changes == USED
    again, later = decide_size(samples(20.0, in_flight=250), fleet(), FEW, after, NOW)
    assert (again.size, later.last) == (made.size, after.last)


def test_change_is_allowed_again_an_hour_after_the_oldest_one() -> None:
    _, after = decide_size(samples(20.0), fleet(), FEW, used(), NOW)
    later = tuple(one._replace(at=one.at + 2) for one in samples(20.0))
    made, after = decide_size(later, fleet(), FEW, after, NOW + 2)
    assert (made.size, made.hold) == ((6, 1, 1), "") and after.changes == (USED[1], NOW + 2)


def test_no_router_is_added_while_group_speeds_are_unmeasured() -> None:
    made, _ = decide_size(samples(40.0, in_flight=250), fleet(), FEW, used(learned=LearnedProperties()), NOW)
    assert (made.size, made.hold) == ((2, 1, 1), HoldReason.UNMEASURED)


def test_hourly_limit_does_not_prevent_the_minimum_of_a_peak() -> None:
    minute = datetime.fromtimestamp(NOW, UTC)
    peak = PeakTime(frozenset(range(7)), 60 * minute.hour + minute.minute, 0, {PREFILL: 5})
    task = DemandTask(APPLY, fleet(), FEW, (2, 1, 1), peaks=(peak,), fits=True)
    made, _ = follow(samples(40.0), task, used(), NOW, lambda more: more)
    assert (made.size, made.hold) == ((5, 1, 1), HoldReason.CAPPED)


def test_hourly_limit_does_not_prevent_an_edited_minimum() -> None:
    bounds = {**FEW.bounds, PREFILL: GroupBounds(4, 9)}
    task = DemandTask(APPLY, fleet(), FEW._replace(bounds=bounds), (4, 1, 1), fits=True)
    made, _ = follow(samples(4.0), task, used(), NOW, lambda more: more)
    assert made.prefill == 4
