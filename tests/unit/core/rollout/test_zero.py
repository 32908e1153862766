"""Tests of scaling to zero and back: what wakes a service, with how many groups, and how long it is kept awake."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ome_operator.core.observed.arrivals import Arrivals
from ome_operator.core.rollout import zero
from ome_operator.core.rollout.zero import ZeroFacts

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
BOTH = {"engine": 0, "decoder": 0}


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def text(seconds: float) -> str:
    return at(seconds).isoformat(timespec="seconds")


def facts(before: Mapping[str, Any], groups: Mapping[str, int], seconds: float = 0, **more: Any) -> ZeroFacts:
    arrived, token = more.pop("arrived", None), more.pop("token", None)
    times = [None if one is None else at(one).timestamp() for one in (arrived, token)]
    found = {"former": {}, "serves": False, "wakes": True, **more}
    return ZeroFacts(before=before, groups=groups, now=at(seconds), arrivals=Arrivals(*times), **found)


def story(*steps: ZeroFacts) -> dict[str, Any]:
    """Return the state after passes with these facts, each of which starts from the state of the previous pass."""
    found: dict[str, Any] = {}
    for step in steps:
        found = zero.state(step._replace(before=found))
    return found


@pytest.mark.parametrize("serves", [True, False])
def test_service_that_never_was_at_zero_has_no_zero_state(serves: bool) -> None:
    assert zero.state(facts({}, {"engine": 1, "decoder": 2}, serves=serves, arrived=-1)) == {}


def test_last_nonzero_number_of_each_role_is_kept() -> None:
    found = story(
        facts({}, {"engine": 0, "decoder": 3}, 0, former={"engine": 2, "decoder": 3}),
        facts({}, BOTH, 20, former={"engine": 0, "decoder": 3}),
        facts({}, BOTH, 40, former=BOTH),
    )
    assert found == {"since": text(0), "groups": {"engine": 2, "decoder": 3}}
    assert (zero.groups_when_woken(found, "engine"), zero.groups_when_woken(found, "decoder")) == (2, 3)
    again = story(
        facts({}, BOTH, 0, former={"engine": 2, "decoder": 3}),
        facts({}, {"engine": 1, "decoder": 1}, 50, former=BOTH),
        facts({}, BOTH, 90, former={"engine": 1, "decoder": 1}),
    )
    assert again["groups"] == {"engine": 1, "decoder": 1}, "the newest number counts"


def test_service_created_without_groups_wakes_with_one_group_per_role() -> None:
    found = story(facts({}, BOTH, 0))
    assert found == {"since": text(0)} and [zero.groups_when_woken(found, role) for role in BOTH] == [1, 1]


@pytest.mark.parametrize(
    ("arrived", "seconds", "wakes", "woken"),
    [
        (95, 100, True, True),
        (95, 100, False, False),
        (None, 100, True, False),
        (50, 100, True, False),
        (-3, 10, True, False),
        (101, 100, True, False),
    ],
    ids=["just now", "not asked for", "nobody", "too long ago", "before it was at zero", "the clock was set back"],
)
def test_only_a_new_request_wakes_a_service_with_wake_on_request(
    arrived: float | None, seconds: float, wakes: bool, woken: bool
) -> None:
    before = {"since": text(0), "groups": {"engine": 2}}
    found = zero.state(facts(before, BOTH, seconds, arrived=arrived, wakes=wakes))
    assert ("since" not in found) == woken
    assert found.get("wake") == ({"time": text(seconds), "by": "Request"} if woken else None)


def test_request_before_scale_to_zero_does_not_wake() -> None:
    assert "wake" not in zero.state(facts({}, BOTH, 10, arrived=9))


def test_further_requests_do_not_wake_again() -> None:
    """After a wake, the service keeps the number of groups that the wake has set, so further requests change nothing."""
    found = story(facts({}, BOTH, 0), facts({}, BOTH, 30, arrived=29))
    assert zero.kept_groups(found, "engine", wakes=True, now=at(31)) == 1
    later = zero.state(facts(found, {"engine": 1, "decoder": 1}, 60, arrived=59))
    assert later["wake"] == {"time": text(30), "by": "Request"}


def test_durations_until_serving_and_first_token_are_stored_once() -> None:
    groups = {"engine": 1, "decoder": 1}
    found = story(
        facts({}, BOTH, 0),
        facts({}, BOTH, 30, arrived=29),
        facts({}, groups, 60, token=25),
        facts({}, groups, 133.4, serves=True, token=25),
        facts({}, groups, 140, serves=True),
        facts({}, groups, 150, serves=True, token=148.5),
        facts({}, groups, 900, serves=False, token=899),
    )
    assert found["wake"] == {
        "time": text(30), "by": "Request", "servedAfterSeconds": 103.4, "firstTokenAfterSeconds": 118.5,
    }  # fmt: skip


def test_changed_role_scale_counts_as_a_wake_without_minimum_uptime() -> None:
    found = story(facts({}, BOTH, 0, former={"engine": 2, "decoder": 2}), facts({}, {"engine": 3, "decoder": 1}, 60))
    assert found["wake"] == {"time": text(60), "by": "Scale"}
    assert zero.kept_groups(found, "engine", wakes=True, now=at(61)) == 0


@pytest.mark.parametrize(
    ("served", "seconds", "wakes", "groups"),
    [
        (None, 3599, True, 2), (None, 3601, True, 0),
        (100.0, 699, True, 2), (100.0, 701, True, 0), (100.0, 200, False, 0),
    ],
)  # fmt: skip
def test_service_woken_by_a_request_is_kept_for_ten_minutes_after_it_serves(
    served: float | None, seconds: float, wakes: bool, groups: int
) -> None:
    """A service that was woken by a request keeps its groups for ten minutes after it serves. Without this, KEDA would set
    the number of groups back to 0 at its next evaluation.
    """
    woken = {"time": text(0), "by": "Request", **({} if served is None else {"servedAfterSeconds": served})}
    before = {"groups": {"engine": 2}, "wake": woken}
    assert zero.kept_groups(before, "engine", wakes=wakes, now=at(seconds)) == groups
    assert zero.kept_groups(before, "router", wakes=wakes, now=at(seconds)) == 0
    assert zero.kept_groups({**before, "since": text(1)}, "engine", wakes=wakes, now=at(seconds)) == 0


@pytest.mark.parametrize("time", ["", "soon", 7, None, "2027-01-01T00:00:00+00:00", "2026-11-28T11:00:00"])
def test_unreadable_time_is_ignored(time: Any) -> None:
    before = {"since": time, "wake": {"time": time, "by": "Request"}}
    assert zero.kept_groups({"wake": before["wake"]}, "engine", wakes=True, now=NOW) == 0
    assert not zero.is_woken(facts(before, BOTH, arrived=-1))
    assert zero.seconds_until_change(before, NOW) is None
    assert zero.state(facts(before, {"engine": 1}, serves=True))["wake"]["by"] in ("Scale", "Request")


def test_state_is_rechecked_for_first_token_and_end_of_uptime() -> None:
    wake = {"time": text(0), "by": "Request"}
    assert zero.seconds_until_change({"wake": wake}, at(10)) == 3591
    assert zero.seconds_until_change({"wake": {**wake, "servedAfterSeconds": 50.0}}, at(60)) == zero.RECHECK
    assert (
        zero.seconds_until_change({"wake": {**wake, "servedAfterSeconds": 50.0, "firstTokenAfterSeconds": 60.0}}, at(60))
        == 591
    )
    assert zero.seconds_until_change({"wake": {**wake, "by": "Scale", "servedAfterSeconds": 50.0}}, at(4000)) is None
    assert zero.seconds_until_change({"since": text(0), "wake": wake}, at(60)) is None
