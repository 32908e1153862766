"""State machine of a group: compute the next record of a group from its record and its pods. The record determines the
deletions.

A recycle is announced before it happens: the phase RECYCLING, the cause and the count are stored first. Only a pass that
reads the stored announcement deletes pods. It deletes pods whose start is the recorded start, and never newer pods. A crash
after any number of deletions therefore changes nothing. The recycle ends when all of these pods are gone.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from ome_operator import quantity
from ome_operator.core.observed.silence import Silence
from ome_operator.core.recovery.failure import DRIFTED, HUNG, QUIET, Failure, find_failure, group_failure, start_failure
from ome_operator.core.recovery.group import Group, StartComparison, uid_of, view
from ome_operator.core.recovery.policy import STABLE, RecoveryPolicy, recycle_pause
from ome_operator.core.recovery.record import (
    FAILED,
    HELD,
    NODE_LOST,
    NOT_READY,
    PENDING,
    READY,
    RECYCLING,
    RESTARTING,
    SILENT,
    STARTING,
    SYSTEMIC,
    UID,
    GroupRecord,
    seconds_since,
)

TURN = 5.0
"""Seconds after which a hung group is checked again if another group is being recycled, because no event reports the end
of that recycle."""
RARE_TURN = 60.0
"""Seconds after which a group that is not recycled is checked again if it answers no probes, or if its token generation
is paused. The check is necessary because no event reports the end of a cluster-wide stop of such recycles
(`silence.hold`). A change of the reports triggers a pass."""
APART = 300.0
"""Time limit in seconds for a group in which a preflight check holds one rank while the engine of another rank runs. The
check is repeated within this time, and then finds that the group runs."""


class Transition(NamedTuple):
    """The next state of a group, and when the state has to be computed again."""

    record: GroupRecord
    again: float | None = None
    """Seconds until the next pass if no event triggers a pass before; None if no pass is due."""
    note: str = ""
    """End of the sentence about a group that answers no probes, or whose token generation is paused. It states when the
    group is recycled, or why it is not."""


class GroupInputs(NamedTuple):
    """The inputs of the state machine of a group (`advance`) besides the observed group and its stored record."""

    policy: RecoveryPolicy
    lost: Callable[[str], bool]
    """A function that returns whether a node does not report or is gone."""
    now: datetime
    systemic: bool = False
    """Whether at least half of the leaders of the role became unready at once. The groups of these leaders are not the
    cause."""
    busy: bool = False
    """Whether another group of the role is being recycled. If so, no group is recycled because of a hang."""
    silence: Silence | None = None
    """What the registries of routers report about the leader if it answers no probes or its token generation is paused;
    otherwise None."""
    is_last: bool = False
    """Whether no other group of the role and the revision is ready and answers probes."""

    @property
    def is_silent(self) -> bool:
        """Whether the leader answers no probe of the routers' registries."""
        return self.silence is not None and not self.silence.is_paused


def advance(group: Group, record: GroupRecord, ground: GroupInputs) -> Transition:
    """Return the next state of a group."""
    seen = view(group, record, ground.policy.spare)
    if not ground.policy.recycles:
        return _watched(group, record, ground)
    if _met(group, record, seen, ground.policy.spare):
        return Transition(_recorded(group, _with_failure(group, record, ground), ground.now))
    decided = record.phase == RECYCLING or (record.phase == FAILED and _exhausted(record, ground.policy))
    if decided and seen.recorded and (ground.is_silent or not _came_back(group, record, seen)):
        return Transition(record)
    if not seen.recorded:
        return _coming(group, _with_failure(group, record, ground), ground)
    if seen.whole:
        return _whole(group, record, ground)
    return _broken(group, _with_failure(group, record, ground), seen, ground)


def _met(group: Group, record: GroupRecord, start_comparison: StartComparison, spare: int) -> bool:
    """Return whether a leader other than the recorded leader is ready, so that a new start of the group is recorded. If the
    leader has probes, its readiness proves that every rank has joined it, including ranks whose start is the recorded
    start. The readiness of a leader without probes does not show whether such ranks have joined it.

    A rank whose start is the recorded start can also belong to the new start of the group. This happens if the rank was
    recorded just after it had restarted, because the old leader notices a restart only some seconds later. Before a group
    is ready for the first time, its pods may come from any template, except for restored pods, which contact the ranks of
    another namespace.
    """
    if (
        not group.is_ready
        or group.pods[0] in start_comparison.recorded
        or (start_comparison.recorded and not group.pods[0].probed)
    ):
        return False
    if sum(not pod.running for pod in group.pods.values()) > spare:
        return False  # the leader notices the end of a rank only some seconds later
    if not record.incarnation:
        return not group.copied
    return group.settled and not _drifted(group, record)


def _came_back(group: Group, record: GroupRecord, start_comparison: StartComparison) -> bool:
    """Return whether the pods of a group that was to be recycled serve after all, and were created from the template of
    their revision. For a start that was never ready, the readiness of the leader counts only if the leader has a probe.
    """
    if not (start_comparison.whole and group.is_ready):
        return False  # the leader may be gone already
    proven = bool(record.ready_since) or (group.settled and group.pods[0].probed)
    return proven and not _drifted(group, record)


def _with_failure(group: Group, record: GroupRecord, ground: GroupInputs) -> GroupRecord:
    """Return the record with the failure that is visible now. The record of a group that was never ready is returned
    unchanged.
    """
    if not record.incarnation:
        return record  # anything that happens before a group was first ready is part of its start
    return replace(record, failure=find_failure(group, record, ground.lost, ground.now))


def _recorded(group: Group, record: GroupRecord, now: datetime) -> GroupRecord:
    """Return the record after a new start of the group. The caller has checked that the group is ready
    (`Group.is_ready`).
    """
    return replace(
        record.in_phase(READY, now),
        incarnation=record.incarnation + 1,
        ready_since=quantity.rfc3339(now),
        members=group.start_marks(),
        node=group.pods[0].node,
    )


def _watched(group: Group, record: GroupRecord, ground: GroupInputs) -> Transition:
    """Return the next state of a group that is never recycled, because its pods are left to the kubelet and the
    StatefulSets.
    """
    if group.is_ready:
        same = record.phase == READY and record.members == group.start_marks()
        return Transition(record if same else _recorded(group, _with_failure(group, record, ground), ground.now))
    if record.incarnation and group.is_bound:
        return Transition(_with_failure(group, record, ground).in_phase(NOT_READY, ground.now))
    return Transition(_with_failure(group, record, ground).in_phase(STARTING if group.is_bound else PENDING, ground.now))


def _coming(group: Group, record: GroupRecord, ground: GroupInputs) -> Transition:
    """Return the next state of a group whose new start is not recorded yet."""
    if (record.incarnation or group.copied) and (strange := _drifted(group, record)):
        why = "the pod was created from a template that does not belong to the revision of the group"
        failure = {**group_failure(group, DRIFTED, why, ground.now), "podName": strange}
        return _recycle(record, failure, ground, group.start_marks())
    if not group.is_bound:
        return Transition(record.in_phase(PENDING, ground.now))
    if group.is_held_by_preflight and not group.is_split_by_preflight:  # no timeout: a restart would have the same result
        return Transition(record.in_phase(HELD, ground.now))
    record = record.in_phase(STARTING, ground.now)
    limit, why = ground.policy.start, f"the group did not become ready within {ground.policy.start:.0f} s"
    if group.is_split_by_preflight:
        why = (
            "one rank waits in its preflight check while the engine of another rank runs, so they cannot connect to "
            "each other"
        )
        limit = min(APART, limit)
    left = limit - seconds_since(record.since, ground.now)
    if left > 0:
        return Transition(record, left)
    return _recycle(record, start_failure(group, why, ground.now), ground, group.start_marks())


def _drifted(group: Group, record: GroupRecord) -> str:
    """Return the name of a pod that was created from another template than the template of the revision; "" if there is no
    such pod.

    The pods of a recorded start that was ready are not checked: they had the right template when they were recorded,
    although an upgrade of Kubernetes may have changed the name of the template since. The pods of a recorded start that was
    never ready are checked, because such a start has to be deleted.
    """
    strange = [(rank, pod) for rank, pod in group.pods.items() if pod.uid in group.drifted]
    return next((pod.name for rank, pod in strange if not record.ready_since or uid_of(record, rank) != pod.uid[:UID]), "")


def _whole(group: Group, record: GroupRecord, ground: GroupInputs) -> Transition:
    """Return the next state of a group whose ranks have all been running since the recorded start: the group serves, or
    it hangs.
    """
    now, policy = ground.now, ground.policy
    if group.is_ready and not record.ready_since:
        return Transition(_recorded(group, record, now))
    leader = group.pods[0]
    if leader.ready and not ground.is_silent:
        return _ready(_replaced(group, record, ground), now)
    if ground.lost(leader.node):
        return Transition(record.in_phase(NODE_LOST, now))
    if ground.systemic:
        return Transition(
            record.in_phase(SYSTEMIC, now)
        )  # the timeout of the group starts again when the systemic fault is over
    if leader.ready:
        return _silent(group, record.in_phase(SILENT, now), ground)
    record = record.in_phase(NOT_READY, now)
    if ground.silence is not None and ground.silence.is_paused:
        return Transition(
            record,
            RARE_TURN,
            "is not ready because its token generation is paused, so the operator does not recycle the group",
        )
    left = policy.hang - max(seconds_since(record.since, now), _silent_for(record, ground) if not _spared(ground) else 0.0)
    if left > 0 or ground.busy:
        return Transition(record, left if left > 0 else TURN)
    if not record.ready_since:
        return _recycle(record, start_failure(group, "the leader never became ready", now), ground)
    why = f"the leader had been ready, then was not ready for {policy.hang:.0f} s although every rank ran"
    return _recycle(record, group_failure(group, HUNG, why, now), ground)


def _silent(group: Group, record: GroupRecord, ground: GroupInputs) -> Transition:
    """Return the next state of a group whose leader is ready, but answers no probe of the routers' registries."""
    seen = "answers no probe of the routers' registries and completes no request"
    if why := _spared(ground):
        return Transition(record, RARE_TURN, f"{seen}; the operator does not recycle the group, because {why}")
    left = ground.policy.hang - _silent_for(record, ground)
    if left > 0 or ground.busy:
        note = f"{seen}; the operator recycles the group after {ground.policy.hang:.0f} s in this state"
        return Transition(record, left if left > 0 else TURN, note)
    why = f"the leader answered no probe of the routers' registries for {ground.policy.hang:.0f} s and completed no request"
    return _recycle(record, group_failure(group, QUIET, why, ground.now), ground)


def _silent_for(record: GroupRecord, ground: GroupInputs) -> float:
    """Return the seconds for which the leader has answered no probes since the group became ready; 0 if it answers
    probes.
    """
    if ground.silence is None or ground.silence.since is None:
        return 0.0
    return min(ground.now.timestamp() - ground.silence.since, seconds_since(record.ready_since, ground.now))


def _spared(ground: GroupInputs) -> str:
    """Return why a group is not recycled although its leader answers no probes of the registries; "" if it is recycled. If
    the leader is not ready either, the group is recycled when the leader has not been ready for `hang` seconds.
    """
    if not ground.policy.silence:
        return "lifecycle.silence is Observe"
    if ground.silence is not None and ground.silence.hold:
        return ground.silence.hold
    if ground.is_last and not (ground.silence is not None and ground.silence.requests_fail):
        return "no other group of its role works, and the routers report no failed requests"
    return ""


def _ready(record: GroupRecord, now: datetime) -> Transition:
    """Return the next state of a group that serves. When the group has served for STABLE seconds, its recycles are no longer
    counted as recycles in a row.
    """
    if record.phase != READY:
        record = replace(record.in_phase(READY, now), ready_since=quantity.rfc3339(now))
    left = STABLE - seconds_since(record.ready_since, now)
    if not record.in_a_row:
        return Transition(record)
    return Transition(record, left) if left > 0 else Transition(replace(record, in_a_row=0))


def _replaced(group: Group, record: GroupRecord, ground: GroupInputs) -> GroupRecord:
    """Return the record with the new starts of ranks that the engine survived losing, once these ranks are ready again."""
    if not ground.policy.spare:
        return record
    back = {rank: one for rank, one in group.start_marks().items() if group.pods[int(rank)].ready}
    if record.members | back == record.members:
        return record
    return replace(_with_failure(group, record, ground), members={**record.members, **back})


def _broken(group: Group, record: GroupRecord, start_comparison: StartComparison, ground: GroupInputs) -> Transition:
    """Return the next state of a group that has lost a part of its recorded start. The group is recycled unless it may
    still recover by itself.
    """
    now = ground.now
    if start_comparison.restarting:
        record = record.in_phase(RESTARTING, now)
        left = ground.policy.self_heal - seconds_since(record.since, now)
        if left > 0:
            return Transition(record, left)
        # A leader without probes is Ready whether or not it has joined its ranks, so it is deleted with them.
        if group.is_ready and group.pods[0] not in start_comparison.recorded:
            return _recycle(record, record.failure, ground, group.start_marks())
    elif start_comparison.ending and group.leader is not None:
        left = -seconds_since(group.leader.ends, now)
        if left > 0:
            return Transition(record.in_phase(NOT_READY, now), left)
    return _recycle(record, record.failure, ground)


def _recycle(
    record: GroupRecord, failure: Failure | None, ground: GroupInputs, never_ready: dict[str, str] | None = None
) -> Transition:
    """Return the transition that announces a recycle. If the limit of recycles is reached, return the transition to FAILED;
    if the last recycle was too recent, return a transition that waits.

    `never_ready` contains the marks of the starts that have to be deleted, if they are not the recorded starts.
    """
    now, record = ground.now, replace(record, failure=failure)
    gone = record if never_ready is None else replace(record, members=never_ready, ready_since="")
    if _exhausted(record, ground.policy):
        return Transition(gone.in_phase(FAILED, now))
    if (left := recycle_pause(record.in_a_row) - seconds_since(record.recycled_at, now)) > 0:
        is_kept = record.phase in (STARTING, RESTARTING, SILENT)
        return Transition(record if is_kept else record.in_phase(NOT_READY, now), left)
    gone = replace(gone, recycles=record.recycles + 1, in_a_row=record.in_a_row + 1, recycled_at=quantity.rfc3339(now))
    return Transition(gone.in_phase(RECYCLING, now))


def _exhausted(record: GroupRecord, policy: RecoveryPolicy) -> bool:
    """Return whether the number of recycles of a group in a row has reached the limit."""
    return policy.limit is not None and record.in_a_row >= policy.limit
