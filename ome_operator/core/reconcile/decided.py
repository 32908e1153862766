"""The decisions of a pass over a service, from which its plan and its status are made."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ome_operator.core.moves.moving import Moving
from ome_operator.core.observed.objects import Ref
from ome_operator.core.placement.gangs import GangPlan
from ome_operator.core.reconcile.desired import Desired
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.recovery.recover import Recovery
from ome_operator.core.rollout.intent import Intent
from ome_operator.core.rollout.planner import ReplicaCounts
from ome_operator.core.rollout.progress_deadline import Clock
from ome_operator.core.rollout.step import RolloutStep


@dataclass(frozen=True, kw_only=True)
class PassDecisions:
    """All decisions of a pass over a service, in the order in which `sync` makes them."""

    snapshot: Snapshot
    """The observed state that the decisions are based on."""
    intent: Intent
    pending: tuple[Ref, ...]
    """Shared objects with an edit whose rollout to the service is not complete yet, according to the stored status."""
    clock: Clock
    counts: ReplicaCounts
    step: RolloutStep
    """The step of the rollout, without the groups that wait for nodes."""
    placing: GangPlan
    moving: Moving
    want: Desired
    recovery: Recovery
    zero: Mapping[str, Any]
    """The field `zero` of the status; {} if every role always had groups."""
