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


def test_peak_adds_groups_ahead_of_demand_up_to_the_maximum() -> None:
    minute = int(NOW % 86400 // 60)
    peak = PeakTime(EVERY_DAY, minute, minute + 60, {PREFILL: 5, DECODE: 99})
    made, _ = follow(samples(), task(peaks=(peak,)), state(), NOW, never)
    assert made.size == (5, 9, 1)
    over = peak._replace(start=minute + 1, end=minute + 2)
    made, _ = follow(samples(), task(peaks=(over,)), state(), NOW, never)
    assert made.size == (2, 1, 1)


def test_manually_set_number_becomes_the_size_immediately() -> None:
    bounds = {**TARGETS.bounds, DECODE: GroupBounds(4, 4)}
    made, after = follow(samples(), task(2, 4, targets=TARGETS._replace(bounds=bounds)), state(2, 1), NOW, never)
    assert made.size == (2, 4, 1) and after.changes == (), "that is no decision"


def test_first_size_is_the_requested_and_not_the_ready_number_of_groups() -> None:
    broken = task(fleet=fleet()._replace(prefill=RoleFleet(1), decode=RoleFleet(0)), asked=(3, 2, 1))
    assert limit_last_size(ScalingState(), broken).wanted == (3, 2, 1)
    made, _ = follow([], broken, ScalingState(), NOW, never)
    assert (made.size, made.hold) == ((3, 2, 1), HoldReason.UNKNOWN)


def test_size_is_kept_if_the_demand_cannot_be_followed() -> None:
    made, after = follow(samples(40.0), task(problem="say why"), state(), NOW, never)
    assert (made.size, made.hold, made.why) == ((2, 1, 1), HoldReason.INVALID, "say why")
    assert after.last[-1].hold == HoldReason.INVALID


@pytest.mark.parametrize(("free", "size"), [(0, 2), (1, 3), (2, 4)])
def test_groups_without_a_free_node_are_not_added(free: int, size: int) -> None:
    asked = list[Mapping[str, int]]()

    def granted(more: Mapping[str, int]) -> Mapping[str, int]:
        asked.append(more)
        return room(free)

    made, after = follow(samples(20.0), task(fits=False), state(), NOW, granted)
    assert (made.prefill, made.hold) == (size, HoldReason.NO_ROOM)
    assert asked[0][PREFILL] > 2 and asked[0][DECODE] == 0
    made, again = follow(samples(20.0), task(size, fits=False), after, NOW, lambda _: room(0))
    assert made.prefill == size and len(again.last) == len(after.last), "free nodes are requested once"


def test_free_nodes_are_checked_only_when_groups_are_added() -> None:
    made, _ = follow(samples(20.0), task(fits=False), state(), NOW, lambda more: more)
    assert made.prefill > 5 and made.hold == ""
    made, _ = follow(samples(), task(fits=False), state(), NOW, never)
    assert made.size == (2, 1, 1)


def test_existing_groups_need_no_free_nodes() -> None:
    """Groups that exist need no free nodes. Here, a group that is being drained is wanted again, and has its nodes."""
    made, _ = follow(samples(20.0), task(9, 1, fits=False), state(2, 1), NOW, never)
    assert made.prefill > 5


def test_no_group_is_added_without_samples_even_during_a_peak() -> None:
    peak = PeakTime(EVERY_DAY, 0, 0, {PREFILL: 5})
    made, _ = follow([DemandSample(NOW)], task(peaks=(peak,)), state(), NOW, never)
    assert (made.size, made.hold) == ((2, 1, 1), HoldReason.UNKNOWN)


def test_routers_are_inside_their_bounds() -> None:
    bounds = {**TARGETS.bounds, ROUTER: GroupBounds(3, 3)}
    assert limit_last_size(state(), task(targets=TARGETS._replace(bounds=bounds))).wanted == (2, 1, 3)
