"""Decide about all groups of a role together: a fault that many groups share is no reason to recycle all of them."""

from collections.abc import Callable, Mapping
from datetime import datetime

from ome_operator.core.reasons import Reason, Why
from ome_operator.core.recovery.group import Group, view
from ome_operator.core.recovery.policy import RecoveryPolicy
from ome_operator.core.recovery.record import (
    HELD,
    NOT_READY,
    PENDING,
    READY,
    RECYCLING,
    STARTING,
    SYSTEMIC,
    GroupRecord,
    passed,
)
from ome_operator.core.recovery.state_machine import Circumstances, Transition, advance

PLACING = 300.0
"""Seconds within which pods usually get their nodes, including nodes that an autoscaler creates."""


def together(
    groups: list[Group],
    before: Mapping[str, GroupRecord],
    policy: RecoveryPolicy,
    lost: Callable[[str], bool],
    now: datetime,
) -> tuple[dict[str, Transition], list[Why]]:
    """Return the next state of every group of a component, and messages. A fault of at least half of the groups is only
    reported. At most one group at a time is recycled because of a hang.
    """
    new = {one.name: GroupRecord(one.name, one.component, one.revision, one.number) for one in groups}
    records = {name: before.get(name, record).believed(now) for name, record in new.items()}
    silent = [one for one in groups if _silent(one, records[one.name], policy)]
    known = [one for one in groups if records[one.name].incarnation]
    systemic = len(silent) > 1 and 2 * len(silent) >= len(known)
    pending = any(_pending(one, now) for one in records.values())
    steps: dict[str, Transition] = {}
    for one in groups:
        ground = Circumstances(policy, lost, now, systemic, busy=pending)
        steps[one.name] = advance(one, records[one.name], ground)
        pending = pending or steps[one.name].record.phase == RECYCLING
    if not systemic or not policy.recycles:
        return steps, []
    said = (
        f"{len(silent)} of {len(known)} groups ({', '.join(one.title for one in silent[:4])}) became unready at the "
        "same time"
    )
    return steps, [
        Why(
            Reason.SYSTEMIC_FAULT,
            (
                f"{said}, although every rank runs, so none is recycled: check what these groups share, such as storage "
                "or a network"
            ),
        )
    ]


def _silent(group: Group, record: GroupRecord, policy: RecoveryPolicy) -> bool:
    """Return whether the leader of a group is not ready although every rank has been running since the group served."""
    if record.phase not in (READY, NOT_READY, SYSTEMIC) or group.leader is None or group.leader.ready:
        return False
    return view(group, record, policy.spare).whole


def _pending(record: GroupRecord, now: datetime) -> bool:
    """Return whether a recycle of the group is under way: its old pods are ending, or its new pods are starting. If the
    new pods find no nodes for PLACING seconds, the recycle is no longer counted.
    """
    if record.phase in (PENDING, HELD) and passed(record.since, now) > PLACING:
        return False
    again = record.phase in (PENDING, HELD, STARTING) and record.recycled_at > record.ready_since
    return record.phase == RECYCLING or again
