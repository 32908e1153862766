"""Tests that the leaders of each group get no new requests before they are stopped."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest

from ome_operator import keys, names
from ome_operator.core.observed.objects import Pod
from ome_operator.core.observed.slices import Slice
from ome_operator.core.reconcile.plan import Patch
from ome_operator.core.rollout.drain import NOTICE, RetainedGroups, retain_groups
from tests.unit.core.rollout import makers
from tests.unit.core.rollout.makers import STEM, leader_set, worker, worker_set

NOW = datetime(2026, 1, 1)
SETS = tuple(make(group) for group in range(3) for make in (leader_set, worker_set))


def leader(group: int, draining: datetime | str = "", ready: bool = True, running: bool = True) -> Pod:
    """Return the leader of a group."""
    mark = draining if isinstance(draining, str) else draining.isoformat()
    return makers.leader(group, draining=mark, ready=ready, running=running)


def mark(group: int, value: str | None) -> Patch:
    """Return the patch that sets the draining annotation of a leader to `value`; None removes the annotation."""
    name = names.leader_pod(STEM, group)
    return Patch("Pod", name, f"uid-{name}", {"metadata": {"annotations": {keys.DRAINING: value}}})


@dataclass
class Case:
    """Leaders, the wanted groups, and the result: the kept groups, the patches, and the time of the next pass."""

    leaders: tuple[Pod, ...]
    wanted: tuple[int, ...]
    kept: tuple[int, ...]
    patch: tuple[Patch, ...] = ()
    again: float | None = None


BEFORE, SOON = NOW - timedelta(seconds=NOTICE), NOW - timedelta(seconds=5)
BEGUN = "2026-01-01T00:00:00"
CASES = {
    "nothing goes": Case((leader(0), leader(1), leader(2)), (0, 1, 2), (0, 1, 2)),
    "marked first": Case((leader(0), leader(1), leader(2)), (0, 1), (0, 1, 2), (mark(2, BEGUN),), NOTICE),
    "a group in the middle": Case((leader(0), leader(1), leader(2)), (0, 2), (0, 1, 2), (mark(1, BEGUN),), NOTICE),
    "the first group": Case((leader(0), leader(1), leader(2)), (1, 2), (0, 1, 2), (mark(0, BEGUN),), NOTICE),
    "each has its own notice": Case((leader(0), leader(1, SOON), leader(2)), (0,), (0, 1, 2), (mark(2, BEGUN),), NOTICE - 5),
    "one goes while another is drained": Case((leader(0), leader(1, BEFORE), leader(2, SOON)), (0,), (0, 2), (), NOTICE - 5),
    "the lower one is drained while the higher one goes": Case(
        (leader(0), leader(1, SOON), leader(2, BEFORE)), (0,), (0, 1), (), NOTICE - 5
    ),
    "not yet": Case((leader(0), leader(1), leader(2, SOON)), (0, 1), (0, 1, 2), (), NOTICE - 5),
    "long enough": Case((leader(0), leader(1), leader(2, BEFORE)), (0, 1), (0, 1)),
    "a leader that does not run has no requests": Case(
        (leader(0), leader(1), leader(2, ready=False, running=False)), (0, 1), (0, 1)
    ),
    "one that runs and is not ready may have some": Case(
        (leader(0), leader(1), leader(2, ready=False)), (0, 1), (0, 1, 2), (mark(2, BEGUN),), NOTICE
    ),
    "wanted again": Case((leader(0), leader(1), leader(2, NOW)), (0, 1, 2), (0, 1, 2), (mark(2, None),)),
    "wanted again while another goes": Case(
        (leader(0), leader(1, SOON), leader(2)), (0, 1), (0, 1, 2), (mark(1, None), mark(2, BEGUN)), NOTICE
    ),
    "wanted that is not there yet": Case((leader(0), leader(2)), (0, 3), (0, 2, 3), (mark(2, BEGUN),), NOTICE),
    "marked by somebody who did not say when": Case(
        (leader(0), leader(1), leader(2, "yes")), (0, 1), (0, 1, 2), (mark(2, BEGUN),), NOTICE
    ),
    "marked by another clock": Case(
        (leader(0), leader(1), leader(2, "2026-01-01T00:00:00+00:00")), (0, 1), (0, 1, 2), (mark(2, BEGUN),), NOTICE
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_groups_retained_while_their_leaders_drain(case: str) -> None:
    told = CASES[case]
    found = retain_groups("engine", told.wanted, Slice("r1", SETS, (*told.leaders, worker(2))), NOW)
    assert (found.numbers, found.wanted, found.patch, found.again) == (told.kept, told.wanted, told.patch, told.again)


def test_pods_of_a_former_statefulset_do_not_delay_removal() -> None:
    stranger = leader(2)._replace(workload_uid="former")
    assert retain_groups("engine", (0, 1), Slice("r1", SETS, (leader(0), leader(1), stranger)), NOW) == RetainedGroups(
        (0, 1), (0, 1)
    )


def test_second_pod_of_a_leader_statefulset_is_not_drained() -> None:
    """A second pod of a leader's StatefulSet, which somebody has scaled manually, is not drained. It is no rank, and no
    router sends requests to it.
    """
    second = leader(2)._replace(name=f"{STEM}-2-1", rank=-1)
    found = retain_groups("engine", (0, 1), Slice("r1", SETS, (leader(0), leader(1), second)), NOW)
    assert found == RetainedGroups((0, 1), (0, 1))


def test_leaders_are_not_drained_without_a_router() -> None:
    running = Slice("r1", SETS, (leader(0), leader(1, NOW), leader(2, NOW)))
    assert retain_groups("engine", (0, 1), running, NOW, routed=False) == RetainedGroups((0, 1), (0, 1), (mark(1, None),))


def test_a_leader_that_ends_is_not_marked() -> None:
    ending = leader(2)._replace(deleting=True)
    assert retain_groups("engine", (0, 1), Slice("r1", SETS, (ending,)), NOW) == RetainedGroups((0, 1), (0, 1))
