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


def test_first_slice_starts_immediately() -> None:
    assert decided("new") == RolloutStep({"new": WANTED}, alone=True)


def test_first_slice_held_by_a_gate_reports_the_reason() -> None:
    found = decided("new", gate=CLOSED)
    assert (found.keep, found.reason, found.rolls) == ((), "Paused", False)


def test_no_target_revision_changes_nothing() -> None:
    assert decided("", whole("old")) == RolloutStep({}, reason="NothingToRun")


def test_a_closed_gate_keeps_the_old_slice_whole() -> None:
    found = decided("new", whole("old"), gate=CLOSED)
    assert (found.keep, found.delete, found.reason) == (("old",), (), "Paused")


def test_old_slice_is_kept_while_the_service_waits_for_admission() -> None:
    found = decided("new", whole("old"), ahead="team/other")
    assert (found.keep, found.delete, found.reason, found.rolls) == (("old",), (), "WaitingForTurn", True)


def test_old_slice_is_removed_first() -> None:
    found = decided("new", whole("old"))
    assert (found.keep, [one.name for one in found.delete], found.rolls) == ((), ["router"], True)


def test_new_slice_starts_when_only_budgets_of_the_old_one_remain() -> None:
    found = decided("new", gone("old", BUDGET))
    assert (found.keep, found.delete, found.alone) == (("new",), (), True)
    found = decided("new", whole("new"), gone("old", BUDGET))
    assert (found.keep, [one.name for one in found.delete]) == (("new",), ["budget"])


def test_running_target_is_kept_while_other_slices_are_removed() -> None:
    found = decided("new", whole("new"), whole("old"))
    assert (found.keep, [item.name for item in found.delete], found.rolls) == (("new",), ["router"], True)


def test_gate_that_closes_during_a_rollout_stops_further_removals() -> None:
    """If the new pods of a rollout find no capacity any more, no further group of the old slice is removed. The service
    keeps its admission to the shared edit.
    """
    found = decided("new", whole("new"), whole("old"), gate=NO_ROOM)
    assert (found.keep, found.delete, found.rolls, found.held) == (("old", "new"), (), True, True)
    assert (found.reason, found.message) == (NO_ROOM.reason, NO_ROOM.message)


def test_only_slice_is_kept_regardless_of_the_gate() -> None:
    assert decided("new", whole("new"), gate=CLOSED) == RolloutStep({"new": WANTED}, alone=True)


def test_all_old_slices_are_removed() -> None:
    found = decided("new", whole("a"), gone("b", LEADERS))
    assert [one.name for one in found.delete] == ["router", LEADERS.name]


@pytest.mark.parametrize(("gate", "ahead"), [(CLOSED, ""), (OPEN, "team/other")])
def test_partly_removed_slice_is_restored_while_no_new_slice_may_start(gate: RolloutGate, ahead: str) -> None:
    assert decided("new", gone("a", BUDGET), gone("b", ROUTER, BUDGET), gate=gate, ahead=ahead).keep == ("b",)
    assert decided("new", gone("a", BUDGET), whole("c"), gone("d", ROUTER), gate=gate, ahead=ahead).keep == ("c",)
    assert decided("new", gone("a", BUDGET), gate=gate, ahead=ahead).keep == ("a",)
    assert decided("new", gone("a"), gate=gate, ahead=ahead).keep == ()


def test_groups_are_not_recreated_while_a_check_is_pending() -> None:
    """While the checks of a rollout are repeated after a restart of the operator, removed groups are not created again."""
    assert decided("new", gone("old", ROUTER), gate=RolloutGate(Reason.CHECKING, "")).keep == ()


def test_group_that_moves_is_not_replaced_twice_during_a_check() -> None:
    """Two groups exist although only one is requested, because one of them leaves its node. The operator keeps one of them.
    If it kept both, it would create a third group next to the group that leaves.
    """
    seen = {"old": {"engine": GroupCounts(2, (True, True), 2)}}
    numbers = ReplicaCounts({"old": WANTED, "new": WANTED}, seen, seen, RECREATE)
    assert decide_step("svc", "new", {"old": whole("old")}, RolloutGate(Reason.CHECKING, ""), numbers).groups == {
        "old": WANTED
    }


def test_target_slice_without_leaders_is_repaired_despite_a_closed_gate() -> None:
    assert decided("new", gone("new", BUDGET), gate=CLOSED).keep == ("new",)


SURGE = Bounds({"engine": 1}, {})


def test_new_slice_is_created_beside_the_old_one_with_surge() -> None:
    found = decided("new", whole("old"), bounds=SURGE)
    assert (found.groups, found.delete, found.alone) == ({"old": WANTED, "new": WANTED}, (), False)
    assert (found.reason, found.rolls) == ("RollingOut", True)


def test_old_slice_is_removed_stepwise_after_the_new_one_serves() -> None:
    found = decided("new", whole("new"), whole("old"), bounds=SURGE)
    assert (found.keep, [one.name for one in found.delete]) == (("new",), ["router"])
    assert found.message == "old router draining (revision old)"
