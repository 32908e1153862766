"""Advise the strategy blueGreen for a rollout that interrupts the service although the nodes have capacity for a second
copy of it.

The capacity is read once, live. It is read after every gate has opened, and before the first serving group is removed,
because the removal would free capacity. The result is only used for advice: the rollout does not depend on it, and no
capacity is promised.
"""

from collections.abc import Mapping
from dataclasses import replace

from ome_operator.core.placement.capacity_check import has_ready_groups, revision_needs
from ome_operator.core.placement.kueue import is_queued
from ome_operator.core.reasons import Reason
from ome_operator.core.reconcile.plan import CapacityCheck
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.render.statefulsets import StoredRole
from ome_operator.core.rollout.intent import Intent
from ome_operator.core.rollout.planner import ReplicaCounts
from ome_operator.core.rollout.step import RolloutGate
from ome_operator.names import digest

SENTENCE = (
    "the rollout of revision {} interrupts the service. The nodes have free capacity for a second copy: set "
    "spec.rollout.blueGreen, and the old pods serve until the new pods are ready, if ResourceQuotas allow "
    "both copies"
)


def add_second_copy_advice(snapshot: Snapshot, intent: Intent, counts: ReplicaCounts) -> Intent:
    """Return the intent with the advice `SENTENCE`, if nodes have capacity for a second copy of the service. Before the
    rollout begins, return an intent that requests the check of the capacity, and whose gate is closed until the result is
    known.
    """
    target, roles = intent.target, intent.roles(intent.target)
    wanted = {name: intent.groups.get(name, 1) for name in roles}
    if counts.paused or intent.gate.reason or not _interrupts(snapshot, intent, counts, roles, wanted):
        return intent
    asked = revision_needs(roles, wanted, snapshot.service.namespace, weights=True, excluded=intent.fit.excluded)
    key = f"{target}.copy.{digest(repr(asked))}"
    answer = snapshot.observed.checks.get(key)
    if answer is None and not snapshot.has_engines(target):
        gate = RolloutGate(
            Reason.CHECKING,
            f"revision {target} waits until the operator has read whether the nodes have free capacity "
            "for a second copy of the service",
        )
        return replace(intent, gate=gate, capacity_checks=(CapacityCheck(key, asked, second_copy=True),))
    return replace(intent, advice=(*intent.advice, SENTENCE.format(target))) if answer == "" else intent


def _interrupts(
    snapshot: Snapshot, intent: Intent, counts: ReplicaCounts, roles: Mapping[str, StoredRole], groups: Mapping[str, int]
) -> bool:
    """Return whether the rollout removes a serving revision before the target serves, and blueGreen would prevent this.

    Blue-green does not help if the revisions have different roles, because every strategy then removes the old pods first.
    The result is False if a queue or another scheduler, which applies its own rules, places the pods.
    """
    if not (snapshot.deps.policy.sees_cluster and snapshot.deps.nodes and counts.bounds.interrupts_serving(groups)):
        return False
    others = [(intent.roles(name), found) for name, found in snapshot.slices.items() if name != intent.target]
    if not any(known.keys() == roles.keys() and has_ready_groups(known, found) for known, found in others):
        return False
    return not is_queued(roles)
