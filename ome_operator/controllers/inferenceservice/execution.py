"""One service's plan being carried out, and what comes of it."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from ome_operator.cache.resources import Resource
from ome_operator.controllers.inferenceservice import journal
from ome_operator.controllers.inferenceservice.journal import Deeds
from ome_operator.controllers.inferenceservice.memory import Key, ServiceMemory
from ome_operator.core.observed.objects import Child, Refusal
from ome_operator.core.reconcile.plan import Guard, NodeLost
from ome_operator.kube.client import Applied
from ome_operator.kube.errors import KubeError

logger = logging.getLogger(__name__)


@dataclass
class Result:
    """What came of a plan's effects."""

    wrote: bool = False
    """Something was changed: another pass should look at the result."""
    status_changed: bool = False
    """A new fact changes the status: run `sync` again before writing it, where that may be."""
    error: KubeError | None = None
    """The last error that may be better soon."""
    requeue_after: float | None = None
    """Seconds until the next pass at the latest."""
    did: Deeds = field(default_factory=Deeds)
    """What was made and deleted, for the log."""

    def requeue_within(self, seconds: float) -> None:
        """Another pass within so many seconds."""
        self.requeue_after = seconds if self.requeue_after is None else min(self.requeue_after, max(0.0, seconds))


@dataclass
class Execution:
    """One service's plan being carried out."""

    service: Resource
    memory: ServiceMemory
    tried: set[Key]
    """Objects that this pass has tried to write already."""
    result: Result
    clock: Callable[[], float]
    """Monotonic."""
    held: Callable[[], bool] = lambda: False
    """Whether somebody holds the service by now who did not when the plan was made: no further effect of it may begin."""
    guards: dict[Guard | NodeLost, asyncio.Task[bool]] = field(default_factory=dict)
    """Of the effects that are carried out together now: whether what must not exist is there, read live."""

    @property
    def namespace(self) -> str:
        """Of the service and everything that belongs to it."""
        return self.service.ref.namespace

    def due(self, key: Key, hash_: str) -> bool:
        """Whether to try a write: once per pass, and what was refused only after its pause or when it changed."""
        if key in self.tried:
            return False
        known = self.memory.refused.get(key)
        if known is not None and known.hash == hash_ and (wait := known.next - self.clock()) > 0:
            self.result.requeue_within(wait)
            return False
        self.tried.add(key)
        return True

    def refuse(self, key: Key, refusal: Refusal, hash_: str) -> None:
        """A write was refused."""
        now = self.clock()
        if self.memory.refuse(key, refusal, hash_, now):
            level = logging.DEBUG if journal.expected(refusal.message) else logging.WARNING
            logger.log(level, "%s/%s: %s %s: %s", self.namespace, self.service.ref.name, *key, refusal.message)
            self.result.status_changed = True
        self.result.requeue_within(self.memory.refused[key].next - now)

    def accepted(self, key: Key, applied: Applied, child: Child | None, *, new: bool) -> None:
        """An apply was carried out; the object that is stored now, where it is one of a service's."""
        self.result.did[journal.MADE, key[0]] += new
        if self.memory.refused.pop(key, None) is not None:
            self.result.status_changed = True
        if applied.warnings != self.memory.warnings.get(key, ()):
            self.memory.warnings[key] = applied.warnings
            self.result.status_changed = True
        if child is not None and child.owned != child.hash:
            self.memory.accepted[child.uid] = child.owned
