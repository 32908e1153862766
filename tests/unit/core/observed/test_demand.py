"""Tests of the sample of the demand, which is derived from the reports of routers."""

from typing import Any

import pytest

from ome_operator.core.demand.facts import CompletedWork
from ome_operator.core.observed.demand import sample
from ome_operator.core.observed.telemetry import LeaderLoad, LeaderReport, RouterReport, WorkRates

NOW = 1000.0
TOKENS = ((0.4, 30.0), (2.0, 8.0), (4.0, 1.0), (float("inf"), 1.0))


def work(age: float = 1.0, **rates: float) -> WorkRates:
    """Return rates over a minute."""
    return WorkRates(NOW - age, 60.0, rates, {"firstToken": TOKENS})


def prefill(age: float = 1.0, waiting: int | None = 3, requests: float = 2.0) -> LeaderReport:
    """Return the report about a prefill leader, read `age` seconds ago. `waiting` is the number of waiting requests; None
    if it is unknown.
    """
    return LeaderReport(
        "prefill", "serving", LeaderLoad(NOW - age, 1, waiting), work(age, requests=requests, promptTokens=2e4)
    )


def decode(age: float = 1.0, running: int | None = 40) -> LeaderReport:
    """Return the report about a decode leader, read `age` seconds ago. `running` is the number of running requests; None if
    it is unknown.
    """
    return LeaderReport("decode", "serving", LeaderLoad(NOW - age, running, 0), work(age, requests=2.0, outputTokens=900.0))


def router(age: float = 1.0, leaders: dict[str, LeaderReport] | None = None, **other: Any) -> RouterReport:
    """Return the report of a router."""
    values = {"work": work(age, requests=1.5, errors=0.0), "in_flight": 12, **other}
    return RouterReport(NOW - age, 0, 0.0, leaders={"p": prefill(), "d": decode()} if leaders is None else leaders, **values)


def test_reports_of_routers_are_summed_but_common_leaders_count_once() -> None:
    found, _ = sample([router(), router()], (), {}, 2.0, NOW)
    assert (found.arrivals, found.in_flight, found.errors) == (3.0, 24, 0.0)
    assert (found.waiting, found.running_now, found.requests, found.prompt_tokens) == (3, 40, 2.0, 2e4)
    assert (found.ended, found.output_tokens) == (2.0, 900.0)


def test_the_newest_report_about_a_leader_counts() -> None:
    old = router(leaders={"p": prefill(8.0, 9), "d": decode(8.0, 70)})
    found, _ = sample([old, router()], (), {}, 2.0, NOW)
    assert (found.waiting, found.running_now) == (3, 40)


def test_requests_beyond_the_bound_are_late() -> None:
    assert sample([router()], (), {}, 2.0, NOW)[0].late == pytest.approx(2 / 40)
    assert sample([router()], (), {}, 1.9, NOW)[0].late == pytest.approx(10 / 40)


def test_the_mean_of_running_requests_is_that_of_the_window() -> None:
    first, _ = sample([router()], (), {}, 2.0, NOW)
    recent = [first._replace(at=NOW - 10, running_now=20), first._replace(at=NOW - 90, running_now=500)]
    assert sample([router()], recent, {}, 2.0, NOW)[0].running == 30.0


UNKNOWN = {
    "no router": ([], {"arrivals", "waiting", "running_now", "requests", "ended", "late", "errors", "in_flight"}),
    "a silent router": ([router(), router(30.0)], {"arrivals", "waiting", "running_now", "errors", "in_flight"}),
    "a router without rates": ([router(), router(work=None)], {"arrivals", "errors"}),
    "a router that does not count": ([router(), router(in_flight=None)], {"in_flight"}),
    "a silent prefill leader": ([router(leaders={"p": prefill(), "q": prefill(30.0), "d": decode()})],
                                {"waiting", "requests", "prompt_tokens"}),
    "a prefill leader without a queue": ([router(leaders={"p": prefill(waiting=None), "d": decode()})], {"waiting"}),
    "a silent decode leader": ([router(leaders={"p": prefill(), "d": decode(30.0)})],
                               {"running_now", "ended", "output_tokens", "late"}),
    "no leader": ([router(leaders={})], {"waiting", "running_now", "requests", "ended", "late"}),
}  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_sample_fields_are_none_and_not_zero(name: str) -> None:
    routers, fields = UNKNOWN[name]
    found, _ = sample(routers, (), {}, 2.0, NOW)
    assert {field for field in fields if getattr(found, field) is not None} == set()


def test_prefill_group_is_saturated_if_it_was_busy_for_a_whole_window() -> None:
    kept, found = {}, None
    for step in range(8):
        at = NOW + 10 * step
        busy = LeaderReport("prefill", "serving", LeaderLoad(at, 1, 20), work(-10 * step, requests=2.0, promptTokens=2e4))
        report = RouterReport(at, 0, 0.0, work(-10 * step, requests=9.0), 5, {"p": busy})
        found, kept = sample([report], (), kept, 2.0, at)
        assert found.saturated.groups == (step >= 6)
    assert found is not None and found.saturated == CompletedWork(1, 2.0, 2e4)


def test_queue_shorter_than_completed_requests_does_not_show_saturation() -> None:
    kept: Any = {}
    for step in range(8):
        at = NOW + 10 * step
        busy = LeaderReport("prefill", "serving", LeaderLoad(at, 1, 19), work(-10 * step, requests=2.0))
        found, kept = sample([RouterReport(at, 0, 0.0, None, 5, {"p": busy})], (), kept, 2.0, at)
        assert found.saturated.groups == 0 and found.queued.groups == (step >= 6)


def test_queue_that_was_empty_at_one_reading_does_not_count_for_the_window() -> None:
    kept: Any = {}
    for step in range(12):
        at = NOW + 10 * step
        busy = LeaderReport("prefill", "serving", LeaderLoad(at, 1, 0 if step == 5 else 3), work(-10 * step, requests=2.0))
        found, kept = sample([RouterReport(at, 0, 0.0, None, 5, {"p": busy})], (), kept, 2.0, at)
        assert found.queued == CompletedWork()
