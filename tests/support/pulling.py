"""A simulated cluster that carries out the Jobs that pull images before rollouts."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from ome_operator.core.observed.objects import Manifest, Observed
from tests.support.live import Live
from tests.support.parts import change_deps
from tests.support.scheduler import Scheduler
from tests.support.shapes import Shape
from tests.support.simulator import World
from tests.unit.core.placement.test_capacity_check import deps, nodes

LIMIT, TIMEOUT = 3, 600.0
PULLED, LOST, STUCK, PODLESS = "pulled", "lost", "stuck", "podless"
OLD, NEW = "engine:a", "engine:b"


class PullingWorld(World):
    """A simulated cluster whose job controller ends the Jobs of the operator. Nodes hold as many pods as `nodes(16)` can."""

    def __init__(self, shape: Shape, seed: int = 3, limit: int = LIMIT, timeout: float = TIMEOUT) -> None:
        self.limits: dict[str, Any] = {"image_pulls": limit, "image_pull_timeout": timeout}
        super().__init__(shape.service(), deps(shape, nodes(16), policy=self._policy(shape)), seed)
        self.pulls = 0
        """Number of Jobs that pull images for other services."""
        self.answer: Callable[[str], str] = lambda _: PULLED
        """Function that returns the outcome of the Job that pulls onto the node of this name, such as PULLED or LOST."""
        self.most = 0
        """The largest number of Jobs that were active at the same time."""
        Scheduler(self)

    def _policy(self, shape: Shape) -> Any:
        return change_deps(shape.deps(), **self.limits).policy

    def rolls_to(self, shape: Shape) -> None:
        """Edit the runtime so that a new revision has the image of this shape."""
        self.edit(deps=deps(shape, nodes(16), policy=self._policy(shape)))

    def observed(self) -> Observed:
        """Return the facts of a reconciliation, with the number of Jobs of other services."""
        return replace(super().observed(), pulls=self.pulls)

    def jobs(self) -> list[Live]:
        """Return the Jobs that exist."""
        return [live for live in self.children.values() if live.key[0] == "Job"]

    def step(self) -> bool:
        """Start new Jobs, and end Jobs that were started earlier. Return whether any work was left."""
        self.most = max(self.most, sum(_active(live) for live in self.jobs()))
        busy = False
        for live in self.jobs():
            if _active(live):
                busy |= self.answer(node(live.manifest)) != STUCK
                self._act(live)
        return super().step() or busy

    def _act(self, live: Live) -> None:
        live.version = next(self._numbers)
        answer = self.answer(node(live.manifest))
        if not live.status:
            live.status = {"startTime": self.now.isoformat(), **({} if answer == PODLESS else {"active": 1})}
        elif answer == PULLED:
            live.status = {**live.status, "active": 0, "succeeded": 1, "conditions": [_ended("Complete", "")]}
        elif answer == LOST:
            live.status = {**live.status, "active": 0, "failed": 1, "conditions": [_ended("Failed", "BackoffLimitExceeded")]}
        elif (self.now - datetime.fromisoformat(live.status["startTime"])).seconds >= TIMEOUT:
            live.status = {**live.status, "active": 0, "failed": 1, "conditions": [_ended("Failed", "DeadlineExceeded")]}


def node(job: Manifest) -> str:
    """Return the node onto which a Job pulls its image."""
    affinity = job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (field,) = term["matchFields"]
    (name,) = field["values"]
    return str(name)


def _active(live: Live) -> bool:
    return not live.status.get("conditions")


def _ended(kind: str, reason: str) -> Manifest:
    return {"type": kind, "status": "True", "reason": reason}


def serving(shape: Shape, **options: Any) -> PullingWorld:
    """Return a service that serves on its nodes."""
    world = PullingWorld(shape, **options)
    world.settle()
    assert not world.jobs()
    return world
