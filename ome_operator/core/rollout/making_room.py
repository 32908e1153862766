"""What serves goes for a slice that needs other nodes only when these have room, read live right before (decisions 38).

Asked last of all, because the answer is true for seconds: when the revision is accepted and it is its turn.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ome_operator import keys
from ome_operator.core.observed.snapshot import Snapshot
from ome_operator.core.plan import RoomCheck
from ome_operator.core.reasons import ROLLED_OUT, Reason
from ome_operator.core.rollout.intent import Intent
from ome_operator.core.rollout.planner import Bounds
from ome_operator.core.rollout.step import Gate
from ome_operator.names import digest


def waited(status: Mapping[str, Any]) -> bool:
    """Whether a service waits for room by its status. It took no turn for that, so it looks for room before it asks for a
    turn: else its reason would change with every pass, for ever.
    """
    said = {each["type"]: each["reason"] for each in status.get("conditions") or ()}
    return said.get(ROLLED_OUT) == Reason.WAITING_FOR_ROOM


def with_room(snapshot: Snapshot, intent: Intent, bounds: Bounds) -> Intent:
    """The intent with a closed gate while nobody has looked, or there is no room. Where nothing that serves goes before the
    target serves, nothing is lost, and its pods are made for autoscalers and preemption to see.
    """
    target, needs = intent.target, intent.fit.moves
    goes = bounds.alone or any(bounds.unavailable.values())
    if not needs or not goes or intent.gate.reason or snapshot.started(target):
        return intent
    key = f"{target}.room.{digest(repr(needs))}"
    answer = snapshot.observed.checks.get(key)
    if answer is None:
        gate = Gate(Reason.CHECKING, f"revision {target}: what is free on the nodes that it needs")
        return replace(intent, gate=gate, look=(RoomCheck(key, needs),))
    if not answer:
        return intent
    anyway = f"to go all the same, annotate the service: {keys.IGNORE_FIT}=true"
    return replace(
        intent, gate=Gate(Reason.WAITING_FOR_ROOM, f"revision {target} waits, and what serves stays: {answer}; {anyway}")
    )
