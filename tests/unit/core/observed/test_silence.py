"""Tests of when the operator considers that a leader does not answer any more, and when no leader may be recycled for this
reason.
"""

from typing import Any

import pytest

from ome_operator.core.observed.silence import JUST_STARTED, Silence, hold_reason, silence_of
from ome_operator.core.observed.telemetry import LeaderReport, LeaderSilence, RouterReport, WorkRates

NOW = 1e9
STOPPED = LeaderReport("decode", "silent", silence=LeaderSilence(NOW - 6, NOW - 30))
WORKS = LeaderReport("decode", "serving")


def report(leader: LeaderReport | None = STOPPED, errors: float = 0.0, **more: Any) -> RouterReport:
    """Return the report of a registry about one leader."""
    work = WorkRates(NOW - 3, 55.0, {"errors": errors}, {})
    base = RouterReport(NOW - 2, 0, 0.0, work, 0, {} if leader is None else {"m": leader}, JUST_STARTED)
    return base._replace(**more)


def test_silence_starts_at_the_latest_answer_seen_by_any_registry() -> None:
    later = STOPPED._replace(silence=LeaderSilence(NOW - 1, NOW - 25))
    assert silence_of([report(), report(later)], "m", NOW) == Silence(NOW - 25)
    assert silence_of([report(errors=0.1)], "m", NOW) == Silence(NOW - 30, requests_fail=True)


NOT_SILENT: dict[str, list[RouterReport | None]] = {
    "another registry hears it": [report(), report(WORKS)],
    "another registry does not know it": [report(), report(None)],
    "another registry does not answer": [report(), None],
    "a report is old": [report(), report(at=NOW - 21)],
    "a report is of the future": [report(), report(at=NOW + 1)],
    "its last probe is old": [report(STOPPED._replace(silence=LeaderSilence(NOW - 21, NOW - 30)))],
    "a registry has just started": [report(), report(up_for=JUST_STARTED - 1)],
    "a registry does not say since when it runs": [report(up_for=None)],
    "there is no router": [],
    "nobody reports": [None],
}


@pytest.mark.parametrize("case", NOT_SILENT)
def test_leader_is_not_silent_if_one_registry_has_an_answer(case: str) -> None:
    assert silence_of(NOT_SILENT[case], "m", NOW) is None


def test_one_registry_report_suffices_to_know_that_an_engine_is_paused() -> None:
    paused = replace_paused(STOPPED)
    assert silence_of([report(), report(paused)], "m", NOW) == Silence(None)
    assert silence_of([report(), report(paused, at=NOW - 21)], "m", NOW) is None, "that report is old"


def replace_paused(leader: LeaderReport) -> LeaderReport:
    """Return the report of a registry that has recognized the engine as paused."""
    return leader._replace(silence=None, is_paused=True)


def fleet(silent: int, services: int, apart: float = 1.0) -> list[set[float]]:
    """Return, for each service, the times at which its leaders stopped answering. Each of the first `silent` services has
    one leader that stopped, `apart` seconds after the leader of the service before it.
    """
    return [{NOW + number * apart} if number < silent else set() for number in range(services)]


@pytest.mark.parametrize(
    ("silent", "services", "apart", "holds"),
    [
        (4, 4, 1.0, True),
        (4, 40, 20.0, True),
        (4, 41, 1.0, False),
        (3, 3, 1.0, False),
        (4, 40, 20.1, False),
        (0, 0, 1.0, False),
    ],
    ids=["all", "a tenth within a minute", "less than a tenth", "three", "over more than a minute", "nothing"],
)
def test_no_leader_is_recycled_if_many_services_fall_silent_together(
    silent: int, services: int, apart: float, holds: bool
) -> None:
    said = hold_reason(fleet(silent, services, apart), 3600.0)
    assert bool(said) == holds
    assert not holds or said.startswith(f"leaders of {silent} of {services} services stopped answering within 60 s")


def test_operator_recycles_no_silent_leader_within_a_minute_of_its_start() -> None:
    assert (
        hold_reason([{NOW}], JUST_STARTED - 1) == "the operator has been requesting the routers' reports for less than 60 s"
    )
    assert not hold_reason([{NOW}], JUST_STARTED)


def test_several_silent_leaders_of_one_service_count_as_one_service() -> None:
    assert not hold_reason([{NOW, NOW + 1, NOW + 2, NOW + 3}, {NOW}, {NOW}], 3600.0)
