"""Tests of groups whose leader is Ready, but answers no probe of the routers' registries: which groups are recycled, when,
and which never are.
"""

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ome_operator.core.observed.silence import JUST_STARTED, Silence, silence_of
from ome_operator.core.observed.telemetry import LeaderReport, LeaderSilence, RouterReport
from ome_operator.core.recovery import record as rec
from ome_operator.core.recovery.group import Group
from ome_operator.core.recovery.policy import RecoveryPolicy
from ome_operator.core.recovery.record import GroupRecord
from ome_operator.core.recovery.state_machine import RARE_TURN, Transition
from ome_operator.core.recovery.systemic import advance_groups
from ome_operator.quantity import rfc3339
from tests.conftest import SOAK
from tests.support.shapes import Shape
from tests.unit.core.recovery.test_recover import go as settle
from tests.unit.core.recovery.test_recover import recovered, settled
from tests.unit.core.recovery.test_state_machine import NOW, PLAIN, pod

QUICK = PLAIN._replace(hang=15.0)
SINCE = 1000.0
"""Seconds after NOW at which the leader of the first group becomes silent; the groups have been ready since NOW."""


def groups(count: int = 2) -> list[Group]:
    """Return groups of one pod, whose leaders are ready."""
    leaders = [pod(0, uid=f"{n:08d}-u")._replace(name=f"g-{n}-0", group=n) for n in range(count)]
    return [Group(f"g-{n}", "engine", "r", n, 1, f"engine group {n}", {0: one}) for n, one in enumerate(leaders)]


RECORDS = {
    f"g-{n}": GroupRecord(
        f"g-{n}", "engine", "r", n, rec.READY, rfc3339(NOW), 1, rfc3339(NOW), {"0": f"{n:08d}.0"}, "n",
    ) for n in range(3)
}  # fmt: skip
UID = "00000000-u"


def go(
    some: list[Group],
    later: float,
    before: dict[str, GroupRecord] = RECORDS,
    policy: RecoveryPolicy = PLAIN,
    also: dict[str, Silence] | None = None,
    **silence: Any,
) -> Transition:
    """Return the result of a reconciliation for the first group, whose leader has not answered since SINCE."""
    known = {UID: Silence(NOW.timestamp() + SINCE, **silence), **(also or {})}
    steps, said = advance_groups(some, before, policy, lambda _: False, NOW + timedelta(seconds=later), known)
    found = steps["g-0"]
    return found if not said else found._replace(note=said[0].sentence)


def test_a_silent_leader_is_recycled_after_the_timeout_of_hangs() -> None:
    step = go(groups(), SINCE + 10)
    assert (step.record.phase, step.again) == (rec.SILENT, 50.0)
    assert step.note.endswith("the operator recycles the group after 60 s in this state")
    assert go(groups(), SINCE + 59).record.phase == rec.SILENT
    done = go(groups(), SINCE + 60, {**RECORDS, "g-0": step.record}).record
    assert (done.phase, done.recycles, (done.failure or {})["reason"]) == (rec.RECYCLING, 1, "Silent")
    assert go(groups(), SINCE + 15, policy=QUICK).record.phase == rec.RECYCLING


def test_announced_recycle_is_executed_although_the_leader_is_ready() -> None:
    announced = go(groups(), SINCE + 60).record
    assert go(groups(), SINCE + 61, {**RECORDS, "g-0": announced}).record == announced
    steps, _ = advance_groups(
        groups(), {**RECORDS, "g-0": announced}, PLAIN, lambda _: False, NOW + timedelta(seconds=SINCE + 61)
    )
    assert steps["g-0"].record.phase == rec.READY, "it answers again, so it is not deleted"


SPARED: dict[str, tuple[dict[str, Any], str]] = {
    "observed": ({"policy": PLAIN._replace(silence=False)}, "because lifecycle.silence is Observe"),
    "a hold": ({"hold": "the fleet"}, "because the fleet"),
    "the last": ({}, "because no other group of its role works, and the routers report no failed requests"),
}


@pytest.mark.parametrize("case", SPARED)
def test_silent_leader_that_is_not_recycled_is_reported(case: str) -> None:
    how, said = SPARED[case]
    step = go(groups(1 if case == "the last" else 2), SINCE + 3600, **how)
    assert (step.record.phase, step.again) == (rec.SILENT, RARE_TURN) and step.note.endswith(said)


def test_the_last_leader_is_recycled_if_requests_fail() -> None:
    assert go(groups(1), SINCE + 60, requests_fail=True).record.phase == rec.RECYCLING


def test_leader_is_the_last_one_if_all_other_groups_are_not_ready() -> None:
    alone = [groups()[0], *groups(3)[1:]]
    down = [alone[0], unready(alone[1]), unready(alone[2])]
    known = {**RECORDS, "g-1": RECORDS["g-1"].in_phase(rec.STARTING, NOW), "g-2": RECORDS["g-2"].in_phase(rec.STARTING, NOW)}
    assert "no other group of its role works" in go(down, SINCE + 60, known).note


def test_group_of_another_slice_does_not_count_as_a_remaining_group() -> None:
    other = groups()[1]._replace(revision="r2")
    assert "no other group of its role works" in go([groups()[0], other], SINCE + 60).note


def unready(one: Group) -> Group:
    """Return a group whose leader is not ready."""
    return one._replace(pods={0: one.pods[0]._replace(ready=False)})


def test_silence_of_half_of_a_role_recycles_no_group() -> None:
    step = go(groups(3), SINCE + 600, also={"00000001-u": Silence(NOW.timestamp() + SINCE)})
    assert step.record.phase == rec.SYSTEMIC and step.note.startswith("2 of 3 groups")
    one_down = [groups(3)[0], unready(groups(3)[1]), groups(3)[2]]
    assert go(one_down, SINCE + 600).record.phase == rec.SYSTEMIC, "one is silent, and another is not ready"


def test_not_ready_time_of_a_silent_leader_starts_with_its_silence() -> None:
    down = [unready(groups()[0]), groups()[1]]
    before = {**RECORDS, "g-0": RECORDS["g-0"].in_phase(rec.NOT_READY, NOW + timedelta(seconds=SINCE + 55))}
    assert go(down, SINCE + 59, before).record.phase == rec.NOT_READY
    assert go(down, SINCE + 60, before).record.phase == rec.RECYCLING
    observed = PLAIN._replace(silence=False)
    assert go(down, SINCE + 114, before, observed).record.phase == rec.NOT_READY
    assert go(down, SINCE + 115, before, observed).record.phase == rec.RECYCLING, "as without registries"


def test_silent_time_does_not_count_as_not_ready_time() -> None:
    observed = PLAIN._replace(silence=False)
    silent = go(groups(), SINCE + 600, policy=observed).record
    step = go([unready(groups()[0]), groups()[1]], SINCE + 601, {**RECORDS, "g-0": silent}, observed)
    assert (step.record.phase, step.again) == (rec.NOT_READY, 60.0)


def test_silence_before_the_start_of_the_group_is_ignored() -> None:
    new = {**RECORDS, "g-0": replace(RECORDS["g-0"], ready_since=rfc3339(NOW + timedelta(seconds=SINCE + 100)))}
    step = go(groups(), SINCE + 110, new)
    assert (step.record.phase, step.again) == (rec.SILENT, 50.0)


@pytest.mark.parametrize("ready", [True, False])
def test_a_paused_engine_is_not_recycled(ready: bool) -> None:
    some = [groups()[0] if ready else unready(groups()[0]), groups()[1]]
    paused = {UID: Silence(None)}
    steps = advance_groups(some, RECORDS, PLAIN, lambda _: False, NOW + timedelta(seconds=SINCE), paused)[0]
    later = advance_groups(
        some, {n: s.record for n, s in steps.items()}, PLAIN, lambda _: False, NOW + timedelta(hours=5), paused
    )[0]["g-0"]
    assert later.record.phase == (rec.READY if ready else rec.NOT_READY)
    assert ready or later.note.endswith("because its token generation is paused, so the operator does not recycle the group")


@pytest.mark.parametrize("block", range(10 if SOAK else 2))
def test_leader_that_any_registry_reaches_is_never_recycled(block: int) -> None:
    """A leader is never recycled while a registry hears it. Each of two registries loses leaders for a while, restarts, or
    does not answer. At every moment, at least one of them either has an answer of the leader or reports nothing.
    """
    for seed in range(block, 1000, 10):
        chance, records, some = random.Random(seed), dict(RECORDS), groups(3)
        lost = [[0.0] * 3, [0.0] * 3]
        for step in range(120):
            now = NOW + timedelta(seconds=SINCE + 5 * step)
            for mine, other in ((0, 1), (1, 0)):
                for number in range(3):
                    if chance.random() < 0.1 and not lost[other][number]:
                        lost[mine][number] = now.timestamp()
                    elif chance.random() < 0.03:
                        lost[mine][number] = 0.0
            reports = [heard(chance, since, now.timestamp()) for since in lost]
            found = {f"{n:08d}-u": silence_of(reports, str(n), now.timestamp()) for n in range(3)}
            known = {uid: silence for uid, silence in found.items() if silence is not None}
            steps, _ = advance_groups(some, records, QUICK, lambda _: False, now, known)
            records = {name: one.record for name, one in steps.items()}
            assert all(one.phase == rec.READY for one in records.values()), f"story {seed}, step {step}"


def heard(chance: random.Random, since: list[float], now: float) -> RouterReport | None:
    """Return the report of a registry about its leaders: the times since when they have not answered; 0 stands for a leader
    that answers. Return None for a registry that does not answer itself.
    """
    if chance.random() < 0.1:
        return None
    leaders = {
        str(number): LeaderReport("decode", "", silence=LeaderSilence(now - chance.uniform(0, 15), at) if at else None)
        for number, at in enumerate(since)
    }
    return RouterReport(now - chance.choice((1, 5, 30)), 0, 0.0, None, 0, leaders, chance.choice((10.0, JUST_STARTED, 1e4)))


def test_silent_leader_is_reported_and_then_recycled() -> None:
    world = settled(Shape(size=1, engines=2))
    began = world.now
    leader = next(one for one in world.observed().pods if one.component == "engine" and one.rank == 0)
    facts = replace(world.observed(), silences={leader.uid: Silence(began.timestamp())})
    first = settle(world, facts, 20)
    assert recovered(first)[:2] == ("False", "NotReady")
    assert "answers no probe of the routers' registries and completes no request" in recovered(first)[2]
    assert not first.recycle and "Silent" in {one["phase"] for one in first.status["groups"]}
    announced = settle(world, facts, 60)
    assert not announced.recycle and recovered(announced)[1] == "Recycling"
    (recycle,) = settle(world, facts, 61).recycle
    assert [each.uid for each in recycle.delete] == [leader.uid]
