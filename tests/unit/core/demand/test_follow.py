"""Tests of the decision about a service as it is written: peaks, numbers that others set, nodes, and services that cannot be
scaled by demand.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from ome_operator.core.demand.facts import DECODE, PREFILL, ROUTER, DemandSample, GroupBounds, RoleFleet, ScalingState
from ome_operator.core.demand.follow import follow, limit_last_size
from ome_operator.core.demand.holds import HoldReason
from ome_operator.core.demand.task import APPLY, DemandTask, PeakTime
from tests.unit.core.demand.loads import NOW, TARGETS, fleet, samples, state

EVERY_DAY = frozenset(range(7))


def task(prefill: int = 2, decode: int = 1, **other: object) -> DemandTask:
    """Return the task of a service of this size."""
    made = DemandTask(APPLY, fleet(prefill, decode), TARGETS, (prefill, decode, 1), fits=True)
    return made._replace(**other)  # type: ignore[arg-type]


def room(prefill: int, decode: int = 9) -> Mapping[str, int]:
    """Return the number of groups of each role for which nodes have free capacity."""
    return {PREFILL: prefill, DECODE: decode}


def never(_: Mapping[str, int]) -> Mapping[str, int]:
    """Fail the test: this decision must not ask for free nodes."""
    raise AssertionError


@pytest.mark.parametrize(
    ("days", "start", "end", "at", "covered"),
    [
        ({5}, 480, 1080, "2026-11-28T08:00", True),  # a Saturday
        ({5}, 480, 1080, "2026-11-28T18:00", False),
        ({5}, 480, 1080, "2026-11-28T07:59", False),
        ({4}, 480, 1080, "2026-11-28T08:00", False),
        ({4}, 1320, 360, "2026-11-28T05:59", True),  # since Friday night
        ({4}, 1320, 360, "2026-11-28T06:00", False),
        ({4}, 1320, 360, "2026-11-28T22:00", False),
        ({5}, 1320, 360, "2026-11-28T22:00", True),
        ({6}, 1320, 360, "2026-11-30T01:00", True),  # from Sunday to Monday
        ({5}, 480, 480, "2026-11-28T08:00", True),  # a whole day
        ({5}, 480, 480, "2026-11-29T07:59", True),
    ],
)
def test_a_peak_covers_its_times_also_over_midnight(days: set[int], start: int, end: int, at: str, covered: bool) -> None:
    assert PeakTime(frozenset(days), start, end, {}).contains(datetime.fromisoformat(at).replace(tzinfo=UTC)) is covered


def test_a_peak_adds_groups_before_the_demand_does_and_never_beyond_the_maximum() -> None:
    minute = int(NOW % 86400 // 60)
    peak = PeakTime(EVERY_DAY, minute, minute + 60, {PREFILL: 5, DECODE: 99})
    made, _ = follow(samples(), task(peaks=(peak,)), state(), NOW, never)
    assert made.size == (5, 9, 1)
    over = peak._replace(start=minute + 1, end=minute + 2)
    made, _ = follow(samples(), task(peaks=(over,)), state(), NOW, never)
    assert made.size == (2, 1, 1)


def test_a_number_that_somebody_sets_is_the_size_at_once() -> None:
    bounds = {**TARGETS.bounds, DECODE: GroupBounds(4, 4)}
    made, after = follow(samples(), task(2, 4, targets=TARGETS._replace(bounds=bounds)), state(2, 1), NOW, never)
    assert made.size == (2, 4, 1) and after.changes == (), "that is no decision"


def test_the_first_size_is_what_the_service_is_to_have_and_not_what_serves_now() -> None:
    broken = task(fleet=fleet()._replace(prefill=RoleFleet(1), decode=RoleFleet(0)), asked=(3, 2, 1))
    assert limit_last_size(ScalingState(), broken).wanted == (3, 2, 1)
    made, _ = follow([], broken, ScalingState(), NOW, never)
    assert (made.size, made.hold) == ((3, 2, 1), HoldReason.UNKNOWN)


def test_what_cannot_be_followed_keeps_the_size() -> None:
    made, after = follow(samples(40.0), task(problem="say why"), state(), NOW, never)
    assert (made.size, made.hold, made.why) == ((2, 1, 1), HoldReason.INVALID, "say why")
    assert after.last[-1].hold == HoldReason.INVALID


@pytest.mark.parametrize(("free", "size"), [(0, 2), (1, 3), (2, 4)])
def test_groups_for_which_no_node_is_free_are_not_part_of_the_size(free: int, size: int) -> None:
    asked = list[Mapping[str, int]]()

    def granted(more: Mapping[str, int]) -> Mapping[str, int]:
        asked.append(more)
        return room(free)

    made, after = follow(samples(20.0), task(fits=False), state(), NOW, granted)
    assert (made.prefill, made.hold) == (size, HoldReason.NO_ROOM)
    assert asked[0][PREFILL] > 2 and asked[0][DECODE] == 0
    made, again = follow(samples(20.0), task(size, fits=False), after, NOW, lambda _: room(0))
    assert made.prefill == size and len(again.last) == len(after.last), "free nodes are requested once"


def test_enough_free_nodes_limit_nothing_and_a_size_that_stays_asks_no_nodes() -> None:
    made, _ = follow(samples(20.0), task(fits=False), state(), NOW, lambda more: more)
    assert made.prefill > 5 and made.hold == ""
    made, _ = follow(samples(), task(fits=False), state(), NOW, never)
    assert made.size == (2, 1, 1)


def test_groups_that_exist_without_being_wanted_need_no_nodes() -> None:
    """Groups that exist need no free nodes. Here, a group that is being drained is wanted again, and has its nodes."""
    made, _ = follow(samples(20.0), task(9, 1, fits=False), state(2, 1), NOW, never)
    assert made.prefill > 5


def test_unknown_numbers_add_no_group_but_a_peak_waits_for_numbers_too() -> None:
    peak = PeakTime(EVERY_DAY, 0, 0, {PREFILL: 5})
    made, _ = follow([DemandSample(NOW)], task(peaks=(peak,)), state(), NOW, never)
    assert (made.size, made.hold) == ((2, 1, 1), HoldReason.UNKNOWN)


def test_routers_are_inside_their_bounds() -> None:
    bounds = {**TARGETS.bounds, ROUTER: GroupBounds(3, 3)}
    assert limit_last_size(state(), task(targets=TARGETS._replace(bounds=bounds))).wanted == (2, 1, 3)
