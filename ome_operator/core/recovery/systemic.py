"""Decide about all groups of a role together: a fault that many groups share is no reason to recycle all of them."""

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType

from ome_operator.core.observed.silence import Silence
from ome_operator.core.reasons import Reason, ReasonedMessage
from ome_operator.core.recovery.group import Group, view
from ome_operator.core.recovery.policy import RecoveryPolicy
from ome_operator.core.recovery.record import (
    HELD,
    NOT_READY,
    PENDING,
    READY,
    RECYCLING,
    SILENT,
    STARTING,
    SYSTEMIC,
    GroupRecord,
    seconds_since,
)
from ome_operator.core.recovery.state_machine import GroupInputs, Transition, advance

PLACING = 300.0
"""Seconds within which pods are usually assigned to nodes, including nodes that an autoscaler has to create."""


def advance_groups(
    groups: list[Group],
    before: Mapping[str, GroupRecord],
    policy: RecoveryPolicy,
    lost: Callable[[str], bool],
    now: datetime,
    silences: Mapping[str, Silence] = MappingProxyType({}),
) -> tuple[dict[str, Transition], list[ReasonedMessage]]:
    """Return the next state of every group of a component, by the name of the group, and messages about faults that the
    groups share. `before` contains the stored records by the name of the group, and `lost` returns whether a node does not
    report or is gone. A fault of at least half of the groups is only reported. At most one group at a time is recycled
    because of a hang. `silences` maps the UID of each leader that answers no probes, or whose token generation is paused, to
    the reports of the registries about this leader.
    """
    stored = {one.name: before.get(one.name) or _new(one) for one in groups}
    records = {name: record.without_future_times(now) for name, record in stored.items()}
    stopped = {one.name: silences[one.leader.uid] for one in groups if one.leader and one.leader.uid in silences}
    down = [one for one in groups if _is_down(one, records[one.name], policy, stopped.get(one.name))]
    known = [one for one in groups if records[one.name].incarnation]
    systemic = len(down) > 1 and 2 * len(down) >= len(known)
    pending = any(_pending(one, now) for one in records.values())
    serving = [one for one in groups if one.is_ready and one.name not in stopped]
    per_revision = Counter(one.revision for one in serving)
    answers = {one.name for one in serving}
    steps: dict[str, Transition] = {}
    for one in groups:
        is_last = per_revision[one.revision] == (one.name in answers)
        ground = GroupInputs(policy, lost, now, systemic, pending, stopped.get(one.name), is_last)
        steps[one.name] = advance(one, records[one.name], ground)
        pending = pending or steps[one.name].record.phase == RECYCLING
    if not systemic or not policy.recycles:
        return steps, []
    message = (
        f"{len(down)} of {len(known)} groups ({', '.join(one.title for one in down[:4])}) became unready at the same time"
    )
    return steps, [
        ReasonedMessage(
            Reason.SYSTEMIC_FAULT,
            (
                f"{message}, although every rank runs, so the operator recycles none of them: check what these groups "
                "share, such as storage or a network"
            ),
        )
    ]


def _new(group: Group) -> GroupRecord:
    """Return the record of a group that has no stored record."""
    return GroupRecord(group.name, group.component, group.revision, group.number)


def _is_down(group: Group, record: GroupRecord, policy: RecoveryPolicy, silence: Silence | None) -> bool:
    """Return whether the leader of a group is not ready, or answers no probes of the registries, although every rank has
    been running since the group served. `silence` is what the registries report about the leader; None if it answers their
    probes.
    """
    if record.phase not in (READY, NOT_READY, SILENT, SYSTEMIC) or group.leader is None:
        return False
    if group.leader.ready and (silence is None or silence.is_paused):
        return False
    return view(group, record, policy.spare).whole


def _pending(record: GroupRecord, now: datetime) -> bool:
    """Return whether a recycle of the group is under way: its old pods are ending, or its new pods are starting. If the
    new pods find no nodes for PLACING seconds, the recycle is no longer counted.
    """
    if record.phase in (PENDING, HELD) and seconds_since(record.since, now) > PLACING:
        return False
    again = record.phase in (PENDING, HELD, STARTING) and record.recycled_at > record.ready_since
    return record.phase == RECYCLING or again
