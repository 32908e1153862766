"""Tests of the messages about a rollout."""

from datetime import datetime, timedelta

from ome_operator.core.rollout.planner import Bounds, GroupCounts, ReplicaCounts
from ome_operator.core.rollout.step import RolloutStep
from ome_operator.core.status.rollout import hold_fields, meets_bounds, progress_message

NOW = datetime(2026, 1, 1)
WANTED = {"engine": 2, "decoder": 4}


def some(have: int, ready: int) -> GroupCounts:
    """Return the counts of groups, of which this number is ready."""
    return GroupCounts(have, tuple(number < ready for number in range(have)), have)


OLD = {"engine": some(2, 2), "decoder": some(3, 3)}
NEW = {"engine": some(1, 1), "decoder": some(2, 2)}
ONE = Bounds({}, {"engine": 1, "decoder": 1})
NUMBERS = ReplicaCounts({"old": WANTED, "new": WANTED}, {"old": OLD, "new": NEW}, {"old": OLD, "new": NEW}, ONE)


def test_progress_message_counts_new_and_draining_groups() -> None:
    decision = RolloutStep({"old": {"engine": 1, "decoder": 2}, "new": {"engine": 1, "decoder": 2}}, reason="RollingOut")
    said = "prefill 1/2 new, decode 2/4 new, old prefill draining (1), old decode draining (1)"
    assert progress_message("new", decision, NUMBERS) == said


def test_progress_message_counts_unready_groups_of_the_old_slice() -> None:
    seen = {"old": {"engine": some(2, 1), "decoder": GroupCounts(3, (True,) * 3, 4)}}
    numbers = NUMBERS._replace(built=seen, observed_counts=seen)
    decision = RolloutStep({"old": {"engine": 2, "decoder": 3}}, reason="RollingOut")
    assert (
        progress_message("new", decision, numbers)
        == "prefill 0/2 new, decode 0/4 new, old prefill 1/2 ready, old decode ending (1)"
    )


def test_progress_message_states_what_the_old_slice_waits_for() -> None:
    decision = RolloutStep({"new": WANTED}, reason="RetiringOldSlice", message="old router draining (revision old)")
    assert (
        progress_message("new", decision, NUMBERS) == "prefill 1/2 new, decode 2/4 new, old router draining (revision old)"
    )


WAITS = RolloutStep({"old": WANTED}, reason="Paused", message="revision new waits", held=True)


def test_progress_message_is_only_the_reason_before_anything_is_replaced() -> None:
    assert progress_message("new", WAITS, NUMBERS) == "revision new waits"


def test_hold_keeps_its_time_while_gate_and_target_are_the_same() -> None:
    first = hold_fields("new", WAITS, {}, NOW)
    assert first == {"gate": "Paused", "reason": "revision new waits", "target": "new", "since": "2026-01-01T00:00:00"}
    later = NOW + timedelta(minutes=5)
    assert hold_fields("new", WAITS, first, later) == first
    assert hold_fields("newer", WAITS, first, later)["since"] == "2026-01-01T00:05:00"
    assert hold_fields("new", RolloutStep({"new": WANTED}), first, later) == {}


def test_scaled_is_true_during_a_rollout_within_its_bounds() -> None:
    assert meets_bounds("new", NUMBERS) is True
    dark = {role: some(one.existing, 0) for role, one in OLD.items()}
    assert meets_bounds("new", NUMBERS._replace(observed_counts={"old": dark, "new": NEW})) is True, (
        "the limit is half of it"
    )
    assert meets_bounds("new", NUMBERS._replace(observed_counts={"old": dark, "new": dark})) is False
    assert meets_bounds("new", NUMBERS._replace(observed_counts={"old": OLD})) is None
