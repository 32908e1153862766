"""Tests of a group through its failures, with a simulated clock. tests/property contains random histories."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ome_operator.core.observed.objects import Pod, Termination
from ome_operator.core.preflight.results import CheckResult
from ome_operator.core.recovery import record as rec
from ome_operator.core.recovery.group import Group
from ome_operator.core.recovery.policy import FIRST, STABLE, RecoveryPolicy
from ome_operator.core.recovery.record import GroupRecord
from ome_operator.core.recovery.state_machine import APART, TURN, GroupInputs, Transition, advance
from ome_operator.core.recovery.systemic import PLACING, _pending, advance_groups
from ome_operator.quantity import rfc3339

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PLAIN = RecoveryPolicy()
NEW = GroupRecord("g-0", "engine", "r", 0)


def pod(rank: int, uid: str = "", **more: Any) -> Pod:
    """Return a running pod of this rank. A leader is also ready."""
    fields: dict[str, Any] = {"ready": rank == 0, "deleting": False, "restarts": 0, "node": "n", **more}
    return Pod(
        namespace="ns", name=f"g-0-{rank}", uid=uid or f"{rank:08d}-old", version=1, service="s", component="engine",
        revision="r", group=0, rank=rank, workload="w", grace=0, reason="", message="", **fields,
    )  # fmt: skip


def group(*pods: Pod, size: int = 2, **more: Any) -> Group:
    return Group("g-0", "engine", "r", 0, size, "engine group 0", {one.rank: one for one in pods}, **more)


WHOLE = group(pod(0), pod(1))
LOST = group(pod(0), pod(1, "1new"))


def go(
    one: Group, record: GroupRecord, policy: RecoveryPolicy = PLAIN, later: float = 0.0, lost: bool = False, **more: Any
) -> Transition:
    """Run one pass over the group, and return the transition."""
    return advance(one, record, GroupInputs(policy, lambda _: lost, NOW + timedelta(seconds=later), **more))


READY = go(WHOLE, NEW).record


def test_a_start_is_recorded_when_all_pods_are_there_and_the_leader_is_ready() -> None:
    ended = group(pod(0), pod(1, running=False))
    for unfit in (group(pod(0)), group(pod(0, ready=False), pod(1)), group(pod(0), pod(1, deleting=True)), ended):
        assert not go(unfit, NEW).record.members
    assert (READY.phase, READY.incarnation, READY.ready_since, READY.node) == (rec.READY, 1, rfc3339(NOW), "n")
    assert READY.members == {"0": "00000000.0", "1": "00000001.0"}
    assert go(WHOLE, READY, later=9).record == READY, "a second pass has the same result"


def test_no_start_is_recorded_while_a_rank_has_no_node() -> None:
    """A new leader is ready, but a worker of its new start waits for a node. The group is Pending, so its nodes can be
    released; a recorded start would make it Ready for good.
    """
    for ready_leader in (pod(0, "0new"), pod(0, "0new", probed=True)):
        record = go(group(ready_leader, pod(1, "1new", node="", running=False)), READY).record
        assert (record.phase, record.incarnation, record.members) == (rec.PENDING, 1, READY.members)


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (LOST, "PodReplaced"),
        (group(pod(0)), "PodMissing"),
        (group(pod(0), pod(1, deleting=True)), "PodDeleted"),
        (group(pod(0), pod(1, over=True, ending=Termination("", "Evicted", None, "disk", rfc3339(NOW)))), "Evicted"),
    ],
    ids=["replaced", "missing", "deleted", "evicted"],
)
def test_lost_rank_triggers_a_recycle_with_its_cause(one: Group, why: str) -> None:
    record = go(one, READY).record
    assert (record.phase, record.recycles, record.in_a_row) == (rec.RECYCLING, 1, 1)
    assert record.failure and record.failure["reason"] == why
    assert record.members == READY.members, "the recorded pods must go"


def test_group_waits_for_ranks_that_restart_by_themselves() -> None:
    ended = Termination("main", "Completed", 0, "bye", rfc3339(NOW))
    half = group(pod(0), pod(1, restarts=1, ending=ended))
    step = go(half, READY)
    assert (step.record.phase, step.again) == (rec.RESTARTING, 60.0)
    assert step.record.failure and step.record.failure["exitCode"] == 0
    met = go(group(pod(0, restarts=1), pod(1, restarts=1)), step.record, later=45).record
    assert (met.phase, met.recycles, met.incarnation) == (rec.READY, 0, 2)
    late = go(half, step.record, later=60).record
    assert (late.phase, late.recycles) == (rec.RECYCLING, 1)
    at_once = go(half, READY, RecoveryPolicy(self_heal=0.0)).record
    assert at_once.phase == rec.RECYCLING


def test_rank_recorded_after_its_restart_belongs_to_the_new_leader_start() -> None:
    """If a restarted rank was recorded after its own restart, the rank counts as part of the leader's new start. The record
    was written before the leader noticed the restart.
    """
    too_early = go(group(pod(0), pod(1, restarts=1)), NEW).record
    waits = go(group(pod(0, ready=False, restarts=1), pod(1, restarts=1)), too_early).record
    assert (waits.phase, waits.recycles) == (rec.RESTARTING, 0)
    joined = group(pod(0, restarts=1, probed=True), pod(1, restarts=1))
    met = go(joined, waits, later=60).record
    assert (met.phase, met.recycles, met.incarnation) == (rec.READY, 0, 2)
    assert go(joined._replace(settled=False), waits, later=9).record.phase == rec.RESTARTING


def test_readiness_of_a_new_leader_counts_only_with_a_probe() -> None:
    """The readiness of a new leader proves only with a probe that the leader has met the other ranks. The leader's pod was
    lost, and a recycle was announced. A leader without a probe is ready as soon as it runs.
    """
    announced = go(group(pod(1)), READY).record
    assert announced.phase == rec.RECYCLING
    for leader in (pod(0, "0new"), pod(0, "0new", probed=True, ready=False)):
        assert go(group(leader, pod(1)), announced).record == announced
        assert go(group(leader, pod(1)), READY).record.phase == rec.RECYCLING
    leader = pod(0, "0new", probed=True)
    assert go(group(leader, pod(1, running=False)), announced).record == announced
    for before in (announced, READY):
        met = go(group(leader, pod(1)), before).record
        assert (met.phase, met.incarnation, met.members["0"]) == (rec.READY, 2, "0new.0")


def test_leader_without_probe_is_deleted_with_a_group_that_did_not_restart() -> None:
    """A leader without a probe is deleted together with its group if the other ranks did not start anew. If the leader
    stayed, it would at once be Ready next to a new rank 1, then end when it notices the new rank, and cost that rank again
    each time.
    """
    too_early = go(group(pod(0), pod(1, restarts=1)), NEW).record
    mixed = group(pod(0, restarts=1), pod(1, restarts=1))
    waits = go(mixed, too_early).record
    assert waits.phase == rec.RESTARTING
    record = go(mixed, waits, later=60).record
    assert (record.phase, record.members) == (rec.RECYCLING, mixed.start_marks())
    assert go(mixed, record, later=61).record == record, "its readiness does not matter"
    older = go(group(pod(0), pod(1, restarts=2)), replace(waits, since=rfc3339(NOW)), later=60).record
    assert (older.phase, older.members) == (rec.RECYCLING, too_early.members), "a rank that is newer than the record stays"


def test_unplaced_recycled_group_delays_recycling_of_others_only_briefly() -> None:
    def at(later: float, records: dict[str, GroupRecord]) -> dict[str, GroupRecord]:
        hung = Group("g-1", "engine", "r", 1, 2, "engine group 1", {0: pod(0, ready=False), 1: pod(1)})
        lost = group(pod(0, "0new", node="", ready=False), pod(1, "1new", node=""))
        quiet = Group("g-2", "engine", "r", 2, 2, "engine group 2", {0: pod(0), 1: pod(1)})
        steps, _ = advance_groups([lost, hung, quiet], records, PLAIN, lambda _: False, NOW + timedelta(seconds=later))
        return {name: step.record for name, step in steps.items()}

    recycled = replace(READY, phase=rec.PENDING, since=rfc3339(NOW), recycled_at=rfc3339(NOW), recycles=1, ready_since="")
    others = {f"g-{index}": replace(READY, name=f"g-{index}", index=index) for index in (1, 2)}
    records = at(1, {"g-0": recycled, **others})
    assert (records["g-0"].phase, records["g-1"].phase) == (rec.PENDING, rec.NOT_READY)
    assert at(PLACING - 1, records)["g-1"].phase == rec.NOT_READY
    assert at(PLACING + 1, records)["g-1"].phase == rec.RECYCLING


def test_hung_leader_is_recycled_after_timeout_unless_it_recovers() -> None:
    silent = group(pod(0, ready=False), pod(1))
    step = go(silent, READY)
    assert (step.record.phase, step.again) == (rec.NOT_READY, 60.0)
    assert go(WHOLE, step.record, later=59).record.recycles == 0
    hung = go(silent, step.record, later=60).record
    assert hung.phase == rec.RECYCLING and hung.failure and hung.failure["reason"] == "NotReady"
    waits = go(silent, step.record, later=60, busy=True)
    assert (waits.record.phase, waits.again) == (rec.NOT_READY, TURN)
    assert go(silent, step.record, later=60, systemic=True).record.phase == rec.SYSTEMIC
    back = go(WHOLE, hung, later=61).record
    assert back.phase == rec.READY and back.members == READY.members, "it became ready before anything was deleted"


def test_hang_timeout_starts_when_the_node_reports_again() -> None:
    silent = group(pod(0, ready=False), pod(1))
    lost = go(silent, READY, later=5, lost=True)
    assert (lost.record.phase, lost.again) == (rec.NODE_LOST, None)
    assert go(silent, lost.record, later=900).again == 60.0


def test_ranks_stay_until_a_terminating_leader_is_gone() -> None:
    """While a leader terminates normally because its node is drained, the other ranks of the group stay, because the
    leader's running requests need these ranks.
    """
    ends = rfc3339(NOW + timedelta(seconds=600))
    step = go(group(pod(0, deleting=True, ends=ends), pod(1)), READY)
    assert (step.record.phase, step.again) == (rec.NOT_READY, 600.0)
    assert go(group(pod(1)), step.record, later=100).record.phase == rec.RECYCLING
    assert go(group(pod(0, deleting=True, ends=ends), pod(1)), step.record, later=601).record.phase == rec.RECYCLING
    alone = group(pod(0, deleting=True, ends=ends), pod(1, "1new"))
    assert go(alone, step.record, later=1).record.phase == rec.RECYCLING, "it cannot finish anything without its ranks"


def test_consecutive_recycles_are_delayed_increasingly_up_to_a_limit() -> None:
    policy = RecoveryPolicy(limit=2)
    first = go(LOST, READY, policy).record
    again = go(group(pod(0, "0new"), pod(1, "1new")), first, policy, later=5).record
    broken = group(pod(0, "0new"), pod(1, "1newer"))
    step = go(broken, again, policy, later=6)
    assert (step.record.phase, step.again) == (rec.NOT_READY, FIRST - 6)
    second = go(broken, step.record, policy, later=FIRST).record
    assert (second.phase, second.recycles, second.in_a_row) == (rec.RECYCLING, 2, 2)
    third = go(group(pod(0, "0newer"), pod(1, "1newer")), second, policy, later=20).record
    failed = go(group(pod(0, "0newer"), pod(1, "1last")), third, policy, later=60).record
    assert (failed.phase, failed.recycles) == (rec.FAILED, 2)
    assert go(group(pod(0, "0newer"), pod(1, "1last")), failed, policy, later=9999).record == failed, "it stays as it is"
    by_hand = go(group(pod(0, "0last"), pod(1, "1last")), failed, policy, later=9999).record
    assert by_hand.phase == rec.READY
    assert go(group(pod(0, "0last"), pod(1, "1last")), by_hand, policy, later=9999 + STABLE).record.in_a_row == 0


def test_failures_before_first_readiness_count_as_startup() -> None:
    booting = group(pod(0, ready=False), pod(1, restarts=3, ending=Termination("m", "Error", 1, "no", rfc3339(NOW))))
    step = go(booting, NEW)
    assert (step.record.phase, step.record.failure, step.again) == (rec.STARTING, None, PLAIN.start)
    late = go(booting, step.record, later=PLAIN.start).record
    assert (late.phase, late.members) == (rec.RECYCLING, booting.start_marks())
    assert late.failure and late.failure["exitCode"] == 1, "the last termination is more exact than the time limit"
    assert go(group(pod(0, node="", ready=False), pod(1, node="")), NEW, later=99999).record.phase == rec.PENDING


def test_late_group_that_becomes_ready_before_its_recycle_is_recorded() -> None:
    late = go(group(pod(0, ready=False), pod(1)), replace(NEW, phase=rec.STARTING, since=rfc3339(NOW)), later=99999).record
    assert late.phase == rec.RECYCLING
    assert go(WHOLE, late, later=99999).record == late, "a running container proves nothing"
    record = go(group(pod(0, probed=True), pod(1)), late, later=99999).record
    assert (record.phase, record.incarnation, record.members) == (rec.READY, 1, WHOLE.start_marks())


def test_group_with_drifted_pod_template_is_recycled() -> None:
    new = group(pod(0, "0new"), pod(1, "1new"), drifted=frozenset({"1new"}))
    record = go(new, replace(READY, phase=rec.STARTING)).record
    assert (record.phase, record.members) == (rec.RECYCLING, new.start_marks())
    assert record.failure and record.failure["reason"] == "TemplateDrift"
    assert go(new, record).record == record, "the readiness of its leader does not matter"
    same = WHOLE._replace(drifted=frozenset({pod(1).uid}))
    assert go(same, READY).record == READY, "recorded pods stay, even if an upgrade changes their template"
    in_place = group(pod(0, restarts=1), pod(1, restarts=1), drifted=frozenset({pod(1).uid}))
    assert go(in_place, READY).record.recycles == 0
    again = group(pod(0, "0new", restarts=1, probed=True), pod(1, "1new"), drifted=frozenset({"0new"}))
    assert go(again, record).record == record, "nor does a restart with the wrong template"
    alone = group(pod(0, restarts=1), size=1, drifted=frozenset({pod(0).uid}))
    assert go(alone, replace(READY, phase=rec.RECYCLING, ready_since="")).record.phase == rec.RECYCLING
    assert go(new._replace(drifted=frozenset(), settled=False), record).record == record, "nor does a further edit"
    unsettled = group(pod(0, "0new"), pod(1, "1new"), settled=False)
    assert go(unsettled, READY).record.incarnation == 1, "not recorded while somebody else's template is there"


def test_group_with_tolerated_lost_ranks_is_not_recycled() -> None:
    elastic = RecoveryPolicy(spare=1)
    away = group(pod(0), pod(2), size=3)
    ready = go(group(pod(0), pod(1), pod(2), size=3), NEW, elastic).record
    assert go(away, ready, elastic).record == ready
    back = group(pod(0), pod(1, "1new", ready=True), pod(2), size=3)
    record = go(back, ready, elastic).record
    assert (record.phase, record.recycles, record.members["1"]) == (rec.READY, 0, "1new.0")
    in_place = group(pod(0, restarts=1, probed=True), pod(1, running=False), pod(2, restarts=1), size=3)
    assert go(in_place, ready, elastic).record.incarnation == 2, "with a new leader, it also serves without one rank"
    two = group(pod(0), pod(1, "1new"), pod(2, "2new"), size=3)
    assert go(two, ready, elastic).record.phase == rec.RECYCLING, "more ranks than it survives"
    headless = group(pod(0, "0new"), pod(1), pod(2), size=3)
    assert go(headless, ready, elastic).record.phase == rec.RECYCLING, "no group survives the loss of its leader"


def test_disabled_recycling_still_reports_failures() -> None:
    off = RecoveryPolicy(recycles=False)
    record = go(LOST, READY, off).record
    assert (record.phase, record.recycles, record.incarnation) == (rec.READY, 0, 2)
    assert record.failure and record.failure["reason"] == "PodReplaced"
    silent = go(group(pod(0, ready=False), pod(1)), READY, off, later=9999)
    assert (silent.record.phase, silent.again) == (rec.NOT_READY, None)


def test_group_record_survives_status_round_trip() -> None:
    record = replace(go(LOST, READY).record, recycled_at=rfc3339(NOW))
    assert rec.parse_records({"groups": rec.format_records([record])}) == {"g-0": record}
    assert rec.format_records([NEW])[0] == {
        "name": "g-0", "component": "engine", "revision": "r", "index": 0, "phase": "Pending", "since": "", "incarnation": 0,
    }  # fmt: skip


def test_future_times_in_a_record_are_replaced_by_now() -> None:
    ahead = rfc3339(NOW + timedelta(hours=1))
    record = replace(READY, since=ahead, ready_since=ahead, recycled_at=ahead)
    now = record.without_future_times(NOW)
    assert (now.since, now.ready_since, now.recycled_at) == (rfc3339(NOW),) * 3
    assert now.without_future_times(NOW) is now and READY.without_future_times(NOW) is READY


def held(*running: bool, **more: Any) -> Group:
    """Return a group some of whose ranks were stopped by a failed preflight check. `running` states for each rank whether
    its engine runs.
    """
    ranks = [pod(rank, running=runs, ready=False, **more) for rank, runs in enumerate(running)]
    return group(*(each if each.running else each._replace(preflight=CheckResult((), held=True)) for each in ranks))


def test_group_held_by_preflight_is_never_recycled() -> None:
    step = go(held(False, False), NEW)
    assert (step.record.phase, step.again) == (rec.HELD, None)
    later = go(held(False, False), step.record, later=10 * 24 * 3600)
    assert later.record == step.record
    passed = go(group(pod(0, ready=False), pod(1)), later.record, later=10 * 24 * 3600)
    assert (passed.record.phase, passed.again) == (rec.STARTING, PLAIN.start), "it then has the complete start-up time"


def test_preflight_holds_group_after_recycle() -> None:
    gone = go(held(False, False, uid="1new"), go(LOST, READY).record, later=60).record
    assert (gone.phase, gone.recycles) == (rec.HELD, 1)


def test_ranks_in_different_start_phases_are_recycled_together() -> None:
    """Only rank 0 was restarted. Its check waits for the other rank, whose engine waits for the leader, so both ranks are
    recycled together.
    """
    step = go(held(False, True), NEW)
    assert (step.record.phase, step.again) == (rec.STARTING, APART)
    record = go(held(False, True), step.record, later=APART).record
    assert record.phase == rec.RECYCLING and record.failure
    assert "one rank waits in its preflight check while the engine of another rank runs" in record.failure["message"]


def test_group_held_by_preflight_delays_others_only_briefly() -> None:
    waits = replace(go(held(False, False), NEW).record, recycled_at=rfc3339(NOW))
    assert _pending(waits, NOW) and not _pending(waits, NOW + timedelta(seconds=PLACING + 1))


def test_restored_pods_with_foreign_leader_are_recycled_before_first_start() -> None:
    """Pods of a restored copy that contact a leader in another namespace are recycled before their first start is recorded.
    Other pods of a group that was never ready are recorded whatever their template is.
    """
    both = frozenset({pod(0).uid, pod(1).uid})
    assert go(WHOLE._replace(drifted=both), NEW).record.incarnation == 1
    copied = WHOLE._replace(drifted=both, copied=True)
    record = go(copied, NEW).record
    assert (record.phase, record.incarnation, record.members) == (rec.RECYCLING, 0, WHOLE.start_marks())
    assert record.failure and record.failure["reason"] == "TemplateDrift"
    unsettled = go(copied._replace(drifted=frozenset(), settled=False), NEW).record
    assert (unsettled.phase, unsettled.incarnation) == (rec.STARTING, 0), "its StatefulSet would create the same pods"
    assert go(copied, READY).record == READY, "a serving copy of an older operator is not restarted"
