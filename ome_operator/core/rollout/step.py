"""Which slices to keep, which to take away, and whether the wanted one may start (decisions 6 and 12)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ome_operator.core.observed.slices import Slice, started
from ome_operator.core.plan import Delete
from ome_operator.core.reasons import Reason
from ome_operator.core.rollout.planner import ReplicaCounts, Share, stay, step
from ome_operator.core.rollout.retire import retire


@dataclass(frozen=True)
class Gate:
    """Whether a slice may replace the one that serves."""

    reason: str
    """CamelCase word, "" when it may start."""
    message: str


@dataclass(frozen=True)
class RolloutStep:
    """One step of a rollout."""

    groups: Mapping[str, Share]
    """Revisions whose slices are stamped in this pass, the target last -> role -> groups."""
    delete: tuple[Delete, ...] = ()
    alone: bool = False
    """No engine pod of another revision may exist when StatefulSets of the kept slice are created."""
    reason: str = ""
    """Why the target is not complete and alone yet, as a CamelCase word."""
    message: str = ""
    """Why in words; of a slice that is being replaced what is on its way out."""
    rolls: bool = False
    """A slice is being replaced, or waits for the permission to be."""
    held: bool = False
    """Nothing is replaced for now, for the reason above."""

    @property
    def keep(self) -> tuple[str, ...]:
        """Revisions whose slices are stamped in this pass."""
        return tuple(self.groups)


OPEN = Gate("", "")


def decide(
    service: str, target: str, present: Mapping[str, Slice], gate: Gate, numbers: ReplicaCounts, ahead: str = ""
) -> RolloutStep:
    """The next step from the slices that exist to the target alone.

    A slice that works goes only for one that can start: while the gate is closed the old ones are kept, and once it is open
    they make room step by step. `ahead` names the services whose turn it is, "" when it is ours. Stateless, so a restart in
    the middle goes on where it stopped.
    """
    if not target:  # nothing can be rendered and nothing is stored: what runs stays as it is
        return RolloutStep({}, reason=gate.reason or Reason.NOTHING_TO_RUN, message=gate.message)
    others = [one for name, one in present.items() if name != target]
    running = target in present and started(present[target])
    if not others:
        return _alone(target, target in present and bool(present[target].workloads), gate, numbers)
    if not running and gate.reason:
        return replace(_waiting(others, gate, numbers), reason=gate.reason, message=gate.message)
    if not running and ahead:
        message = f"{ahead} is being rolled out and is not whole yet; this service follows when it is"
        return replace(_waiting(others, gate, numbers), reason=Reason.WAITING_FOR_TURN, message=message, rolls=True)
    wanted = numbers.wanted[target]
    said = stay(wanted, target, numbers.seen) if numbers.paused else step(wanted, target, numbers.seen, numbers.bounds)
    return _rolling(service, target, others, running, said, numbers)


def _rolling(
    service: str, target: str, others: list[Slice], running: bool, said: Mapping[str, Share], numbers: ReplicaCounts
) -> RolloutStep:
    """Slices that are to have no group any more go step by step; the others are stamped with their groups."""
    kept = {one.revision: said[one.revision] for one in others if any(said[one.revision].values())}
    steps = [retire(service, one) for one in others if one.revision not in kept]
    waits = [one.waits_for for one in steps if one.waits_for]
    # What is left of the old slice (budgets) tells that it may still be made whole: it goes when the new one is there.
    deletes = tuple(delete for one in steps if running or one.waits_for for delete in one.delete)
    begins = any(said[target].values()) and not (numbers.bounds.alone and waits)
    if running or begins or not (kept or waits):
        kept[target] = said[target]
    alone = not running and len(kept) == 1 and not any(numbers.bounds.surge.values())
    message = ", ".join(waits)
    if numbers.paused:
        return RolloutStep(kept, deletes, alone, Reason.PAUSED, "spec.rollout.paused is true", rolls=True, held=True)
    reason = Reason.ROLLING_OUT if kept.keys() - {target} else Reason.RETIRING_OLD_SLICE if waits else ""
    return RolloutStep(kept, deletes, alone, reason, message, rolls=bool(reason))


def _waiting(others: list[Slice], gate: Gate, numbers: ReplicaCounts) -> RolloutStep:
    """The slices that go on serving: those that run, else the one of which most is left.

    It was on its way out, or somebody deleted its leaders; while nothing else may start it is made whole again. What is
    decided in a moment changes nothing.
    """
    run = [one for one in others if started(one)]
    if gate.reason == Reason.CHECKING:
        have = {one.revision: {role: each.have for role, each in numbers.seen[one.revision].items()} for one in run}
        return RolloutStep(have, held=True)
    if not run:
        run = sorted((one for one in others if one.workloads), key=lambda one: (len(one.workloads), one.revision))[-1:]
    if not run:
        return RolloutStep({}, held=True)
    first = max(run, key=lambda one: (sum(each.have for each in numbers.seen[one.revision].values()), one.revision)).revision
    said = stay(numbers.wanted[first], first, {one.revision: numbers.seen[one.revision] for one in others})
    kept = {one.revision: said[one.revision] for one in run if one.revision != first}
    return RolloutStep({**kept, first: said[first]}, alone=not kept, held=True)


def _alone(target: str, begun: bool, gate: Gate, numbers: ReplicaCounts) -> RolloutStep:
    """Nothing else exists: a first slice starts at once unless the user paused or its inputs are not complete."""
    if not begun and gate.reason:
        return RolloutStep({}, reason=gate.reason, message=gate.message)
    return RolloutStep({target: numbers.wanted[target]}, alone=True)
