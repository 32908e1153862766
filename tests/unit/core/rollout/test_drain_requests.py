"""Tests that a leader is stopped when it has no requests any more, or at a time limit. Unknown numbers have no effect."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ome_operator.core.observed.objects import Pod
from ome_operator.core.observed.slices import Slice
from ome_operator.core.observed.telemetry import STALE, DrainReport
from ome_operator.core.rollout.drain import EMPTY_READINGS, NOTICE, RECHECK, Drain, RetainedGroups, retain_groups
from tests.unit.core.rollout import makers
from tests.unit.core.rollout.makers import leader_set

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LIMIT = 120.0
ROUTERS = ("r1", "r2")
UID = makers.leader(1).uid


def router(uid: str, **more: object) -> Pod:
    """Return a router of the slice."""
    return makers.pod(uid, component="router", **more)._replace(uid=uid)


def report(uid: str, requests: int | None = 0, empty: int | None = EMPTY_READINGS, age: float = 3.0) -> DrainReport:
    """Return the report of the registry beside the router `uid` about the leader, read `age` seconds ago. `requests` and
    `empty` are the leader's requests and consecutive empty readings; None if they are unknown.
    """
    return DrainReport(uid, NOW.timestamp() - age, requests, empty)


def held(marked: float, *reports: DrainReport, routers: tuple[str, ...] = ROUTERS, limit: float = LIMIT) -> RetainedGroups:
    """Return the groups that are kept while group 1 is drained, this number of seconds after the drain began."""
    going = makers.leader(1, draining=(NOW - timedelta(seconds=marked)).isoformat())
    sets = (leader_set(0), leader_set(1))
    found = Slice("r1", sets, (makers.leader(0), going, *map(router, routers)))
    drains: Mapping[str, tuple[DrainReport, ...]] = {UID: reports} if reports else {}
    return retain_groups("engine", (0,), found, NOW, drain=Drain(drains, limit))


BUSY = report("r1", requests=4, empty=0)
UNKNOWN: dict[str, tuple[DrainReport, ...]] = {
    "no report": (),
    "a router that reports nothing": (report("r1"),),
    "engines that cannot prove it": (report("r1", 0, None), report("r2", 0, None)),
    "no number": (report("r1", None, None), report("r2", None, None)),
    "a router of an earlier version": (report("r1"), report("r2", empty=None)),
    "old reports": (report("r1", age=STALE + 1), report("r2")),
    "requests of long ago": (report("r1", requests=4, empty=0, age=STALE + 1),),
    "reports of the future": (report("r1", age=-60.0), report("r2", age=-60.0)),
    "a router that is gone": (report("r3"), report("r2")),
    "requests reported by a router that is gone": (report("r3", requests=4, empty=0),),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_unknown_request_counts_lead_to_the_default_notice_time(case: str) -> None:
    assert (held(5, *UNKNOWN[case]).numbers, held(5, *UNKNOWN[case]).again) == ((0, 1), NOTICE - 5)
    assert held(NOTICE, *UNKNOWN[case]).numbers == (0,)


def test_engine_without_requests_is_stopped_immediately() -> None:
    assert held(5, report("r1"), report("r2")) == RetainedGroups((0,), (0,))


def test_engine_with_requests_is_kept_and_rechecked() -> None:
    for reports in ((BUSY,), (BUSY, report("r2")), (BUSY, report("r2", None, None))):
        found = held(60, *reports)
        assert found.numbers == (0, 1) and found.again == RECHECK


UNPROVEN = {
    "a reading": (report("r1"), report("r2", empty=1)),
    "a router that still lists it": (report("r1"), report("r2", empty=0)),
    "requests that have just ended": (report("r1", empty=0), report("r2", empty=0)),
}


@pytest.mark.parametrize("case", UNPROVEN)
def test_engine_that_can_confirm_idleness_is_kept_until_it_does(case: str) -> None:
    """A leader whose engine can confirm that it has no requests is kept until the engine has done so. The reported numbers
    of an engine are also 0 while it computes the prompt of a request, so they must be confirmed.
    """
    found = held(60, *UNPROVEN[case])
    assert (found.numbers, found.again) == ((0, 1), RECHECK)
    assert held(LIMIT, *UNPROVEN[case]).numbers == (0,)


def test_engine_with_requests_is_kept_until_the_limit() -> None:
    assert held(LIMIT - 4, BUSY).again == 4
    assert held(LIMIT, BUSY).numbers == (0,)


def test_a_short_grace_period_shortens_no_notice() -> None:
    assert held(5, BUSY, limit=1.0).again == NOTICE - 5
    assert held(NOTICE, BUSY, limit=1.0).numbers == (0,)


def test_engine_is_not_considered_idle_without_any_router_pod() -> None:
    assert held(5, report("r1"), routers=()).numbers == (0, 1)


def test_only_routers_that_are_still_running_must_report() -> None:
    going = makers.leader(1, draining=(NOW - timedelta(seconds=5)).isoformat())
    sets, drain = (leader_set(0), leader_set(1)), Drain({UID: (report("r1"),)}, LIMIT)

    def kept(other: Pod) -> tuple[int, ...]:
        pods = (makers.leader(0), going, router("r1"), other)
        return retain_groups("engine", (0,), Slice("r1", sets, pods), NOW, drain=drain).numbers

    assert kept(router("r2")._replace(over=True)) == (0,)
    assert kept(router("r2", deleting=True)) == (0, 1)


def test_unmarked_leader_is_marked_first_whatever_is_reported() -> None:
    found = Slice("r1", (leader_set(0), leader_set(1)), (makers.leader(0), makers.leader(1), router("r1")))
    kept = retain_groups("engine", (0,), found, NOW, drain=Drain({UID: (report("r1"),)}, LIMIT))
    assert kept.numbers == (0, 1) and len(kept.patch) == 1 and kept.again == NOTICE


REPORTS = st.lists(
    st.builds(
        report,
        st.sampled_from(["r1", "r2", "r3"]),
        st.none() | st.integers(0, 2**53),
        st.none() | st.integers(0, 5),
        st.floats(-100, 100),
    ),
    max_size=6,
)


@given(st.floats(0, 1000), REPORTS, st.floats(0, 500))
def test_whatever_is_reported_a_leader_is_stopped_within_the_limit(
    marked: float, reports: list[DrainReport], limit: float
) -> None:
    """Whatever registries report, a leader is stopped within the time limit, and only earlier than without reports if every
    router has removed it from its list.
    """
    found, without = held(marked, *reports, limit=limit), held(marked, limit=limit)
    if marked >= max(limit, NOTICE):
        assert 1 not in found.numbers
    if 1 in without.numbers and 1 not in found.numbers:
        assert {each.router for each in reports if (each.empty_readings or 0) >= EMPTY_READINGS} >= set(ROUTERS)
    assert found.again is None or 0 < found.again <= max(NOTICE, RECHECK)
