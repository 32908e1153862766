"""Reasons of groups that have failed and recover."""

from ome_operator.core.reasons.conditions import RECOVERED
from ome_operator.core.reasons.record import Kstatus, ReasonRecord, State


class RecoveryReasons:
    """States of failed groups during their recovery (docs/recovery.md)."""

    SYSTEMIC_FAULT = ReasonRecord(
        "SystemicFault", of=(RECOVERED,), kstatus=Kstatus.IN_PROGRESS, gravity=20,
        meaning="half of the leaders of a role are not ready although all of their ranks run, so the operator recycles no "
                "group",
        remedy="look for a common cause of these groups, such as storage or a network",
    )  # fmt: skip
    RECYCLE_LIMIT = ReasonRecord(
        "RecycleLimit", of=(RECOVERED,), kstatus=Kstatus.IN_PROGRESS, gravity=30,
        meaning="a group was recycled `maxRecycles` times in a row, so the operator does not recycle it again",
        remedy="read the logs of the group, then delete the group's pods, or raise `maxRecycles`; or delete the "
               "StatefulSet of its leader, so that another group replaces this group",
    )  # fmt: skip
    STUCK_TERMINATING = ReasonRecord(
        "StuckTerminating", of=(RECOVERED,), kstatus=Kstatus.IN_PROGRESS, gravity=40,
        meaning="a pod terminates on a node that does not report",
        remedy="see \"Pods of a dead node\" in [recovery](recovery.md); if you delete the StatefulSet of the group's "
               "leader, the group gets another node",
    )  # fmt: skip
    RECYCLING = ReasonRecord(
        "Recycling", of=(RECOVERED,), kstatus=Kstatus.IN_PROGRESS, state=State.STARTING, passing=True, gravity=110,
        meaning="the operator deletes the pods of a failed start",
        remedy="wait",
    )  # fmt: skip
    RESTARTING = ReasonRecord(
        "Restarting", of=(RECOVERED,), kstatus=Kstatus.IN_PROGRESS, state=State.STARTING, passing=True, gravity=130,
        meaning="ranks of a group are restarting",
        remedy="wait",
    )  # fmt: skip
