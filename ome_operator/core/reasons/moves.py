"""Reasons of groups that leave their nodes."""

from ome_operator.core.reasons.conditions import MOVED
from ome_operator.core.reasons.record import Kstatus, ReasonRecord, State


class MoveReasons:
    """States of moves (docs/moves.md). The service keeps serving while its groups move. A service with a move that waits for
    nodes is therefore not Reconciling.
    """

    NO_SPARE_NODES = ReasonRecord(
        "NoSpareNodes", of=(MOVED,), kstatus=Kstatus.CURRENT, state=State.WAITING, gravity=510,
        meaning="a group has to leave its node, but there are no free nodes for its replacement. The message names the "
                "GPUs that are missing, what the operator does next, and when",
        remedy="free nodes, add nodes, or wait; `ome move --now NODE` moves the groups of a node without "
               "replacements",
        see="See [moves](moves.md#if-no-node-is-free)",
    )  # fmt: skip
    MOVE_TIMED_OUT = ReasonRecord(
        "MoveTimedOut", of=(MOVED,), kstatus=Kstatus.CURRENT, state=State.WAITING, gravity=520,
        meaning="a group has to leave its node, but no replacement served within `spec.moves.timeout`, or the replacement "
                "failed. The group stays and serves, and a drain of its node waits",
        remedy="free nodes or add nodes; the operator tries the move again. `ome move --now NODE` moves the groups of a "
               "node without replacements",
        see="See [moves](moves.md#if-no-node-is-free)",
    )  # fmt: skip
    MOVING = ReasonRecord(
        "Moving", of=(MOVED,), kstatus=Kstatus.IN_PROGRESS, state=State.STARTING, passing=True, gravity=530,
        meaning="a group has to leave its node. Its replacement starts on free nodes, or serves already; the operator "
                "removes the group when the replacement serves",
        remedy="wait",
        see="See [moves](moves.md)",
    )  # fmt: skip
    MOVE_PENDING = ReasonRecord(
        "MovePending", of=(MOVED,), kstatus=Kstatus.IN_PROGRESS, state=State.STARTING, passing=True, gravity=540,
        meaning="a group has to leave its node. The move begins when the cause has lasted for 15 s, and when the rollout, "
                "the pause or the recycle that the message names has ended",
        remedy="wait",
        see="See [moves](moves.md)",
    )  # fmt: skip
