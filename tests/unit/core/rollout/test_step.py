"""Tests of the next step from the existing slices towards a single slice of the target revision."""

import pytest

from ome_operator.core.observed.objects import Child
from ome_operator.core.observed.slices import Slice
from ome_operator.core.reasons import Reason
from ome_operator.core.rollout.planner import Bounds, GroupCounts, ReplicaCounts
from ome_operator.core.rollout.step import OPEN, RolloutGate, RolloutStep, decide_step
from tests.unit.core.rollout.makers import BUDGET, LEADERS, ROUTER, pod

CLOSED = RolloutGate("Paused", "revision new waits")
NO_ROOM = RolloutGate("DoesNotFit", "revision new does not fit")
RECREATE = Bounds({}, {"engine": 1}, alone=True)
WANTED = {"engine": 1}


def whole(revision: str) -> Slice:
    """Return a slice that runs."""
    return Slice(revision, (ROUTER, LEADERS, BUDGET), (pod("p"),))


def gone(revision: str, *left: Child) -> Slice:
    """Return a slice of which only these objects are left."""
    return Slice(revision, left, ())


def decided(
    target: str, *present: Slice, gate: RolloutGate = OPEN, ahead: str = "", bounds: Bounds = RECREATE
) -> RolloutStep:
    """Return the decision about these slices, each of which has one engine group."""
    names = {one.revision for one in present}
    seen = {one.revision: {"engine": groups(one)} for one in present}
    numbers = ReplicaCounts(dict.fromkeys(names | {target}, WANTED), seen, seen, bounds)
    return decide_step("svc", target, {one.revision: one for one in present}, gate, numbers, ahead)


def groups(one: Slice) -> GroupCounts:
    """Return the counts of a group that is ready as long as its leaders exist."""
    have = int(LEADERS in one.workloads)
    return GroupCounts(have, (True,) * have, len(one.pods))


def test_a_first_slice_starts_at_once() -> None:
    assert decided("new") == RolloutStep({"new": WANTED}, alone=True)


def test_a_first_slice_that_may_not_start_says_why() -> None:
    found = decided("new", gate=CLOSED)
    assert (found.keep, found.reason, found.rolls) == ((), "Paused", False)


def test_nothing_to_run_touches_nothing() -> None:
    assert decided("", whole("old")) == RolloutStep({}, reason="NothingToRun")


def test_a_closed_gate_keeps_the_old_slice_whole() -> None:
    found = decided("new", whole("old"), gate=CLOSED)
    assert (found.keep, found.delete, found.reason) == (("old",), (), "Paused")


def test_a_service_waits_for_its_turn_before_anything_is_taken_away() -> None:
    found = decided("new", whole("old"), ahead="team/other")
    assert (found.keep, found.delete, found.reason, found.rolls) == (("old",), (), "WaitingForTurn", True)


def test_the_old_slice_goes_first() -> None:
    found = decided("new", whole("old"))
    assert (found.keep, [one.name for one in found.delete], found.rolls) == ((), ["router"], True)


def test_the_new_one_comes_when_nothing_is_left_but_budgets() -> None:
    found = decided("new", gone("old", BUDGET))
    assert (found.keep, found.delete, found.alone) == (("new",), (), True)
    found = decided("new", whole("new"), gone("old", BUDGET))
    assert (found.keep, [one.name for one in found.delete]) == (("new",), ["budget"])


def test_a_target_that_runs_stays_while_the_others_go() -> None:
    found = decided("new", whole("new"), whole("old"))
    assert (found.keep, [item.name for item in found.delete], found.rolls) == (("new",), ["router"], True)


def test_a_gate_that_closes_half_way_stops_where_it_is() -> None:
    """If the new pods of a rollout find no capacity any more, no further group of the old slice is removed. The service
    keeps its admission to the shared edit.
    """
    found = decided("new", whole("new"), whole("old"), gate=NO_ROOM)
    assert (found.keep, found.delete, found.rolls, found.held) == (("old", "new"), (), True, True)
    assert (found.reason, found.message) == (NO_ROOM.reason, NO_ROOM.message)


def test_a_target_alone_is_kept_whatever_the_gate_says() -> None:
    assert decided("new", whole("new"), gate=CLOSED) == RolloutStep({"new": WANTED}, alone=True)


def test_of_several_old_slices_all_go() -> None:
    found = decided("new", whole("a"), gone("b", LEADERS))
    assert [one.name for one in found.delete] == ["router", LEADERS.name]


@pytest.mark.parametrize(("gate", "ahead"), [(CLOSED, ""), (OPEN, "team/other")])
def test_what_is_half_gone_is_made_whole_again_while_nothing_else_may_start(gate: RolloutGate, ahead: str) -> None:
    assert decided("new", gone("a", BUDGET), gone("b", ROUTER, BUDGET), gate=gate, ahead=ahead).keep == ("b",)
    assert decided("new", gone("a", BUDGET), whole("c"), gone("d", ROUTER), gate=gate, ahead=ahead).keep == ("c",)
    assert decided("new", gone("a", BUDGET), gate=gate, ahead=ahead).keep == ("a",)
    assert decided("new", gone("a"), gate=gate, ahead=ahead).keep == ()


def test_a_check_that_is_under_way_rebuilds_nothing() -> None:
    """While the checks of a rollout are repeated after a restart of the operator, removed groups are not created again."""
    assert decided("new", gone("old", ROUTER), gate=RolloutGate(Reason.CHECKING, "")).keep == ()


def test_during_a_check_a_group_that_leaves_is_not_replaced_twice() -> None:
    """Two groups exist of the one that is desired, because one of them leaves its node. One of them is kept: if two were
    kept, a third group would be created next to the one that leaves.
    """
    seen = {"old": {"engine": GroupCounts(2, (True, True), 2)}}
    numbers = ReplicaCounts({"old": WANTED, "new": WANTED}, seen, seen, RECREATE)
    assert decide_step("svc", "new", {"old": whole("old")}, RolloutGate(Reason.CHECKING, ""), numbers).groups == {
        "old": WANTED
    }


def test_a_slice_that_lost_its_leaders_is_repaired_though_the_gate_is_closed() -> None:
    assert decided("new", gone("new", BUDGET), gate=CLOSED).keep == ("new",)


SURGE = Bounds({"engine": 1}, {})


def test_with_a_surge_the_new_one_comes_beside_the_old_one() -> None:
    found = decided("new", whole("old"), bounds=SURGE)
    assert (found.groups, found.delete, found.alone) == ({"old": WANTED, "new": WANTED}, (), False)
    assert (found.reason, found.rolls) == ("RollingOut", True)


def test_the_old_one_goes_step_by_step_when_the_new_one_serves() -> None:
    found = decided("new", whole("new"), whole("old"), bounds=SURGE)
    assert (found.keep, [one.name for one in found.delete]) == (("new",), ["router"])
    assert found.message == "old router draining (revision old)"
