"""Tests of what the registry observes at the end of an engine's start."""

from typing import Any

import pytest

from ome_operator.registry.records import LeaderState
from ome_operator.registry.starting import (
    READ_WITHIN,
    SILENCE,
    SOON,
    StartSigns,
    event_ages,
    healthy_seconds,
    is_due,
    is_expected,
    with_health_answer,
    with_leader_state,
    with_router_count,
)


def leader(**more: Any) -> LeaderState:
    """Return a leader that is starting."""
    base = LeaderState("p", "u", "http://10.0.0.1:1", "decode", "waiting", "the leader is not ready", False, None, True)
    return base._replace(**more)


def seen(*statuses: int | None, before: StartSigns | None = None) -> StartSigns:
    """Return what is known after these answers, one each second from second 0 on."""
    signs = with_leader_state(StartSigns(), leader(), 0.0) if before is None else before
    for now, status in enumerate(statuses):
        signs = with_health_answer(signs, status, float(now))
    return signs


def test_each_time_of_a_start_is_known_to_the_second() -> None:
    signs = seen(None, None, 503, 503, 200)
    for now, listed in ((6.0, False), (7.0, True)):
        signs = with_leader_state(signs, leader(is_starting=False, listed=listed), now)
    assert event_ages(signs, 10.0) == {"answersFor": 8.0, "healthyFor": 6.0, "listedFor": 3.0}


def test_start_time_is_unknown_without_the_preceding_state() -> None:
    assert event_ages(seen(503, 200), 2.0) == {"healthyFor": 1.0}, "the server answered before this registry asked"
    assert event_ages(seen(200), 2.0) == {}
    listed = with_leader_state(StartSigns(), leader(is_starting=False, listed=True), 0.0)
    assert event_ages(listed, 5.0) == {}, "the router listed it before this registry ran"


def test_first_time_is_kept_but_health_may_restart() -> None:
    signs = with_leader_state(seen(None, 200, 503, 200, 200), leader(is_starting=False, listed=True), 5.0)
    for state in (leader(is_starting=False), leader(is_starting=False, listed=True)):
        signs = with_leader_state(signs, state, 9.0)
    assert event_ages(signs, 10.0) == {"answersFor": 9.0, "healthyFor": 7.0, "listedFor": 5.0}


def test_second_start_begins_without_signs() -> None:
    signs = with_leader_state(seen(None, 503, 200), leader(is_starting=False, listed=True), 3.0)
    assert event_ages(with_leader_state(signs, leader(), 60.0), 61.0) == {}


def test_restarted_container_begins_without_signs() -> None:
    """If a container was started again, the results of the previous container do not count for it. The container may end
    and start between two reconciliations, so that no reconciliation sees it stopped.
    """
    signs = seen(None, 503, 200)
    assert with_leader_state(signs, leader(), 3.0).healthy_at == 2.0, "the same container"
    assert with_leader_state(signs, leader(started=50.0), 3.0) == StartSigns(
        is_starting=True, started_at=50.0, was_unlisted=True
    )
    assert healthy_seconds(seen(200, before=with_leader_state(signs, leader(started=50.0), 3.0)), 4.0) is None


def test_engine_is_read_until_its_answers_prove_nothing_new() -> None:
    """The registry asks an engine for its health until the leader is ready, unless the answers prove nothing. Only an
    engine that has called itself unhealthy before proves its health by a later answer.
    """
    assert is_due(seen()) and is_due(seen(None, 503)) and is_due(seen(503, 200)) and is_due(seen(503, 200, 404))
    assert not is_due(seen(None, 200)) and not is_due(seen(404)) and not is_due(StartSigns())
    assert not is_due(with_leader_state(seen(503, 200), leader(is_starting=False), 2.0))
    assert with_health_answer(StartSigns(), 200, 1.0) == StartSigns(), "this leader is not starting"


def test_a_leader_is_expected_for_a_minute() -> None:
    signs = seen(None, 404)
    assert is_expected(signs, 1.0) and is_expected(signs, 1.0 + SOON) and not is_expected(signs, 1.1 + SOON)
    assert not is_expected(seen(None, 503), 1.0)
    assert not is_expected(with_leader_state(signs, leader(is_starting=False), 2.0), 2.0), "the leader is ready"


def test_engine_is_proven_healthy_if_it_was_unhealthy_before() -> None:
    assert healthy_seconds(seen(None, 503, 503, 200), 4.5) == 1.5
    assert healthy_seconds(seen(503, 200), 2.0) == 1.0
    assert healthy_seconds(seen(None, 200), 2.0) is None, "some engines answer 200 before their warm-up"
    assert healthy_seconds(seen(None, 503, 404), 3.0) is None and healthy_seconds(seen(None, 503), 3.0) is None
    ready = with_leader_state(seen(None, 503, 200), leader(is_starting=False), 3.0)
    assert healthy_seconds(ready, 4.0) is None, "Kubernetes has reported it as ready"


@pytest.mark.parametrize("status", [503, 500, 404, 302])
def test_any_other_status_ends_the_health(status: int) -> None:
    signs = seen(None, 503, 200, status)
    assert healthy_seconds(signs, 3.0) is None and event_ages(signs, 3.0).keys() == {"answersFor"}
    assert healthy_seconds(with_health_answer(signs, 200, 4.0), 5.0) == 1.0


def test_long_silence_ends_the_health_but_one_late_answer_does_not() -> None:
    signs = seen(503, 200, 200)
    for late in (3.0, 3.0 + SILENCE - 0.1):
        signs = with_health_answer(signs, None, late)
        assert healthy_seconds(signs, late) == late - 1.0
    heard = with_health_answer(with_health_answer(signs, 200, 9.0), None, 9.0 + SILENCE)
    assert healthy_seconds(heard, 20.0) == 19.0, "a new silence begins"
    assert healthy_seconds(with_health_answer(signs, None, 3.0 + SILENCE), 20.0) is None


# --- the first answer to a request --------------------------------------------------------------------------------------

LISTED = leader(is_starting=False, listed=True)


def served(*counts: float, before: float | None = 7.0, every: float = 2.0) -> StartSigns:
    """Return what is known about a leader that was listed at second 2, after these readings from second 3 on. `before` is
    the number of answers in the last reading before the router listed the leader.
    """
    signs = with_leader_state(with_leader_state(StartSigns(), leader(), 0.0, before), LISTED, 2.0, before)
    for number, succeeded in enumerate(counts):
        now = 3.0 + number * every
        signs = with_router_count(signs, succeeded, now, now - every)
    return signs


def test_first_answer_is_the_first_one_after_the_router_listed_the_leader() -> None:
    assert event_ages(served(7, 7, 8, 30), 10.0) == {"listedFor": 8.0, "succeededFor": 3.0}, (
        "7 are of an earlier pod or container"
    )
    assert event_ages(served(1, before=0.0), 10.0)["succeededFor"] == 7.0


def test_first_answer_is_unknown_without_new_successes() -> None:
    assert served(7, 7, 7).succeeded_at is None and served().succeeded_at is None


def test_first_answer_is_unknown_without_a_preceding_reading() -> None:
    assert served(7, 8, before=None).succeeded_at is None, "the router was not read before it listed the leader"
    was_listed = with_router_count(with_leader_state(StartSigns(), LISTED, 2.0, 7.0), 8.0, 3.0, 1.0)
    assert was_listed.succeeded_at is None, "the router listed it before this registry ran"
    assert served(8, every=READ_WITHIN + 0.1).succeeded_at is None, "the router was not read in time"
    assert served(8, every=READ_WITHIN).succeeded_at == 3.0


def test_a_router_that_restarts_ends_the_wait_for_the_first_answer() -> None:
    assert served(7, 0, 0, 9).succeeded_at is None
    assert served(7, 8, 0).succeeded_at == 5.0, "it was known before"


def test_answer_before_the_registry_sees_the_listed_leader_counts() -> None:
    signs = with_router_count(with_leader_state(StartSigns(), leader(), 0.0, 7.0), 8.0, 1.5, 0.0)
    assert event_ages(with_leader_state(signs, LISTED, 2.0, 8.0), 3.0) == {"listedFor": 1.0, "succeededFor": 1.5}


def test_later_removal_from_the_list_keeps_the_first_answer() -> None:
    signs = with_leader_state(served(7), leader(is_starting=False), 6.0, 7.0)
    assert with_router_count(with_leader_state(signs, LISTED, 7.0, 7.0), 8.0, 8.0, 6.0).succeeded_at == 8.0
    assert with_leader_state(served(8), leader(started=5.0), 9.0, 8.0) == StartSigns(
        is_starting=True, started_at=5.0, was_unlisted=True, succeeded=8.0
    ), "a container that starts again begins with the present number"
