"""Which slices to keep, which to take away, and whether the wanted one may start (decisions 6 and 12)."""

from collections.abc import Mapping
from dataclasses import dataclass

from ome_operator.plan import Delete
from ome_operator.rollout.slices import Slice, retire, started


@dataclass(frozen=True)
class Gate:
    """Whether a slice may replace the one that serves."""

    reason: str
    """CamelCase word, "" when it may start."""
    message: str


@dataclass(frozen=True)
class Decision:
    """One step of a rollout."""

    keep: tuple[str, ...]
    """Revisions whose slices are stamped in this pass."""
    delete: tuple[Delete, ...] = ()
    gone: tuple[str, ...] = ()
    """Revisions of which no pod may exist before the kept slice's StatefulSets are created."""
    reason: str = ""
    """Why the target is not complete and alone yet, as a CamelCase word."""
    message: str = ""
    rolls: bool = False
    """A slice is being replaced, or waits for the permission to be."""


OPEN = Gate("", "")
CHECKING = "Checking"
"""Reason of a gate that is open or closed in a moment."""


def decide(service: str, target: str, present: Mapping[str, Slice], gate: Gate, ahead: str = "") -> Decision:
    """The next step from the slices that exist to the target alone.

    A slice that works goes only for one that can start: while the gate is closed the old ones are kept whole, and once it is
    open they are taken away step by step. `ahead` names the services whose turn it is, "" when it is ours. Stateless, so a
    restart in the middle goes on where it stopped.
    """
    if not target:  # nothing can be rendered and nothing is stored: what runs stays as it is
        return Decision((), reason=gate.reason or "NothingToRun", message=gate.message)
    others = [one for name, one in present.items() if name != target]
    running = target in present and started(present[target])
    if not others:
        return _alone(target, target in present and bool(present[target].workloads), gate)
    if not running and gate.reason:
        return Decision(_serving(others, gate), reason=gate.reason, message=gate.message)
    if not running and ahead:
        kept = _serving(others, gate)
        message = f"{ahead} is being rolled out and is not whole yet; this service follows when it is"
        return Decision(kept, reason="WaitingForTurn", message=message, rolls=True)
    steps = [retire(service, one) for one in others]
    deletes = tuple(delete for step in steps for delete in step.delete)
    waits = [step.waits_for for step in steps if step.waits_for]
    if running or not waits:
        message = f"waits for {'; '.join(waits)}" if waits else ""
        gone = tuple(one.revision for one in others)
        # What is left of the old slice (budgets) tells that it may still be made whole: it goes when the new one is there.
        deletes = deletes if running else ()
        return Decision((target,), deletes, gone, "RetiringOldSlice" if waits else "", message, rolls=bool(waits))
    return Decision((), deletes, reason="RetiringOldSlice", message=f"waits for {'; '.join(waits)}", rolls=True)


def _serving(others: list[Slice], gate: Gate) -> tuple[str, ...]:
    """The slices that go on serving: those that run, else the one of which most is left.

    It was on its way out, or somebody deleted its leaders; while nothing else may start it is made whole again.
    """
    run = tuple(one.revision for one in others if started(one))
    if run or gate.reason == CHECKING:
        return run
    left = [one for one in others if one.workloads]
    return (max(left, key=lambda one: (len(one.workloads), one.revision)).revision,) if left else ()


def _alone(target: str, begun: bool, gate: Gate) -> Decision:
    """Nothing else exists: a first slice starts at once unless the user paused or its inputs are not complete."""
    if not begun and gate.reason:
        return Decision((), reason=gate.reason, message=gate.message)
    return Decision((target,))
