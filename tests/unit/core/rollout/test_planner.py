"""Tests that terminating groups of the target also count as holding accelerators. tests/property contains the other laws."""

import pytest

from ome_operator.core.rollout.planner import Bounds, Counts, GroupCounts, keep_groups, step

WANTED = {"engine": 3}
SURGE = Bounds({"engine": 1}, {"engine": 0})
MISSING = Bounds({"engine": 0}, {"engine": 1})


def some(have: int, ready: int | None = None, dying: int = 0) -> Counts:
    """Return the counts of groups of a slice: `have` groups, of which the first `ready` ones are ready, and `dying` further
    groups that are terminating.
    """
    serves = have if ready is None else ready
    return {"engine": GroupCounts(have, (True,) * serves + (False,) * (have - serves), have + dying)}


def grown(bounds: Bounds, new: Counts, old: Counts) -> int:
    """Return the number of groups that the target slice gets."""
    return step(WANTED, "new", {"new": new, "old": old}, bounds)["new"]["engine"]


@pytest.mark.parametrize(("dying", "groups"), [(0, 2), (1, 1), (2, 1)])
def test_terminating_groups_count_towards_the_surge(dying: int, groups: int) -> None:
    """While another slice exists, terminating groups of the target count towards the surge. At most four groups may hold
    accelerators here: two old ones, a new one, and a terminating one.
    """
    assert grown(SURGE, some(1, dying=dying), some(2)) == groups


@pytest.mark.parametrize("dying", range(5))
def test_existing_groups_are_kept_whatever_is_terminating(dying: int) -> None:
    assert grown(SURGE, some(2, ready=1, dying=dying), some(2)) == 2


def test_lost_group_is_replaced_only_after_it_terminated_without_surge() -> None:
    assert grown(MISSING, some(1), some(1)) == 2
    assert grown(MISSING, some(1, dying=1), some(1)) == 1


def test_terminating_groups_of_old_slices_count_towards_the_limit() -> None:
    assert grown(SURGE, some(1), some(1)) == 3
    assert grown(SURGE, some(1), some(1, dying=1)) == 2
    assert grown(SURGE, some(1, dying=1), some(1, dying=1)) == 1


@pytest.mark.parametrize("bounds", [SURGE, MISSING, Bounds({}, WANTED, alone=True)])
@pytest.mark.parametrize("dying", range(4))
def test_single_slice_does_not_wait_for_terminating_groups(bounds: Bounds, dying: int) -> None:
    """A slice that is the only one does not wait until its terminating groups are gone. The new group gets another number,
    and its pods wait for nodes.
    """
    assert step(WANTED, "new", {"new": some(1, dying=dying)}, bounds) == {"new": {"engine": 3}}
    assert keep_groups(WANTED, "new", {"new": some(1, dying=dying)}) == {"new": {"engine": 3}}


def test_terminating_groups_count_while_no_group_may_be_replaced() -> None:
    assert keep_groups(WANTED, "first", {"first": some(1), "old": some(1)})["first"] == {"engine": 2}
    assert keep_groups(WANTED, "first", {"first": some(1, dying=1), "old": some(1)})["first"] == {"engine": 1}


def test_each_role_has_its_own_surge_limit() -> None:
    wanted, bounds = {"engine": 2, "decoder": 2}, Bounds({"engine": 1, "decoder": 1}, {})
    new = {"engine": GroupCounts(1, (True,), 2), "decoder": GroupCounts(1, (True,), 1)}
    old = {"engine": GroupCounts(1, (True,), 1), "decoder": GroupCounts(1, (True,), 1)}
    assert step(wanted, "new", {"new": new, "old": old}, bounds)["new"] == {"engine": 1, "decoder": 2}
