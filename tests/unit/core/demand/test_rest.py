"""Tests of the times in which the schedule allows a service to have no groups."""

from datetime import UTC, datetime
from typing import Any

import pytest

from ome_operator.core.demand.facts import DECODE, KEPT, PREFILL, ROUTER, DemandSample, GroupBounds, RoleFleet
from ome_operator.core.demand.follow import follow
from ome_operator.core.demand.holds import HoldReason
from ome_operator.core.demand.rest import is_idle
from ome_operator.core.demand.task import APPLY, RECOMMEND, DemandTask, PeakTime
from tests.unit.core.demand.loads import NOW, TARGETS, fleet, sample, samples, state

DAYS = frozenset(range(7))
NIGHT = PeakTime(DAYS, 0, 0, {PREFILL: 0, DECODE: 0})
OVER = NIGHT._replace(start=(int(NOW % 86400 // 60) + 1) % 1440, end=int(NOW % 86400 // 60))
"""The times of a schedule whose period without groups has just ended, and begins again a minute after `NOW`."""
LOW = TARGETS._replace(bounds={PREFILL: GroupBounds(0, 9), DECODE: GroupBounds(0, 9), ROUTER: GroupBounds(1, 9)})
SERVED = {"running": 0.0, "running_now": 0, "requests": 0.0, "prompt_tokens": 0.0, "ended": 0.0, "output_tokens": 0.0}


def quiet(**other: Any) -> tuple[DemandSample, ...]:
    """Return the samples of ten minutes in which no request arrived. `other` replaces fields of the newest sample."""
    whole = tuple(one._replace(late=None, in_flight=0, **SERVED) for one in samples(0.0))
    return (*whole[:-1], whole[-1]._replace(**other))


def task(prefill: int = 2, decode: int = 1, **other: Any) -> DemandTask:
    """Return the task of a service that may have no groups at this time of the day."""
    made = DemandTask(APPLY, fleet(prefill, decode), LOW, (prefill, decode, 1), peaks=(NIGHT,), fits=True)
    return made._replace(**other)


def asleep(**other: Any) -> DemandTask:
    """Return the task of a service that the schedule has brought to zero."""
    nothing = fleet()._replace(prefill=RoleFleet(0), decode=RoleFleet(0))
    return task(**{"fleet": nothing, "asked": (0, 0, 1), "back": (2, 3), **other})


def never(_: Any) -> Any:
    raise AssertionError


def test_both_roles_scale_to_zero_after_ten_minutes_without_arrivals() -> None:
    made, after = follow(quiet(), task(), state(), NOW, never)
    assert (made.size, made.hold) == ((0, 0, 1), HoldReason.SCHEDULED_ZERO)
    assert (after.last[-1].size, after.last[-1].hold, after.changes) == ((0, 0, 1), HoldReason.SCHEDULED_ZERO, (NOW,))
    # The groups exist until the next reconciliations, and their numbers are unknown afterwards.
    again, later = follow(quiet(), task(), after, NOW + 10, never)
    assert (again.size, later.last, later.changes) == (made.size, after.last, after.changes)
    slept, later = follow([DemandSample(NOW)], asleep(), later, NOW + 20, never)
    assert (slept.size, slept.hold, later.last, later.changes) == (made.size, made.hold, after.last, after.changes)


@pytest.mark.parametrize(
    ("what", "seen"),
    [
        ("a request has arrived", (*quiet()[:-3], quiet()[-3]._replace(arrivals=1 / 60), *quiet()[-2:])),
        ("a request waits", quiet(waiting=1)),
        ("a request runs", quiet(running_now=1)),
        ("a request is at a router", quiet(in_flight=1)),
        ("nobody knows what is in flight", quiet(in_flight=None)),
        ("nobody knows what arrives", quiet(arrivals=None)),
        ("the operator has started", quiet()[-30:]),
        ("numbers are missing", (*quiet()[:20], *quiet()[24:])),
    ],
)
def test_possible_request_prevents_scale_to_zero(what: str, seen: Any) -> None:
    made, _ = follow(seen, task(), state(lower_since=(None, None)), NOW, never)
    assert made.prefill and made.decode, what


@pytest.mark.parametrize(
    ("what", "other"),
    [
        ("another time", {"peaks": (OVER,)}),
        ("no schedule", {"peaks": ()}),
        ("one role", {"peaks": (NIGHT._replace(minimum={PREFILL: 0}),)}),
        ("another time asks for groups", {"peaks": (NIGHT, NIGHT._replace(minimum={DECODE: 1}))}),
        ("minReplicas of a role", {"targets": LOW._replace(bounds={**LOW.bounds, DECODE: GroupBounds(1, 9)})}),
        ("a rollout", {"fleet": fleet(busy="a rollout")}),
        ("a freeze", {"fleet": fleet(frozen="frozen by alice")}),
        ("a start", {"fleet": fleet()._replace(prefill=RoleFleet(1, starting=1))}),
        ("a drain", {"fleet": fleet()._replace(decode=RoleFleet(1, draining=1))}),
        ("a size that somebody went back to", {"undone": (2, 1, 1)}),
    ],
)
def test_other_conditions_prevent_scale_to_zero(what: str, other: dict[str, Any]) -> None:
    made, _ = follow(quiet(), task(**other), state(lower_since=(None, None)), NOW, never)
    assert made.prefill and made.decode, what


def test_groups_are_restored_together_when_the_zero_schedule_ends() -> None:
    made, after = follow([DemandSample(NOW)], asleep(peaks=(OVER,)), state(0, 0), NOW, never, heard=False)
    assert (made.size, made.hold) == ((2, 3, 1), "")
    assert after.last[-1].why == "the scheduled time without groups has ended" and after.changes == (NOW,)
    starting = fleet()._replace(prefill=RoleFleet(0, starting=2), decode=RoleFleet(0, starting=3))
    again, later = follow([DemandSample(NOW)], task(2, 3, fleet=starting, peaks=(OVER,)), after, NOW + 10, never)
    assert (again.size, later.changes) == (made.size, after.changes)


@pytest.mark.parametrize("mode", [APPLY, RECOMMEND])
def test_return_from_zero_is_decided_only_once(mode: str) -> None:
    """The way back from zero is decided only once, even if the groups do not appear: with Recommend, nobody creates them,
    and with Apply, the status or the RoleScales may not be writable.
    """
    after = state(0, 0)
    for number in range(60):
        now = NOW + 10 * number
        made, after = follow([DemandSample(now)], asleep(peaks=(), mode=mode), after, now, never)
        assert (made.size, made.hold) == ((2, 3, 1), "")
    assert [one.size for one in after.last] == [(2, 3, 1)] and after.changes == (NOW,)
    larger = asleep(peaks=(NIGHT._replace(minimum={PREFILL: 4}),), mode=mode)
    made, after = follow([DemandSample(now)], larger, after, now, never)
    assert made.size == (4, 3, 1) and after.changes == (NOW, now), "a known peak is another size"


def test_scale_to_zero_needs_ten_minutes_of_samples_after_a_restart() -> None:
    decided = state(0, 0, changed=NOW - 60)
    made, after = follow(quiet()[-2:], task(), decided, NOW, never)
    assert made.size == (2, 1, 1) and made.hold != HoldReason.SCHEDULED_ZERO, "who knows what arrived before"
    later = tuple(one._replace(at=one.at + KEPT) for one in quiet())
    assert follow(later, task(), after, NOW + KEPT, never)[0].size == (0, 0, 1)


def test_size_after_zero_schedule_respects_current_limits() -> None:
    least = PeakTime(DAYS, 0, 0, {PREFILL: 4})
    bounds = {**LOW.bounds, DECODE: GroupBounds(0, 2)}
    back = asleep(peaks=(least,), targets=LOW._replace(bounds=bounds))
    assert follow([], back, state(0, 0), NOW, never)[0].size == (4, 2, 1)
    poor = back._replace(targets=LOW._replace(gpus=24), peaks=())
    assert follow([], poor, state(0, 0), NOW, never)[0].size == (1, 2, 1)
    assert follow([], asleep(peaks=(), back=(0, 0)), state(0, 0), NOW, never)[0].size == (1, 1, 1)


def test_freeze_keeps_a_service_at_zero() -> None:
    frozen = asleep(peaks=(OVER,), fleet=fleet(0, 0, frozen="frozen by alice"))
    made, _ = follow([], frozen, state(0, 0), NOW, never)
    assert (made.size, made.hold) == ((0, 0, 1), HoldReason.FROZEN)


def test_manually_set_zero_is_kept_when_the_schedule_ends() -> None:
    bounds = {**LOW.bounds, PREFILL: GroupBounds(0, 0), DECODE: GroupBounds(0, 0)}
    made, _ = follow([], asleep(back=None, peaks=(OVER,), targets=LOW._replace(bounds=bounds)), state(0, 0), NOW, never)
    assert (made.size, made.hold) == ((0, 0, 1), HoldReason.UNKNOWN)


def test_woken_service_scales_to_zero_again_after_ten_minutes_without_arrivals() -> None:
    unknown = tuple(DemandSample(NOW - 10.0 * number) for number in range(12, 0, -1))
    made, after = follow([*unknown, quiet()[-1]], task(2, 3), state(0, 0, changed=NOW - 3600), NOW, never)
    assert made.size == (2, 3, 1)
    later = tuple(one._replace(at=one.at + KEPT) for one in quiet())
    made, _ = follow(later, task(2, 3), after, NOW + KEPT, never)
    assert made.size == (0, 0, 1)


def test_a_recommended_zero_is_recorded_once() -> None:
    after = state()
    for number in range(30):
        seen = tuple(one._replace(at=one.at + 10 * number) for one in quiet())
        made, after = follow(seen, task(mode=RECOMMEND), after, NOW + 10 * number, never)
        assert made.size == (0, 0, 1)
    assert len(after.last) == 1
    seen = (*quiet()[1:], sample(NOW, 1.0))
    made, _ = follow(seen, task(mode=RECOMMEND), after, NOW, never)
    assert made.size == (2, 1, 1), "a request has arrived"


def test_idle_needs_a_fresh_number() -> None:
    assert is_idle(quiet(), NOW) and not is_idle(quiet(), NOW + 21) and not is_idle((), NOW)


def test_the_schedule_is_in_utc() -> None:
    at = datetime(2026, 11, 28, 23, 30, tzinfo=UTC).timestamp()
    night = task(peaks=(NIGHT._replace(start=22 * 60, end=6 * 60),))
    assert night.rests_at(at) and night.rests_at(at + 6 * 3600) and not night.rests_at(at + 7 * 3600)
