"""Ranks exit, hang and vanish at any moment, and the operator may be killed at any moment. Groups become complete again, and
nothing else is affected.

The fleet asserts at every deletion that the group does not serve and that the pod is not newer than the record.
"""

from datetime import timedelta
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ome_operator import keys
from ome_operator.core.recovery.policy import RecoveryPolicy
from ome_operator.core.recovery.record import READY
from tests.conftest import SOAK, STORY
from tests.support.ranks import Fleet
from tests.support.shapes import Shape, lags, shapes
from tests.support.simulator import World

many = settings(max_examples=100_000 if SOAK else 40)
PATIENT = RecoveryPolicy(start=600.0)
hows = st.sampled_from(["exit", "delete", "hang", "silent"])
faults = st.tuples(st.integers(0, 2), st.integers(0, 3), hows, st.booleans())
operators = st.sampled_from([*range(4), 99, 99, 99, 99])
seeds = st.integers(0, 2**32)
AGAIN = [
    *[((0, 0, "exit", False), 0, 0, False)] * 6,
    ((0, 0, "exit", False), 3, 0, False),
    ((0, 1, "delete", False), 5, 0, False),
    ((0, 0, "exit", False), 3, 0, False),
    ((0, 1, "exit", False), 1, 0, False),
]
"""An example that was found among 100,000 generated stories: a rank that has just restarted is recorded while its leader
is still ready, because the leader has not noticed the restart."""
SUCCEEDED = [
    *[((0, 0, "exit", False), 0, 0, False)] * 4,
    ((0, 0, "exit", False), 4, 0, False),
    ((0, 1, "exit", True), 2, 0, True),
    ((0, 0, "delete", False), 8, 0, False),
]
"""An example that was found among 100,000 generated stories: as in AGAIN, but the pod of the leader is lost as well, and
the next leader accepts the rank."""
AHEAD = [
    ((0, 0, "exit", False), 0, 0),
    ((0, 0, "exit", False), 3, 0),
    ((1, 2, "silent", False), 2, -1),
    ((0, 0, "exit", False), 0, 0),
]
"""An example that was found among 1,000 generated stories: the clock is an hour ahead of the moment at which a leader
stopped answering."""
TWICE = [
    ((0, 3, "silent", False), 6, 0),
    ((0, 0, "delete", False), 3, 1),
    ((0, 3, "silent", False), 9, 0),
    ((0, 3, "silent", False), 0, 0),
]
"""An example that was found among 100,000 generated stories: a leader stops answering twice, and its answers in between
were not observed."""


def come_up(fleet: Fleet, passes: int = 1000) -> None:
    """Run reconciliations until every group serves and the status records it as ready."""
    for _ in range(passes):
        fleet.reconcile_once()
        if all(truth.ready and truth.common_start for truth in fleet.truths) and recorded(fleet):
            return
        fleet.step()
    raise AssertionError(f"not whole after {passes} passes: {fleet.truths} {fleet.stored}")


def recorded(fleet: Fleet) -> bool:
    """Return whether the status records every group as ready, with its present ranks."""
    now = {group.name: group.start_marks() for group in fleet.groups()}
    return all(one.phase == READY and one.members == now[name] for name, one in fleet.stored.items())


@many
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.lists(st.tuples(faults, st.integers(0, 12), operators, st.booleans()), max_size=10),
    seeds,
)
@example([4, 1, 4], AGAIN, 1281)
@example([2], SUCCEEDED, 0)
def test_incomplete_groups_recover_and_serving_groups_are_not_recycled(
    sizes: list[int], story: list[Any], seed: int
) -> None:
    """Ranks fail in any order, the operator is killed after any number of deletions, and its status is sometimes not stored.
    Incomplete groups become complete again, and groups that serve are not touched.
    """
    fleet = Fleet(sizes, PATIENT, seed)
    for fault, passes, survives, stores in story:
        fleet.fail(*fault)
        for _ in range(passes):
            fleet.reconcile_once(survives, stores)
            fleet.step()
    fleet.heal()
    come_up(fleet)
    for truth, record in zip(fleet.truths, fleet.stored.values(), strict=True):
        assert record.recycles <= truth.failures
    starts = [one.members for one in fleet.stored.values()]
    for _ in range(30):
        fleet.reconcile_once()
        fleet.step()
    assert [one.members for one in fleet.stored.values()] == starts, "recovered groups are left alone"


@many
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.integers(0, 3),
    st.sampled_from(["exit", "delete", "hang"]),
    st.booleans(),
    operators,
    seeds,
)
def test_one_failure_causes_one_recycle_of_one_group(
    sizes: list[int], rank: int, how: str, stubborn: bool, survives: int, seed: int
) -> None:
    fleet = Fleet(sizes, PATIENT, seed)
    come_up(fleet)
    before = dict(fleet.stored)
    fleet.fail(0, rank, how, stubborn)
    for _ in range(40):
        fleet.reconcile_once(survives if survives else 1)
        fleet.step()
    come_up(fleet)
    hit, *others = fleet.stored.values()
    assert others == list(before.values())[1:], "groups beside it are not touched"
    assert hit.recycles <= 1 and hit.incarnation == 2
    if how == "hang":
        assert hit.recycles == 1, "a hung rank does not heal by itself"
    if how == "exit" and sizes[0] == 1:
        assert not fleet.deleted, "a group of one starts again by itself"


@many
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.lists(st.tuples(faults, st.integers(0, 12), st.integers(-48, 48)), max_size=10),
    seeds,
)
@example([1, 2], AHEAD, 0)
@example([1], TWICE, 277417)
def test_clock_jumps_delay_nothing(sizes: list[int], story: list[Any], seed: int) -> None:
    """The clock jumps hours ahead or back between any two passes. The deadline of a start is never reached, and no rank
    waits forever.
    """
    fleet = Fleet(sizes, PATIENT._replace(start=timedelta(days=9).total_seconds()), seed)
    for fault, passes, hours in story:
        fleet.jump(timedelta(hours=hours))
        fleet.fail(*fault[:3], stubborn=False)
        for _ in range(passes):
            fleet.reconcile_once()
            fleet.step()
    fleet.heal()
    come_up(fleet)
    for truth, record in zip(fleet.truths, fleet.stored.values(), strict=True):
        assert record.recycles <= truth.failures


@many
@given(st.integers(2, 4), st.integers(0, 3), seeds)
def test_group_that_restarts_in_time_is_not_recycled(size: int, rank: int, seed: int) -> None:
    """After a rank has exited, the other ranks exit too, and the kubelet restarts all of them in time. The group is not
    recycled.
    """
    fleet = Fleet([size], PATIENT._replace(self_heal=3600.0), seed)
    come_up(fleet)
    fleet.fail(0, rank, "exit", False)
    come_up(fleet)
    assert not fleet.deleted
    (record,) = fleet.stored.values()
    assert record.recycles == 0 and record.incarnation == 2
    assert record.failure and record.failure["exitCode"] == 1


@many
@given(st.integers(2, 3), st.integers(1, 4), st.integers(15, 40), seeds)
def test_no_leader_is_recycled_if_half_of_them_are_silent(groups: int, size: int, steps: int, seed: int) -> None:
    fleet = Fleet([size] * groups, PATIENT, seed)
    come_up(fleet)
    for number in range(groups):
        fleet.fail(number, steps, "silent", False)
    for _ in range(steps):
        fleet.reconcile_once()
        fleet.step()
    come_up(fleet)
    assert not fleet.deleted


@many
@given(st.integers(1, 3), st.integers(0, 3), st.sampled_from(["exit", "delete", "hang"]), seeds)
def test_no_pod_is_deleted_if_recycling_is_disabled(size: int, rank: int, how: str, seed: int) -> None:
    fleet = Fleet([size], PATIENT._replace(recycles=False), seed)
    come_up(fleet)
    fleet.fail(0, rank, how, True)
    for _ in range(100):
        fleet.reconcile_once()
        fleet.step()
    assert not fleet.deleted


def group_of(world: World, name: str) -> tuple[str, ...]:
    """Return component and group number of a pod."""
    labels = world.pods[name].labels
    return labels[keys.COMPONENT], labels[keys.GROUP_INDEX]


@STORY
@given(
    shapes(engines=st.integers(1, 3), scaled=False, router=st.just(True)),
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)), min_size=1, max_size=3),
    st.integers(0, 10_000),
    lags,
)
def test_lost_pod_recycles_only_its_own_group(shape: Shape, losses: list[tuple[int, int]], seed: int, lag: int) -> None:
    """A group whose pod is lost is recycled, and no other group. The stories use complete reconciliations, whose facts are
    some steps old.
    """
    world = World(shape.service(), shape.deps(), seed)
    world.settle()
    world.lag = lag
    before = {name: (uid, group_of(world, name)) for name, uid in engines(world).items()}
    hit = set()
    for number, passes in losses:
        names = sorted(engines(world))
        if names:
            hit.add(group_of(world, name := names[number % len(names)]))
            world.lose(name)
        world.run(passes)
    world.settle()
    after = engines(world)
    assert len(after) == shape.pods - 1 and world.condition("Ready")["status"] == "True"
    for name, (uid, group) in before.items():
        assert (after[name] == uid) == (group not in hit), f"{name} of {group}, hit: {hit}"


def engines(world: World) -> dict[str, str]:
    """Return name and UID of the pods of groups."""
    return {name: uid for name, uid in world.living_pods().items() if world.pods[name].labels[keys.COMPONENT] != keys.ROUTER}
