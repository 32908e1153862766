"""Tests of the states of a service whose groups have no nodes."""

from datetime import UTC, datetime, timedelta

import pytest

from ome_operator.core.placement import timing
from ome_operator.core.placement.attempts import Decision, Record, SeenGroups, advance, has_rested

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ASKED = SeenGroups({"engine": 1, "decoder": 1}, {}, {})


def after(
    record: Record | None, seconds: float, timeout: float, seen: SeenGroups = ASKED, turn: bool | None = None
) -> Decision:
    return advance(record, seen, turn=turn, contested=False, timeout=timeout, now=NOW + timedelta(seconds=seconds))


@pytest.mark.parametrize("timeout", [1.0, 60.0, 1200.0, 365 * 86400.0])
def test_attempt_ends_at_its_timeout_whether_short_or_long(timeout: float) -> None:
    begun = after(None, 0, timeout)
    assert begun.record is not None and begun.again == timeout and not begun.failed
    going = after(begun.record, timeout - 0.5, timeout)
    assert going.record is not None and going.record.trying and going.again == 0.5
    ended = after(going.record, timeout, timeout)
    assert ended.failed and ended.record is not None and not ended.record.trying
    assert ended.record.waiting == {"engine": 1, "decoder": 1}


def test_failing_attempts_with_a_short_timeout_are_delayed() -> None:
    """With a time limit of one second, attempts to place a gang that fail although the pods seem to fit are not repeated
    without end: they are made after 0, 1, 2, 5, 5, … minutes.
    """
    record, second, begun = after(None, 0, 1).record, 0.0, 0
    while second < 3600:
        assert record is not None
        ready = not record.trying and has_rested(record, NOW + timedelta(seconds=second))
        begun += ready
        record = after(record, second, 1, turn=True if ready else None).record
        second += 1
    assert begun <= 3600 / timing.PAUSES[-1].total_seconds() + 3


def test_priority_of_a_gang_is_kept_while_it_has_no_pods() -> None:
    ended = after(Record({}, NOW.isoformat(), priority=7), 60, 60)
    assert ended.record is not None and ended.record.priority == 7
    again = after(ended.record, 100, 60, turn=True)
    assert again.record is not None and again.record.trying and again.record.priority == 7


PENDING = ASKED._replace(half=False)
HALF = SeenGroups({"engine": 1, "decoder": 1}, {"engine": 1}, {}, half=True)


def idle(hours: float = 1.0) -> Record:
    """Return the record of a service whose pods have held no node for this time."""
    record = after(None, 0, 60, PENDING).record
    for second in (59, 60, 3600 * hours):
        decision = after(record, second, 60, PENDING)
        assert decision.record is not None and decision.record.trying and not decision.failed
        record = decision.record
    assert record is not None and record.since == ""
    return record


def test_unplaced_pods_are_kept_while_no_other_service_waits() -> None:
    """Pods that hold no node stay as long as no other service waits for nodes. They may wait for an autoscaler that reports
    nothing, for volumes, or for a scheduler that is down, and removing them would free no capacity.
    """
    assert idle(24).waiting == {}


def test_timeout_of_an_attempt_starts_when_its_first_rank_is_placed() -> None:
    """The time limit of an attempt begins when the first rank of the gang is on a node, because an autoscaler adds its nodes
    one after the other.
    """
    begun = after(idle(), 4000, 60, HALF)
    assert begun.again == 60 and begun.record is not None and begun.record.trying
    going = after(begun.record, 4059, 60, HALF)
    assert going.again == 1
    ended = after(going.record, 4060, 60, HALF)
    assert ended.failed and ended.record is not None and ended.record.waiting == {"engine": 1, "decoder": 1}


def test_unplaced_pods_are_removed_for_others_and_keep_their_queue_position() -> None:
    now = NOW + timedelta(seconds=7200)
    made_way = advance(idle(), PENDING, turn=None, contested=True, timeout=60, now=now)
    assert made_way.record is not None and made_way.record.waiting == {"engine": 1, "decoder": 1}
    assert not made_way.failed, "no attempt has ended, so foreign pods are not read"
    assert made_way.record.first == (NOW + timedelta(seconds=60)).isoformat()


def test_contested_attempt_gets_its_full_timeout() -> None:
    record = after(None, 0, 60, PENDING).record
    for second, trying in ((30, True), (60, False)):
        now = NOW + timedelta(seconds=second)
        record = advance(record, PENDING, turn=None, contested=True, timeout=60, now=now).record
        assert record is not None and record.trying is trying


@pytest.mark.parametrize(
    "before", [None, Record({"engine": 1}, "T1", first="T0", trying=False), Record({}, "T1", first="T0", tries=2)]
)
def test_released_group_waits_together_with_groups_that_already_waited(before: Record | None) -> None:
    """A decode group that had served releases its nodes, and waits together with the groups that already waited. During
    this time, two of three prefill groups serve.
    """
    seen = SeenGroups({"engine": 3, "decoder": 2}, {"engine": 2, "decoder": 1}, {"engine": 2, "decoder": 1})
    found = advance(before, seen, turn=None, contested=False, timeout=60, now=NOW, gives_way=True)
    assert found.record is not None and not found.record.trying and found.again == 0
    assert found.record.waiting == {"engine": 1, "decoder": 1}
    assert found.record.first == (before.first if before else NOW.isoformat())


def test_fully_released_service_does_not_count_as_served_until_it_serves() -> None:
    """A service that has released all its nodes does not count as one that has served until it serves again. In the next
    attempt, all of its ranks get nodes, and one loses its node again before anything is ready.
    """
    seen = SeenGroups({"engine": 1, "decoder": 1}, {}, {})
    given = advance(None, seen, turn=None, contested=False, timeout=60, now=NOW, gives_way=True).record
    assert given is not None and given.anew
    tries = after(given, 10, 60, turn=True).record
    bound = after(tries, 20, 60, SeenGroups(seen.wanted, {"engine": 1, "decoder": 1}, {}))
    assert bound.record is not None and bound.record.anew and not bound.record.waiting
    half = SeenGroups(seen.wanted, {"decoder": 1}, {})
    begun = after(bound.record, 100, 60, half)
    assert begun.record is not None and begun.again == 60, "the time of the attempt starts again"
    ended = after(begun.record, 160, 60, half)
    assert ended.failed and ended.record is not None and ended.record.waiting == {"engine": 1, "decoder": 1}
    assert (
        after(bound.record._replace(anew=False), 20, 60, SeenGroups(seen.wanted, {"engine": 1, "decoder": 1}, {})).record
        is None
    )
