"""Leaders serve no new requests before they are stopped."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest

from ome_operator import keys
from ome_operator.core.observed.objects import Pod
from ome_operator.core.observed.slices import Slice
from ome_operator.core.plan import Patch
from ome_operator.core.rollout.drain import NOTICE, hold
from tests.unit.core.rollout.makers import LEADERS, pod

NOW = datetime(2026, 1, 1)
SETS = (LEADERS._replace(replicas=3),)


def leader(group: int, draining: datetime | str = "", ready: bool = True) -> Pod:
    """The leader of a group."""
    mark = draining if isinstance(draining, str) else draining.isoformat()
    return pod(f"leader-{group}", group=group, draining=mark, ready=ready, workload_uid=LEADERS.uid)


def mark(group: int, value: str | None) -> Patch:
    """The patch that sets or takes back a mark."""
    body = {"metadata": {"annotations": {keys.DRAINING: value}}}
    return Patch("Pod", f"leader-{group}", f"uid-leader-{group}", body)


@dataclass
class Case:
    """Leaders, wanted groups, and what comes of them."""

    leaders: tuple[Pod, ...]
    wanted: int
    groups: int
    patch: tuple[Patch, ...] = ()
    again: float | None = None


BEFORE = NOW - timedelta(seconds=NOTICE)
CASES = {
    "nothing goes": Case((leader(0), leader(1), leader(2)), 3, 3),
    "marked first": Case((leader(0), leader(1), leader(2)), 2, 3, (mark(2, "2026-01-01T00:00:00"),), NOTICE),
    "all that go together": Case(
        (leader(0), leader(1, NOW - timedelta(seconds=5)), leader(2)), 1, 3, (mark(2, "2026-01-01T00:00:00"),), NOTICE
    ),
    "not yet": Case((leader(0), leader(1), leader(2, NOW - timedelta(seconds=5))), 2, 3, (), NOTICE - 5),
    "long enough": Case((leader(0), leader(1), leader(2, BEFORE)), 2, 2),
    "a leader that is not ready has nothing to lose": Case((leader(0), leader(1), leader(2, ready=False)), 2, 2),
    "wanted again": Case((leader(0), leader(1), leader(2, NOW)), 3, 3, (mark(2, None),)),
    "marked by somebody who did not say when": Case(
        (leader(0), leader(1), leader(2, "yes")), 2, 3, (mark(2, "2026-01-01T00:00:00"),), NOTICE
    ),
    "marked by another clock": Case(
        (leader(0), leader(1), leader(2, "2026-01-01T00:00:00+00:00")), 2, 3, (mark(2, "2026-01-01T00:00:00"),), NOTICE
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_which_groups_are_kept_for_now(case: str) -> None:
    one = CASES[case]
    found = hold("engine", one.wanted, Slice("r1", SETS, one.leaders), NOW)
    assert (found.groups, found.patch, found.again) == (one.groups, one.patch, one.again)


def test_pods_of_a_former_set_of_the_name_hold_nobody_up() -> None:
    stranger = pod("leader-2", group=2, workload_uid="former")
    assert hold("engine", 2, Slice("r1", SETS, (leader(0), leader(1), stranger)), NOW).groups == 2
