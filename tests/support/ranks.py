"""Simulates groups of ranks that find each other, lose each other and hang, for property tests of recovery.

It simulates StatefulSets, kubelets and engines with random, seeded timing. When all ranks of a group run and wait, they
begin a common start of the engine. When a rank of a start is lost, the other ranks are broken: each ends by itself after a
while, or waits forever until it is deleted (real engines do both). Time passes in steps of STEP seconds.
"""

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from ome_operator.core.observed.objects import Pod, Termination
from ome_operator.core.recovery.group import Group, ranks, view
from ome_operator.core.recovery.policy import RecoveryPolicy
from ome_operator.core.recovery.record import NOT_READY, RECYCLING, GroupRecord, start_mark
from ome_operator.core.recovery.recover import recycle_announced
from ome_operator.core.recovery.systemic import advance_groups
from ome_operator.core.rollout.retire import shorten_grace_periods
from ome_operator.quantity import rfc3339

STEP = 5.0
LATE = 3
"""Number of steps after which a probe, which runs every 5 s, has certainly seen that a leader answers."""
NODE = "node"


@dataclass
class Rank:
    """A pod with its engine."""

    uid: str
    restarts: int = 0
    running: bool = True
    start: int = 0
    """Number of the common start of the engine to which the rank belongs; 0 while it waits for the others."""
    hung: bool = False
    deleting: bool = False
    left: float = 0.0
    grace: int = 0
    ended_at: str = ""

    @property
    def works(self) -> bool:
        """Whether the rank is running and not being deleted. A rank that hangs counts as well."""
        return self.running and not self.deleting


@dataclass
class Truth:
    """The true state of a group, of which the operator sees only a part."""

    size: int
    ranks: dict[int, Rank] = field(default_factory=dict)
    ready: bool = False
    """Result of the leader's probe."""
    late: int = 0
    """Number of steps for which the probe result has been outdated."""
    silence: int = 0
    """Number of steps for which the leader does not answer although it is healthy."""
    failures: int = 0
    """How often the test made the group fail."""
    stubborn: bool = False
    """Whether ranks whose start is lost wait forever instead of ending."""

    @property
    def common_start(self) -> int:
        """Return the number of the start to which all ranks belong and in which all of them work; 0 if there is none."""
        starts = {one.start if one.works and not one.hung else 0 for one in self.ranks.values()}
        return starts.pop() if len(self.ranks) == self.size and len(starts) == 1 else 0


class Fleet:
    """The groups of a role, and an operator that may be killed at any moment."""

    def __init__(self, sizes: list[int], policy: RecoveryPolicy, seed: int) -> None:
        self.chance, self.policy = random.Random(seed), policy
        self.truths = [Truth(size) for size in sizes]
        self.stored: dict[str, GroupRecord] = {}
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.off = timedelta(0)
        """Deviation of the operator's clock."""
        self.deleted: list[str] = []
        self._count = 0

    # --- what the operator sees and does ------------------------------------------------------------------------------

    def groups(self) -> list[Group]:
        """Return the facts of all groups."""
        return [
            Group(f"g{number}", "engine", "r", number, truth.size, f"group {number}", ranks(self._pods(number, truth)))
            for number, truth in enumerate(self.truths)
        ]

    def _pods(self, number: int, truth: Truth) -> list[Pod]:
        return [
            Pod(
                namespace="ns", name=f"g{number}-{rank}", uid=one.uid, version=1, service="s", component="engine",
                revision="r", group=number, rank=rank, workload="w", node=NODE, ready=rank == 0 and truth.ready,
                probed=rank == 0, deleting=one.deleting, grace=one.grace, restarts=one.restarts, reason="", message="",
                running=one.running,
                ends=rfc3339(self.now + timedelta(seconds=one.left)) if one.deleting else "",
                ending=Termination("main", "Error", 1, "lost its peers", one.ended_at) if one.ended_at else None,
            )
            for rank, one in truth.ranks.items()
        ]  # fmt: skip

    def reconcile_once(self, survives: int = 99, stores: bool = True) -> None:
        """Run one reconciliation. The operator is killed after `survives` deletions, or before it stores its status."""
        groups = self.groups()
        steps, _ = advance_groups(groups, self.stored, self.policy, lambda _: False, self.now + self.off)
        doomed = [
            (group, pod.name)
            for group in groups
            if steps[group.name].record.phase == RECYCLING and recycle_announced(self.stored.get(group.name))
            for pod in shorten_grace_periods(view(group, steps[group.name].record).recorded)
        ]
        for group, name in doomed[:survives]:
            self._delete(group, int(name.rpartition("-")[2]))
        if stores and len(doomed) <= survives:
            self.stored = {name: step.record for name, step in steps.items()}

    def _delete(self, group: Group, rank: int) -> None:
        truth, record = self.truths[group.number], self.stored[group.name]
        one = truth.ranks[rank]
        assert not (truth.common_start and truth.ready), f"{group.name}-{rank} of a group that serves is deleted"
        assert record.members[str(rank)] == start_mark(group.pods[rank]), "a pod that is newer than the record is deleted"
        self.deleted.append(one.uid)
        one.deleting, one.left, one.grace = True, min(one.left if one.deleting else 1.0, 1.0), 1

    # --- what happens -------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Let STEP seconds pass."""
        self.now += timedelta(seconds=STEP)
        for truth in self.truths:
            self._controllers(truth)
            self._engines(truth)

    def _controllers(self, truth: Truth) -> None:
        for rank in range(truth.size):
            one = truth.ranks.get(rank)
            if one is None:
                if self.chance.random() < 0.7:
                    truth.ranks[rank] = Rank(self._uid())
            elif one.deleting:
                one.left -= STEP
                if one.left <= 0:
                    del truth.ranks[rank]
            elif not one.running and self.chance.random() < 0.6:
                one.running, one.restarts, one.start, one.hung = True, one.restarts + 1, 0, False

    def _engines(self, truth: Truth) -> None:
        waiting = [one for one in truth.ranks.values() if one.works and not one.start and not one.hung]
        if len(waiting) == truth.size and self.chance.random() < 0.5:  # the ranks have joined
            self._count += 1
            for one in waiting:
                one.start = self._count
        whole = bool(truth.common_start)
        if not whole and not truth.stubborn:
            for one in truth.ranks.values():
                if one.start and one.works and not one.hung and self.chance.random() < 0.5:
                    self._end(one)
        truth.silence = max(0, truth.silence - 1)
        leads = truth.ranks.get(0)
        if leads is None or not leads.running or not leads.start:
            truth.ready = False
        elif whole != truth.ready and (
            self.chance.random() < 0.6 or (whole and truth.late >= LATE)
        ):  # the probe reports late when the leader starts to answer, and when it stops
            truth.ready = whole and not truth.silence
        elif truth.silence:
            truth.ready = False
        truth.late = truth.late + 1 if whole != truth.ready and not truth.silence else 0

    def _end(self, one: Rank) -> None:
        one.running, one.start, one.ended_at = False, 0, rfc3339(self.now)

    def _uid(self) -> str:
        return f"{self.chance.getrandbits(32):08x}-0000"

    # --- faults -------------------------------------------------------------------------------------------------------

    def fail(self, number: int, rank: int, how: str, stubborn: bool) -> None:
        """Cause a random fault: a rank ends, is deleted or hangs, or the leader does not answer its probe for a moment."""
        truth = self.truths[number % len(self.truths)]
        one = truth.ranks.get(rank % truth.size)
        if how == "silent":
            known = self.stored.get(f"g{number % len(self.truths)}")
            # An answer after the last silence was never stored: the two silences look like one, and may count as a hang.
            silent = truth.ready or bool(truth.common_start)
            truth.failures += known is not None and known.phase == NOT_READY and silent
            truth.silence = 1 + rank
            return
        if one is None or one.deleting:
            return
        truth.stubborn = stubborn
        truth.failures += 1
        if how == "exit" and one.running:
            self._end(one)
        elif how == "delete":
            one.deleting, one.left, one.grace = True, 30.0, 30
        elif how == "hang":
            one.hung = True

    def jump(self, off: timedelta) -> None:
        """Set by how much the operator's clock differs from the true time."""
        for number, truth in enumerate(self.truths):
            known = self.stored.get(f"g{number}")
            # A jump ahead ends the wait for a silent leader: it cannot be distinguished from a hang (docs/faults.md).
            silent = known is not None and known.phase == NOT_READY and truth.common_start and not truth.ready
            truth.failures += off > self.off and bool(silent)
        self.off = off

    def heal(self) -> None:
        """Let all hanging ranks work again."""
        for truth in self.truths:
            for one in truth.ranks.values():
                one.hung = False
