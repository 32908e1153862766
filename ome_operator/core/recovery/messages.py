"""The messages about failed groups: a condition, and an Event for each recycle."""

from collections.abc import Mapping

from ome_operator.core.reasons import RECOVERED, Reason, ReasonedMessage, record_of
from ome_operator.core.reconcile.plan import Event
from ome_operator.core.recovery import failure
from ome_operator.core.recovery.group import Group
from ome_operator.core.recovery.policy import RecoveryPolicy
from ome_operator.core.recovery.record import (
    FAILED,
    HELD,
    NODE_LOST,
    NOT_READY,
    READY,
    RECYCLING,
    RESTARTING,
    SYSTEMIC,
    GroupRecord,
)
from ome_operator.core.status import conditions as cond


def condition(
    records: Mapping[str, GroupRecord],
    groups: Mapping[str, Group],
    policies: Mapping[str, RecoveryPolicy],
    more: list[ReasonedMessage],
    notes: Mapping[str, str],
    *,
    frozen: bool = False,
) -> cond.Condition | None:
    """Return the condition Recovered: whether every group that failed is ready again. None if no group has ever failed.

    `more` contains further messages for the condition. `notes` maps the name of each group that answers no probes, or whose
    token generation is paused, to the end of the sentence about this group. If `frozen` is true, no group is recycled now.
    """
    failed = [one for _, one in sorted(records.items()) if one.failure and _went_down(one)]
    troubled = [one for _, one in sorted(records.items()) if one.phase not in (READY, SYSTEMIC) and _went_down(one)]
    messages = [
        *more,
        *(_message(one, groups[one.name], policies[one.component], notes.get(one.name, ""), frozen) for one in troubled),
    ]
    if messages:
        messages.sort(key=lambda why: record_of(why.reason).gravity)
        return cond.Condition(RECOVERED, False, messages[0].reason, "; ".join(why.sentence for why in messages))
    if not failed:
        return None
    last = max(failed, key=lambda one: str((one.failure or {}).get("time", "")))
    why = failure.sentence(last.failure or {})
    return cond.Condition(
        RECOVERED, True, Reason.RECOVERED, (f"{groups[last.name].title} is ready again{_times(last)}: {why}")
    )


def _went_down(record: GroupRecord) -> bool:
    """Return whether the group of a record was ready at some time, or was recycled. Other groups have never failed."""
    return bool(record.incarnation or record.recycles)


def _message(record: GroupRecord, group: Group, policy: RecoveryPolicy, note: str, frozen: bool) -> ReasonedMessage:
    """Return the message about a group that is not ready, and that was ready before or was recycled. `note` is the end of
    the sentence about the group, as in `condition`; "" without a note. If `frozen` is true, the group is not recycled now.
    """
    cause = f": {failure.sentence(record.failure)}" if record.failure else ""
    title = group.title
    if record.phase == FAILED:
        how = "read the logs of the group's pods, then delete these pods to try again, or raise lifecycle.maxRecycles"
        left = f"{title} was recycled {record.in_a_row} times in a row, so the operator does not recycle it again{cause}"
        return ReasonedMessage(Reason.RECYCLE_LIMIT, f"{left}; {how}")
    if record.phase == RECYCLING:
        return ReasonedMessage(Reason.RECYCLING, f"{title} {'would be' if frozen else 'is'} recycled{_times(record)}{cause}")
    if record.phase == HELD:
        return ReasonedMessage(
            Reason.PREFLIGHT_FAILED, f"{title} does not start, because a preflight check found a problem{cause}"
        )
    if record.phase == NODE_LOST:
        node = group.pods[0].node if 0 in group.pods else ""
        return ReasonedMessage(Reason.NOT_READY, f"{title} is not ready, and node {node} of its leader does not report")
    if note:
        return ReasonedMessage(Reason.NOT_READY, f"{title} {note}")
    if record.phase == NOT_READY and record.members != group.start_marks():
        return ReasonedMessage(Reason.NOT_READY, f"{title} is incomplete{cause}")
    if record.phase == NOT_READY:
        wait = (
            f": the operator recycles it after {policy.hang:.0f} s in this state" if policy.recycles and not frozen else ""
        )
        return ReasonedMessage(Reason.NOT_READY, f"{title} was ready and no longer is{wait}")
    waits = record.phase == RESTARTING and not frozen  # no timeout runs while the service is frozen
    wait = f"; the operator recycles it if this takes more than {policy.self_heal:.0f} s" if waits else ""
    return ReasonedMessage(Reason.RESTARTING, f"{title} is restarting{_times(record)}{cause}{wait}")


def _times(record: GroupRecord) -> str:
    return f" ({_ordinal(record.recycles)} recycle)" if record.recycles else ""


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"


def event(record: GroupRecord, group: Group) -> Event:
    """Return the Event that reports the beginning of a recycle."""
    why = failure.sentence(record.failure) if record.failure else "a rank was lost"
    what = f"{group.title} of revision {group.revision} is recycled{_times(record)}"
    return Event("Warning", "GroupRecycled", f"{what}: {why}")
