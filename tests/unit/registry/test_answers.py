"""Tests of when a leader is probed because it answers no request, and of what a probe proves."""

from collections.abc import Sequence

import pytest

from ome_operator.registry.answers import (
    PROBE,
    QUIET,
    STALE,
    AnswerSigns,
    RouterCounts,
    evaluate_probe,
    is_due,
    with_probe_result,
    with_router_counts,
)
from ome_operator.registry.engine_load import EngineLoad
from ome_operator.registry.pages import parse_worker_counts
from ome_operator.registry.silence import LATE, RETRY, RETRY_SILENT, ProbeResult

NEW = AnswerSigns()
ANSWERED, FAILED, PAUSED, UNCLEAR = ProbeResult.ANSWERED, ProbeResult.FAILED, ProbeResult.PAUSED, ProbeResult.UNCLEAR


def reading(*taken: float, running: float = 0, waiting: float | None = 0) -> EngineLoad:
    """Return the load of an engine whose ranks took their readings at the times `taken`. `waiting` is None if the engine
    does not report waiting requests.
    """
    return EngineLoad(running, waiting, 0, 0, running, taken)


IDLE = [reading(at) for at in (1.0, 1.5, 2.0, 2.5)]
BUSY = [reading(at, running=3) for at in (1.0, 1.5, 2.0, 2.5)]


def read(signs: AnswerSigns, *readings: tuple[float, float, float]) -> AnswerSigns:
    """Return what is known after readings of (time, active requests, answered requests)."""
    for now, active, succeeded in readings:
        signs = with_router_counts(signs, RouterCounts(active, succeeded), now)
    return signs


def test_a_leader_with_requests_and_without_answers_is_probed() -> None:
    signs = read(NEW, (10, 2, 7), (12, 2, 7))
    assert not is_due(signs, 10 + QUIET - 0.1) and is_due(signs, 10 + QUIET)


@pytest.mark.parametrize(
    "readings",
    [
        [(10.0, 0.0, 7.0), (12.0, 0.0, 7.0)],
        [(10.0, 2.0, 7.0), (12.0, 0.0, 7.0)],
        [(10.0, 2.0, 7.0), (12.0, 2.0, 8.0)],
        [(10.0, 2.0, 7.0), (12.0, 2.0, 0.0)],
    ],
    ids=["it has no request", "its requests have ended", "it has answered", "the router has restarted"],
)
def test_another_leader_is_not_probed(readings: list[tuple[float, float, float]]) -> None:
    assert not is_due(read(NEW, *readings), 10 + QUIET - 0.1)
    assert not is_due(read(NEW, *readings, (14, 2, readings[-1][2])), 10 + QUIET - 0.1)


def test_answered_probe_is_repeated_only_after_the_quiet_time() -> None:
    signs = with_probe_result(read(NEW, (10, 2, 7)), ANSWERED, IDLE, 15, 16)
    assert not is_due(signs, 16 + QUIET - 0.1) and is_due(signs, 16 + QUIET)


def test_two_failed_probes_make_a_leader_mute_until_it_answers() -> None:
    signs = with_probe_result(read(NEW, (10, 2, 7)), FAILED, IDLE, 15, 18)
    assert not signs.returns_no_token and not is_due(signs, 18 + RETRY - 0.1) and is_due(signs, 18 + RETRY)
    signs = with_probe_result(signs, FAILED, IDLE, 19, 22)
    assert signs.returns_no_token and signs.is_proven and (signs.proven_since, signs.proven_at) == (15, 22)
    signs = read(signs, (24, 0, 7))
    assert signs.returns_no_token and not is_due(signs, 22 + RETRY_SILENT - 0.1) and is_due(signs, 22 + RETRY_SILENT)
    assert not with_probe_result(signs, ANSWERED, (), 27, 28).returns_no_token
    assert not read(signs, (26, 1, 8)).returns_no_token, "the router has received an answer"
    assert not with_probe_result(signs, PAUSED, IDLE, 27, 30).returns_no_token


def test_busy_engine_with_failed_probes_is_mute_but_not_proven() -> None:
    signs = read(NEW, (10, 2, 7))
    for began in (15, 19):
        signs = with_probe_result(signs, FAILED, BUSY, began, began + 3)
    assert signs.returns_no_token and not signs.is_proven and is_due(signs, 22 + RETRY), "the next probe may prove it"
    ended = [*BUSY, reading(9.0)]
    assert not with_probe_result(signs, FAILED, ended, 27, 30).is_proven, "the engine may be loading new weights"
    arrived = [*BUSY, reading(9.0, running=4)]
    assert with_probe_result(signs, FAILED, arrived, 27, 30).proven_since == 27, "a request came after the probe"
    assert with_probe_result(signs, FAILED, IDLE, 27, 30).proven_since == 27


def test_two_consecutive_proofs_also_prove_preceding_failed_probes() -> None:
    signs = read(NEW, (10, 2, 7))
    for began, loads, since in ((15, BUSY, None), (20, IDLE, 20), (25, IDLE, 15)):
        signs = with_probe_result(signs, FAILED, loads, began, began + 4)
        assert signs.proven_since == since
    signs = with_probe_result(read(NEW, (10, 2, 7)), FAILED, BUSY, 15, 19)
    signs = with_probe_result(signs, UNCLEAR, BUSY, 20, 24)
    for began in (25, 30, 35):
        signs = with_probe_result(signs, FAILED, IDLE, began, began + 4)
        assert signs.proven_since == 25, "the probe before them proved nothing"


def test_unclear_probe_ends_the_proof_but_not_the_mute_state() -> None:
    first = with_probe_result(read(NEW, (10, 2, 7)), FAILED, IDLE, 15, 18)
    assert with_probe_result(first, UNCLEAR, IDLE, 19, 22).failures == 1
    mute = with_probe_result(first, FAILED, IDLE, 19, 22)
    unclear = with_probe_result(mute, UNCLEAR, IDLE, 27, 30)
    assert unclear.returns_no_token and not unclear.is_proven
    assert with_probe_result(unclear, FAILED, IDLE, 35, 38).proven_since == 15
    assert with_probe_result(unclear, FAILED, IDLE, 22 + STALE + 1, 22 + STALE + 4).proven_since == 22 + STALE + 1


def test_probe_during_a_suspended_process_proves_nothing() -> None:
    assert with_probe_result(read(NEW, (10, 2, 7)), FAILED, IDLE, 15, 15 + PROBE + LATE + 0.1).failures == 0


WAITING = [*BUSY[:2], reading(2.0, waiting=1), reading(2.5, running=1)]
RANKS = [reading(at, 1.0) for at in (1.0, 1.5, 2.0, 2.5)]


@pytest.mark.parametrize(
    ("status", "loads", "ready", "expected"),
    [
        (200, [], None, ANSWERED),
        (401, [], None, UNCLEAR),
        (503, IDLE, 200, UNCLEAR),
        (None, IDLE, 200, UNCLEAR),
        (0, IDLE, 200, FAILED),
        (0, BUSY, 200, FAILED),
        (0, IDLE[:3], 200, FAILED),
        (0, IDLE[:2], 200, UNCLEAR),
        (0, BUSY[:3], 200, UNCLEAR),
        (0, [*BUSY[:2], reading(2.0)], 200, FAILED),
        (0, WAITING, 200, UNCLEAR),
        (0, RANKS, 200, UNCLEAR),
        (0, [*IDLE[:2], None, *IDLE[2:]], 200, FAILED),
        (0, [*WAITING, *(reading(at, running=1) for at in (3.0, 3.5, 4.0))], 200, FAILED),
        (0, [*BUSY, reading(3.0, waiting=2)], 200, UNCLEAR),
        (0, [*BUSY, reading(3.0, 3.0, running=1)], 200, UNCLEAR),
        (0, [reading(waiting=0) for _ in range(4)], 200, UNCLEAR),
        (0, [reading(at, waiting=None) for at in (1.0, 1.5, 2.0, 2.5)], 200, UNCLEAR),
        (0, [], 200, UNCLEAR),
        (0, IDLE, 404, UNCLEAR),
        (0, IDLE, None, UNCLEAR),
    ],
)
def test_probe_result_is_judged_from_answers_and_load(
    status: int | None, loads: Sequence[EngineLoad | None], ready: int | None, expected: ProbeResult
) -> None:
    assert evaluate_probe(NEW, status, loads, ready, 200) is expected


def test_first_failed_probe_does_not_count_if_the_engine_may_be_paused() -> None:
    assert evaluate_probe(NEW, 0, IDLE, 503, 200) is PAUSED
    assert evaluate_probe(NEW, 0, IDLE, 503, 503) is UNCLEAR
    was_ready = with_probe_result(read(NEW, (10, 2, 7)), FAILED, IDLE, 15, 18)
    assert evaluate_probe(was_ready, 0, IDLE, 503, 503) is FAILED, (
        "an engine without answers calls itself unhealthy after 20 s"
    )


def test_worker_counts_are_parsed_from_router_metrics() -> None:
    page = """
smg_worker_cb_outcomes_total{worker="http://a:1",outcome="success"} 4
smg_worker_cb_outcomes_total{worker="http://a:1",outcome="failure"} 9
smg_worker_requests_active{worker="http://a:1"} 2
smg_worker_requests_active{worker="http://b:1@0"} 1
smg_worker_requests_active{worker="http://b:1@1"} 1
smg_worker_cb_outcomes_total{worker="http://b:1@1",outcome="success"} 3
smg_worker_requests_active{worker="http://c:1"} NaN
"""
    assert parse_worker_counts(page) == {"http://a:1": (2, 4), "http://b:1": (2, 3)}
