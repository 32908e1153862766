"""Simulates a service whose decode groups the autoscaler of the class Demand scales. Reconciliations and decisions of the
autoscaler alternate.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ome_operator.core.demand.decide import LASTING
from ome_operator.core.demand.facts import GROUPS, KEPT, STALE, DemandSample, LearnedProperties, PrefillWork, ScalingState
from ome_operator.core.demand.follow import follow
from ome_operator.core.demand.rest import groups_to_apply, removes_all_groups
from ome_operator.core.demand.stored import to_status
from ome_operator.core.demand.task import APPLY, DemandTask
from ome_operator.core.observed.objects import Observed
from ome_operator.core.reasons import FOLLOWS_DEMAND
from ome_operator.core.rollout import zero
from ome_operator.core.rollout.applied import stored_groups
from tests.support import parts
from tests.support.simulator import World
from tests.unit.core.demand.loads import sample

DEMAND: Mapping[str, Any] = {"timeToFirstToken": "3s", "timeBetweenTokens": "40ms"}
KNOWN = LearnedProperties(
    work=PrefillWork(0.0, 0.01 / 1000), measured=1, curve=((10.0, 0.02), (210.0, 0.06)), starts=(20.0,)
)
"""The speeds that the operator has measured before a test: a prefill group serves 100 prompts of 1,000 tokens per second,
and the time between tokens of a decode group with 110 requests is 40 ms."""
UNSTEADY = {"running_now": 0}
"""Fields of a sample from which the operator learns nothing about the speed of decode, because the load changes during the
sample.
"""
QUIET, BUSY = 1.0, 28.0
"""Two request rates per second: QUIET, for which one group of each role is enough, and BUSY, for which two decode groups
are needed.
"""


def spec(mode: str = "", role: Mapping[str, Any] | None = None, **demand: Any) -> dict[str, Any]:
    """Return the spec of a service with a fixed number of prefill groups, whose decode groups are scaled with the demand."""
    scaled = {"minReplicas": 1, "maxReplicas": 4, "autoscaler": {"class": "Demand"}, **(role or {})}
    policy = {**DEMAND, **({"mode": mode} if mode else {}), **demand}
    return {"engine": {"minReplicas": 1}, "decoder": scaled, "router": {}, "scalingPolicy": {"demand": policy}}


def told(world: World) -> tuple[str, str]:
    """Return status and reason of the service's condition FollowsDemand; two empty strings if it has no such condition."""
    found = world.condition(FOLLOWS_DEMAND)
    return (found["status"], found["reason"]) if found else ("", "")


class Demanded(World):
    """A simulated service with prefill, decode and routers. It is ready when the constructor returns."""

    def __init__(self, **spec: Any) -> None:
        super().__init__(parts.service(**spec), parts.deps(parts.model(), parts.simple(decoder=True)), seed=1)
        self.rate: float | None = QUIET
        self.in_flight = 40
        """Requests in flight at the routers."""
        self.state = ScalingState(learned=KNOWN)
        self.samples: list[DemandSample] = []
        self.scaling: dict[str, Any] | None = None
        self.gone = float("-inf")
        """Time of the last decision, in seconds since the epoch, if this decision removes all groups because of the
        schedule; minus infinity otherwise.
        """
        self.free = 100
        """Number of further groups that the free nodes can hold."""
        self.task: DemandTask | None = None
        self.task_of = 0
        """Generation of the spec from which `task` was computed."""
        self.settle()

    def observed(self) -> Observed:
        """Return the facts of a reconciliation, with the last decision of the autoscaler."""
        goes = 0 <= self.now.timestamp() - self.gone <= STALE
        return replace(super().observed(), scaling=self.scaling, goes=goes)

    def edited(self, **spec: Any) -> None:
        """Edit the spec of the service, and run reconciliations until the edit is complete."""
        self.edit(parts.service(**spec))
        self.settle()
        self.task = None

    def decide(self, seconds: float = 10.0) -> None:
        """Let the autoscaler decide every ten seconds, for `seconds` seconds in all. During this time `self.rate` requests
        arrive per second. If `self.rate` is None, no router reports any numbers.
        """
        for _ in range(round(seconds / 10)):
            now = round(self.now.timestamp())
            newest = DemandSample(now) if self.rate is None else sample(now, self.rate, in_flight=self.in_flight, **UNSTEADY)
            if not self.samples:
                times = [now - KEPT + 10 * number for number in range(60)]
                self.samples = [sample(at, self.rate or 0.0, in_flight=self.in_flight, **UNSTEADY) for at in times]
            self.samples = [*self.samples[-66:], newest]
            if self.task is None or self.task_of != self.service.generation:
                self.task, self.task_of = self.sync().demand, self.service.generation
            assert self.task is not None
            before = self.scaling
            self.scaling = self._decided(self.task, now)
            if before != self.scaling:
                self.settle()
                self.task = None
            self.now = datetime.fromtimestamp(max(now + 10, self.now.timestamp()), UTC)

    def _decided(self, task: DemandTask, now: float) -> dict[str, Any]:
        """Make one decision. Return `status.scaling` without the message about the numbers, because this message changes
        with each sample.
        """
        before = self.state
        if (self.scaling or {}).get("mode") != task.mode:
            before = before._replace(wanted=None)
        made, self.state = follow(self.samples, task, before, now, self._granted)
        self.gone = now if removes_all_groups(task, made) else float("-inf")
        known = {name: value for name, value in to_status(self.state).items() if name != "learned"}
        found = {"mode": task.mode, "hold": made.hold if made.hold in LASTING else "", **known}
        if made.at_maximum:
            found["atMaximum"] = dict(made.at_maximum)
        if task.mode == APPLY:
            found["applied"] = groups_to_apply(task, made, self.state, stored_groups(self.service.status))
        return found

    def _granted(self, more: Mapping[str, int]) -> Mapping[str, int]:
        return {role: min(more[role], self.free) for role in GROUPS}

    def decoders(self) -> int:
        """Return the number of decode groups."""
        return len(self.living_pods("decoder"))

    def write_scale(self, replicas: int) -> None:
        """Set the replicas of the RoleScale, as a user does."""
        scale = self.children["RoleScale", "svc-decoder"]
        scale.manifest = {**scale.manifest, "spec": {"replicas": replicas}}
        scale.generation += 1
        self.settle()
        self.task = None

    def wake(self, replicas: int) -> None:
        """Set the replicas of the RoleScale, as `ome wake` does."""
        scale = self.children["RoleScale", "svc-decoder"]
        scale.woken_by(zero.written_by_wake(scale.generation, scale.manifest["spec"]["replicas"], replicas))
        self.settle()
        self.task = None

    def resume(self) -> None:
        """Delete the RoleScale, as `ome scale --resume` does."""
        del self.children["RoleScale", "svc-decoder"]
        self.settle()
        self.task = None

    def wanted(self) -> int:
        """Return the number of decode groups that the status shows as wanted."""
        return int(self.service.status["scaling"]["wanted"]["decode"])
