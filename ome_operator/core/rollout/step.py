"""Decide which revisions keep their objects on the cluster, which are removed, and whether the desired revision may start
(decisions 6 and 12).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ome_operator.core.observed.slices import Slice, has_started
from ome_operator.core.reasons import Reason
from ome_operator.core.reconcile.plan import Delete
from ome_operator.core.rollout.planner import ReplicaCounts, Share, keep_groups, step
from ome_operator.core.rollout.retire import Retirement, retire_revision


@dataclass(frozen=True)
class RolloutGate:
    """States whether a revision may start, or continue, to replace the serving revision."""

    reason: str
    """The reason why the revision may not start or continue, as a CamelCase word; "" if the revision may start or
    continue."""
    message: str


@dataclass(frozen=True)
class RolloutStep:
    """One step of a rollout."""

    groups: Mapping[str, Share]
    """Number of groups by role, for each revision whose StatefulSets this pass writes; the target comes last."""
    delete: tuple[Delete, ...] = ()
    alone: bool = False
    """Whether StatefulSets of the kept revision may be created only when no engine pod of another revision exists."""
    reason: str = ""
    """The reason why the target is not the only complete revision yet, as a CamelCase word; "" if there is no such
    reason."""
    message: str = ""
    """The reason as a sentence. While a revision is being replaced, the sentence states what is being removed."""
    rolls: bool = False
    """Whether a revision is being replaced, or waits for permission to be replaced."""
    held: bool = False
    """Whether nothing is replaced for now, because of `reason`."""

    @property
    def keep(self) -> tuple[str, ...]:
        """The revisions whose StatefulSets this pass writes, the target last."""
        return tuple(self.groups)

    def replaced_revision(self, target: str) -> str:
        """Return the revision whose groups get replacements if they have to leave their nodes; "" if no groups get
        replacements. `target` is the name of the target revision.

        Groups of a revision that a rollout removes get no replacements. The number of groups that such a revision keeps
        includes a group that is still being drained, so each pass would create another group.
        """
        last = self.keep[-1] if self.keep else ""
        return last if self.held or last == target else ""


OPEN = RolloutGate("", "")


def stored_hold(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `rolloutHold` of a stored status, with the fields gate, reason, target and since; {} while no gate is
    closed.

    Every component of a service has the same `rolloutHold`, so the first component that has it is read.
    """
    components: Mapping[str, Mapping[str, Any]] = status.get("components") or {}
    return next((component["rolloutHold"] for component in components.values() if component.get("rolloutHold")), {})


def decide_step(
    service: str, target: str, present: Mapping[str, Slice], gate: RolloutGate, numbers: ReplicaCounts, ahead: str = ""
) -> RolloutStep:
    """Return the next step from the existing revisions to the state in which only the target exists.

    A working revision is replaced only by a revision that can start. While the gate is closed, the old revisions are kept.
    Once it is open, they are removed step by step. `ahead` describes the wave that this service waits for; "" if the service
    may proceed. The function is stateless, so an operator that restarts during a rollout continues it.
    """
    if not target:  # nothing can be rendered and nothing is stored, so the running objects stay
        return RolloutStep({}, reason=gate.reason or Reason.NOTHING_TO_RUN, message=gate.message)
    others = [one for name, one in present.items() if name != target]
    running = target in present and has_started(present[target])
    if not others:
        return _alone(target, target in present and bool(present[target].workloads), gate, numbers)
    if not running and gate.reason:
        pulls = gate.reason == Reason.PULLING_IMAGES  # the service has begun its wave, and stays in it
        return replace(_waiting(others, gate, numbers), reason=gate.reason, message=gate.message, rolls=pulls)
    if not running and ahead:
        return replace(_waiting(others, gate, numbers), reason=Reason.WAITING_FOR_TURN, message=ahead, rolls=True)
    wanted = numbers.wanted[target]
    halt = RolloutGate(Reason.PAUSED, "spec.rollout.paused is true") if numbers.paused else gate
    shares = (
        keep_groups(wanted, target, numbers.observed_counts)
        if halt.reason
        else step(wanted, target, numbers.observed_counts, numbers.bounds)
    )
    return _rolling(service, target, others, running, shares, numbers, halt)


def without_withheld(step: RolloutStep, target: str, withheld: Mapping[str, int]) -> RolloutStep:
    """Return the step without the groups of the target that wait for nodes. `withheld` is the number of these groups by
    role.
    """
    if target not in step.groups or not withheld:
        return step
    fewer = {role: max(0, count - withheld.get(role, 0)) for role, count in step.groups[target].items()}
    return replace(step, groups={**step.groups, target: fewer})


def _rolling(
    service: str,
    target: str,
    others: list[Slice],
    running: bool,
    shares: Mapping[str, Share],
    numbers: ReplicaCounts,
    halt: RolloutGate,
) -> RolloutStep:
    """Return the step for the numbers of groups in `shares`: revisions without groups in `shares` are removed step by step,
    and the StatefulSets of the other revisions are written. `running` states whether the target has engines. `halt` is a
    closed gate if nothing may be replaced now.
    """
    kept = {found.revision: shares[found.revision] for found in others if any(shares[found.revision].values())}
    going = [retire_revision(service, found) for found in others if found.revision not in kept]
    waits = [step.waits_for for step in going if step.waits_for]
    begins = any(shares[target].values()) and not (numbers.bounds.alone and waits)
    # Terminating groups of the target hold its capacity, and are removed only while it is reconciled.
    ending = any(groups.left > groups.existing for groups in numbers.built.get(target, {}).values())
    if running or begins or ending or not (kept or waits):
        kept[target] = shares[target]
    alone = not running and len(kept) == 1 and not any(numbers.bounds.surge.values())
    deletes = _deletes(going, running)
    if halt.reason:
        return RolloutStep(kept, deletes, alone, halt.reason, halt.message, rolls=True, held=True)
    reason = _reason(serves=bool(kept.keys() - {target}), ends=bool(waits))
    return RolloutStep(kept, deletes, alone, reason, ", ".join(waits), rolls=bool(reason))


def _deletes(going: list[Retirement], running: bool) -> tuple[Delete, ...]:
    """Return the deletions of old revisions in this pass.

    `going` are the next steps that remove old revisions, and `running` states whether the new revision has engines. When
    only the disruption budgets of an old revision are left, they are kept until the new revision has engines, because the
    old revision may have to be completed again.
    """
    return tuple(delete for step in going if running or step.waits_for for delete in step.delete)


def _reason(serves: bool, ends: bool) -> str:
    """Return why the target is not the only revision: an old revision still serves (`serves`), or objects of an old revision
    are being removed (`ends`). Return "" if neither is true.
    """
    if serves:
        return Reason.ROLLING_OUT
    return Reason.RETIRING_OLD_SLICE if ends else ""


def _waiting(others: list[Slice], gate: RolloutGate, numbers: ReplicaCounts) -> RolloutStep:
    """Return a step that keeps the revisions that run or, if none runs, the revision that still has the most objects.

    A revision that has objects and does not run was being removed, or a person deleted its leaders. It is completed again
    while no other revision may start. While a check is being made (reason Checking), missing groups are not created, because
    the result is known in a moment.
    """
    run = [one for one in others if has_started(one)]
    if gate.reason == Reason.CHECKING:
        return RolloutStep({one.revision: _no_more(one.revision, numbers) for one in run}, held=True)
    if not run:
        run = sorted((one for one in others if one.workloads), key=lambda one: (len(one.workloads), one.revision))[-1:]
    if not run:
        return RolloutStep({}, held=True)
    first = max(
        run, key=lambda one: (sum(each.existing for each in numbers.observed_counts[one.revision].values()), one.revision)
    ).revision
    shares = keep_groups(
        numbers.wanted[first], first, {one.revision: numbers.observed_counts[one.revision] for one in others}
    )
    kept = {one.revision: shares[one.revision] for one in run if one.revision != first}
    return RolloutStep({**kept, first: shares[first]}, alone=not kept, held=True)


def _no_more(revision: str, numbers: ReplicaCounts) -> Share:
    """Return the number of existing groups of a revision by role, at most the desired number. While a group leaves its node,
    both the group and its replacement exist. If both counted, each pass would create another replacement.
    """
    wanted = numbers.wanted[revision]
    return {
        role: min(each.existing, wanted.get(role, each.existing)) for role, each in numbers.observed_counts[revision].items()
    }


def _alone(target: str, begun: bool, gate: RolloutGate, numbers: ReplicaCounts) -> RolloutStep:
    """Return the step for the target if no other revision exists. `begun` states whether the target has objects already. A
    first revision starts at once, unless the user paused the rollout or the inputs are incomplete.
    """
    if not begun and gate.reason:
        return RolloutStep({}, reason=gate.reason, message=gate.message)
    return RolloutStep({target: numbers.wanted[target]}, alone=True)
