"""What a pass over a service has decided, before it is written down as a plan and told in the status."""

from dataclasses import dataclass

from ome_operator.core.observed.objects import Ref
from ome_operator.core.placement.gangs import Placing
from ome_operator.core.reconcile.desired import Desired
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.recovery.recover import Recovery
from ome_operator.core.rollout.intent import Intent
from ome_operator.core.rollout.planner import ReplicaCounts
from ome_operator.core.rollout.progress_deadline import Clock
from ome_operator.core.rollout.step import RolloutStep


@dataclass(frozen=True, kw_only=True)
class Decided:
    """The answers, in the order in which `sync` asks for them."""

    snapshot: Snapshot
    """What they rest on."""
    intent: Intent
    pending: tuple[Ref, ...]
    """Objects whose edits the service is not whole with yet, by its stored status."""
    clock: Clock
    counts: ReplicaCounts
    step: RolloutStep
    """Without the groups that wait for nodes."""
    placing: Placing
    want: Desired
    recovery: Recovery
