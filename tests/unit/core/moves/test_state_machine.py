"""Tests of each step of a move: what starts, delays, ends and repeats it."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from ome_operator.core.moves.causes import LeavingCause
from ome_operator.core.moves.record import Move, Phase, format_moves, parse_moves
from ome_operator.core.moves.state_machine import (
    JOIN,
    NOTHING_FIRST,
    PAUSE,
    SCHEDULED,
    SETTLE,
    START,
    MovePolicy,
    MovingRole,
    WaitCondition,
    advance,
    lacks_nodes,
    seconds_until_change,
)
from ome_operator.quantity import rfc3339

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
TAINT, ASKED, URGENT = (
    LeavingCause("n0", "taint x"),
    LeavingCause("n0", "ome move", is_requested=True),
    LeavingCause("n0", "ome move", True, True),
)
POLICY, GO = MovePolicy(600.0), MovePolicy(600.0, goes=True)
ROLLOUT, PAUSED = WaitCondition("the rollout of revision b", ends=True), WaitCondition("the end of the pause")


def role(
    existing: str = "01", ready: str = "01", causes: dict[str, LeavingCause] | None = None, wanted: int = 2, **more: object
) -> MovingRole:
    """Return a role with two groups that serve. By default, group 0 must leave because of a taint."""
    found = {"0": TAINT} if causes is None else causes
    values = {"left": set(existing), "joined": set(ready), "placed": set(existing), "unschedulable": set(), "failed": set()}
    return MovingRole(
        component="engine", revision="r", wanted=wanted, existing=tuple(existing), ready=set(ready), causes=found,
        **{**values, "newest": existing[-1:], **more},
    )  # type: ignore[arg-type]  # fmt: skip


def move(phase: Phase, seconds: float = 0, member: str = "0", **more: object) -> Move:
    """Return a move whose phase began this number of seconds ago."""
    return Move("engine", "r", member, phase, rfc3339(NOW - timedelta(seconds=seconds)), "n0", "taint x", **more)  # type: ignore[arg-type]


@dataclass
class Case:
    """A stored move, the groups, and the phase that has to follow. The phase is None if the move has to end."""

    before: Move | None
    role: MovingRole
    phase: Phase | None
    first: WaitCondition = NOTHING_FIRST
    policy: MovePolicy = POLICY
    alone: bool = False


P = Phase
CASES = {
    "nothing leaves": Case(None, role(causes={}), None),
    "a cause is seen": Case(None, role(), P.SETTLING),
    "too young": Case(move(P.SETTLING, SETTLE - 1), role(), P.SETTLING),
    "old enough": Case(move(P.SETTLING, SETTLE), role(), P.REPLACING),
    "gone before it was old enough": Case(move(P.SETTLING, SETTLE), role(causes={}), None),
    "a request does not wait": Case(None, role(causes={"0": ASKED}), P.REPLACING),
    "nothing is wanted": Case(None, role(wanted=0), None),
    "a rollout comes first": Case(move(P.SETTLING, 60), role(), P.WAITING, ROLLOUT),
    "a pause comes first": Case(move(P.WAITING, 60), role(), P.WAITING, PAUSED),
    "an unready group comes first": Case(move(P.WAITING, 60), role(ready="0"), P.WAITING),
    "the group itself is not ready": Case(move(P.WAITING, 60), role(existing="012", ready="12"), P.WAITING),
    "the end of the wait": Case(move(P.WAITING, 60), role(), P.REPLACING),
    "nothing to wait for any more": Case(move(P.WAITING, 60), role(causes={}), None),
    "the replacement starts": Case(move(P.REPLACING, 60), role("012"), P.REPLACING),
    "the replacement is ready, and not in the router yet": Case(
        move(P.REPLACING, 60), role("012", "012", joined={"0", "1"}), P.REPLACING
    ),
    "the replacement serves": Case(move(P.REPLACING, 60), role("012", "012"), P.LEAVING),
    "another group has failed meanwhile": Case(move(P.REPLACING, 60), role("012", "02"), P.REPLACING),
    "a pause in the middle": Case(move(P.REPLACING, 60), role("012", "012"), P.REPLACING, PAUSED),
    "a rollout in the middle": Case(move(P.REPLACING, 60), role("012"), P.WAITING, ROLLOUT),
    "a rollout when the node is back": Case(move(P.REPLACING, 60), role("012", causes={}), None, ROLLOUT),
    "no node before the timeout": Case(move(P.REPLACING, 599), role("012", placed={"0", "1"}), P.REPLACING),
    "no node at the timeout": Case(move(P.REPLACING, 600), role("012", placed={"0", "1"}), P.STAYING),
    "no group could be created at the timeout": Case(move(P.REPLACING, 600), role("01"), P.STAYING),
    "it goes at the timeout": Case(move(P.REPLACING, 600), role("012", placed={"0", "1"}), P.LEAVING, policy=GO, alone=True),
    "on nodes, the start may last": Case(move(P.REPLACING, 600 + START - 1), role("012"), P.REPLACING, policy=GO),
    "but not for ever, and then the group stays": Case(move(P.REPLACING, 600 + START), role("012"), P.STAYING, policy=GO),
    "a replacement that fails says nothing about nodes": Case(
        move(P.REPLACING, 60), role("012", failed={"2"}), P.STAYING, policy=GO
    ),
    "another group was recycled once": Case(move(P.REPLACING, 60), role("012", failed={"1"}), P.REPLACING),
    "the node has been back for a moment": Case(move(P.REPLACING, 60), role("012", causes={}), P.REPLACING),
    "the node has been back for a while": Case(
        move(P.REPLACING, 60, gone=rfc3339(NOW - timedelta(seconds=SETTLE))), role("012", causes={}), P.RETURNED
    ),
    "the group leaves": Case(move(P.LEAVING, 60), role("012", "012"), P.LEAVING),
    "the node comes back while it leaves": Case(move(P.LEAVING, 60), role("012", "012", causes={}), P.LEAVING),
    "the replacement fails while it leaves": Case(move(P.LEAVING, 60), role("012", "01"), P.REPLACING),
    "it is stopped already": Case(move(P.LEAVING, 60), role("12", "1", left={"0", "1", "2"}), P.LEAVING),
    "it leaves without a replacement": Case(move(P.LEAVING, 60, alone=True), role("01", "01"), P.LEAVING, alone=True),
    "it is gone": Case(move(P.LEAVING, 60), role("12", "12", causes={}), None),
    "it is gone, and the next one follows": Case(move(P.LEAVING, 60), role("12", "12", causes={"1": TAINT}), P.SETTLING),
    "it was removed by something else": Case(move(P.REPLACING, 60), role("12", "12", causes={}), None),
    "it stays": Case(move(P.STAYING, 599), role(), P.STAYING),
    "it is tried again": Case(move(P.STAYING, 600), role(), P.REPLACING),
    "the node is back": Case(move(P.STAYING, 60), role(causes={}), None),
    "a pause after a return": Case(move(P.RETURNED, PAUSE - 1), role(), P.RETURNED),
    "the pause holds for the role": Case(move(P.RETURNED, 9), role(causes={"1": TAINT}), P.RETURNED),
    "a request ends the pause": Case(move(P.RETURNED, 9), role(causes={"0": ASKED}), P.REPLACING),
    "the end of the pause": Case(move(P.RETURNED, PAUSE), role(causes={}), None),
    "the end of the pause, and a new cause": Case(move(P.RETURNED, PAUSE), role(), P.SETTLING),
    "the revision is another": Case(move(P.LEAVING, 9)._replace(revision="b"), role(causes={}), None),
    **{
        f"now, at {phase}": Case(move(phase, 9), role(causes={"0": URGENT}), P.LEAVING, ROLLOUT, alone=True)
        for phase in Phase
        if phase is not Phase.LEAVING
    },
}


@pytest.mark.parametrize("case", CASES)
def test_move_advances_to_expected_phase(case: str) -> None:
    facts = CASES[case]
    found = advance(facts.before, facts.role, facts.policy, facts.first, NOW)
    assert (found.phase if found else None) == facts.phase
    assert bool(found and found.alone) == facts.alone
    if found and facts.before and found.phase is facts.before.phase and found.member == facts.before.member:
        assert found.since == facts.before.since, "a phase that continues keeps its start time"


def test_cases_cover_every_move_phase() -> None:
    assert {facts.before.phase for facts in CASES.values() if facts.before} == set(Phase)
    assert {facts.phase for facts in CASES.values()} == {None, *Phase}


def test_future_start_time_of_a_move_counts_as_now() -> None:
    before = move(Phase.REPLACING, -3600, gone=rfc3339(NOW + timedelta(hours=1)))
    found = advance(before, role("012", causes={}), POLICY, NOTHING_FIRST, NOW)
    assert found is not None
    assert (found.since, found.gone) == (rfc3339(NOW), rfc3339(NOW))


BLOCKS = {
    "now": {Phase.LEAVING},
    "asked": {Phase.LEAVING, Phase.REPLACING},
    "taint": set(Phase),
    "asked, as the other was": set(Phase),
}
"""Cause of another group -> the phases of a move for which that group waits."""


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("other", BLOCKS)
def test_whether_a_group_waits_for_the_move_of_another(phase: Phase, other: str) -> None:
    """Whether a group waits for the move of another group depends on the cause of its own move. A request without a
    replacement waits only for a group that is already leaving. An ordinary request also waits for a replacement that is
    starting. A taint waits for every move, and so does a request if the other group was requested in the same way.
    """
    own = ASKED if other.startswith("asked, as") else TAINT
    causes = {"0": own, "1": {"now": URGENT, "taint": TAINT}.get(other, ASKED)}
    groups = role("012", "012", causes, joined={"0", "1"})
    found = advance(move(phase, 9), groups, POLICY, NOTHING_FIRST, NOW)
    assert found is not None
    assert found.member == ("0" if phase in BLOCKS[other] else "1")
    if phase not in BLOCKS[other]:
        assert (found.phase, found.alone) == ((Phase.LEAVING, True) if other == "now" else (Phase.REPLACING, False))


def test_of_two_groups_without_replacement_the_leaving_one_continues() -> None:
    """If two groups leave without replacements, the group that leaves already continues, and the other group does not
    leave before it.
    """
    for phase, member in ((Phase.LEAVING, "0"), (Phase.STAYING, "0")):
        groups = role(causes={"0": URGENT, "1": URGENT})
        found = advance(move(phase, 9, alone=phase is Phase.LEAVING), groups, POLICY, ROLLOUT, NOW)
        assert found is not None
        assert (found.member, found.phase, found.alone) == (member, Phase.LEAVING, True)


def test_group_stays_at_least_five_minutes_before_it_moves_again() -> None:
    """A group whose move has timed out stays for at least PAUSE seconds before it moves again, even if the timeout of moves
    is shorter. Otherwise, while no node is free, a replacement would be created and removed every few seconds.
    """
    short = MovePolicy(20.0)
    for seconds, phase in ((PAUSE - 1, Phase.STAYING), (PAUSE, Phase.REPLACING)):
        before = move(Phase.STAYING, seconds)
        found = advance(before, role(), short, NOTHING_FIRST, NOW)
        assert found is not None
        assert found.phase is phase
    assert seconds_until_change(move(Phase.STAYING, 5), role(), short, NOW) == PAUSE - 5


def test_user_request_precedes_a_taint_and_lowest_number_is_first() -> None:
    for causes, member in (({"0": TAINT, "1": TAINT}, "0"), ({"0": TAINT, "1": ASKED}, "1")):
        found = advance(None, role(causes=causes), POLICY, NOTHING_FIRST, NOW)
        assert found is not None
        assert found.member == member


def test_move_continues_with_the_group_it_started_with() -> None:
    groups = role("012", causes={"0": ASKED, "1": TAINT})
    found = advance(move(Phase.REPLACING, 9, member="1"), groups, POLICY, NOTHING_FIRST, NOW)
    assert found is not None
    assert found.member == "1"


def test_replacement_is_the_newest_surplus_group() -> None:
    for existing, newest, replacement in (("01", "1", ""), ("012", "2", "2"), ("012", "0", "")):
        found = advance(move(Phase.REPLACING, 9), role(existing, newest=newest), POLICY, NOTHING_FIRST, NOW)
        assert found is not None
        assert found.replacement == replacement


WAITS = {
    "settling": (move(Phase.SETTLING, 5), role(), SETTLE - 5),
    "waiting": (move(Phase.WAITING, 5), role(), None),
    "scheduling": (move(Phase.REPLACING, 4), role("012"), SCHEDULED - 4),
    "replacing": (move(Phase.REPLACING, 15), role("012"), 585),
    "starting": (move(Phase.REPLACING, 700), role("012"), START - 100),
    "joining": (move(Phase.REPLACING, 15), role("012", "012", joined={"0"}), JOIN),
    "gone": (move(Phase.REPLACING, 60, gone=rfc3339(NOW - timedelta(seconds=5))), role("012", causes={}), SETTLE - 5),
    "leaving": (move(Phase.LEAVING, 5), role("012"), None),
    "staying": (move(Phase.STAYING, 5), role(), 595),
    "returned": (move(Phase.RETURNED, 5), role(), PAUSE - 5),
}


@pytest.mark.parametrize("case", WAITS)
def test_seconds_until_the_move_state_changes(case: str) -> None:
    before, groups, seconds = WAITS[case]
    assert seconds_until_change(before, groups, POLICY, NOW) == seconds


@pytest.mark.parametrize(
    ("seconds", "placed", "unschedulable", "lacks"),
    [(1, "01", "", False), (1, "01", "2", True), (SCHEDULED, "01", "", True), (SCHEDULED, "012", "", False)],
)
def test_newly_created_pods_do_not_count_as_lacking_nodes(
    seconds: float, placed: str, unschedulable: str, lacks: bool
) -> None:
    before = move(Phase.REPLACING, seconds, replacement="2")
    assert lacks_nodes(before, role("012", placed=set(placed), unschedulable=set(unschedulable)), NOW) == lacks


def test_moves_survive_status_round_trip() -> None:
    moves = [
        move(Phase.REPLACING, 9, replacement="2", gone=rfc3339(NOW)),
        move(Phase.LEAVING, 9, alone=True)._replace(component="router", member="svc-router-1", node="", cause=""),
    ]
    assert list(parse_moves({"moves": list(format_moves(moves))}).values()) == moves
    assert parse_moves({"moves": [{"component": "engine", "group": 0, "phase": "Unheard"}, {"phase": "Leaving"}, {}]}) == {}
