"""Keep the pods of the serving revision until nodes have capacity for the pods of the new revision. The capacity is read
live immediately before the rollout (decisions 38).

This check is the last check: it is made when the revision is accepted and its wave has begun, because its result is valid
only for seconds.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ome_operator import keys
from ome_operator.core.reasons import Reason
from ome_operator.core.reconcile.plan import CapacityCheck
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.rollout.intent import Intent
from ome_operator.core.rollout.planner import Bounds
from ome_operator.core.rollout.step import RolloutGate, stored_hold
from ome_operator.names import digest


def waited_for_capacity(status: Mapping[str, Any]) -> bool:
    """Return whether the last pass stopped the rollout because the nodes had no capacity, according to `rolloutHold.gate`
    of the status.

    A service that was stopped for this reason is not admitted to a wave of a progressive rollout. Its capacity is checked
    before it asks for admission. If it were admitted first and had to return the admission at once, the reason of the
    condition RolledOut would change with every pass. Every version of the operator that has written the reason
    WaitingForRoom has also written `rolloutHold`, so no other field has to be read after an upgrade.
    """
    return stored_hold(status).get("gate") == Reason.WAITING_FOR_ROOM


def with_capacity(snapshot: Snapshot, intent: Intent, bounds: Bounds) -> Intent:
    """Return the intent, with its gate closed if the capacity for the target revision is not known yet or does not suffice.

    The gate stays open if no serving group is removed before the target serves: in this case no capacity is lost, and
    autoscalers and preemption see the pods of the target.
    """
    target, needs = intent.target, intent.fit.moves
    goes = bounds.alone or any(bounds.unavailable.values())
    if not needs or not goes or intent.gate.reason or snapshot.has_engines(target):
        return intent
    key = f"{target}.room.{digest(repr(needs))}"
    answer = snapshot.observed.checks.get(key)
    if answer is None:
        gate = RolloutGate(
            Reason.CHECKING,
            f"revision {target} waits until the operator has read the free capacity of the nodes that it needs",
        )
        return replace(intent, gate=gate, capacity_checks=(CapacityCheck(key, needs),))
    if not answer:
        return intent
    anyway = f"to roll out the revision anyway, annotate the service: {keys.IGNORE_FIT}=true"
    return replace(
        intent,
        gate=RolloutGate(
            Reason.WAITING_FOR_ROOM, (f"revision {target} waits, and the serving revision stays: {answer}; {anyway}")
        ),
    )
