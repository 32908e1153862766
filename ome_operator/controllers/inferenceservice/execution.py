"""The execution of a service's plan, and its result."""

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
from ome_operator.core.rollout.own_lack import QUOTA
from ome_operator.kube.client import ApplyResult
from ome_operator.kube.errors import KubeError

logger = logging.getLogger(__name__)


@dataclass
class Result:
    """The result of executing a plan's effects."""

    has_written: bool = False
    """Whether an object was written, other than by a creation that `created` reports. Another reconciliation then has to
    process the object."""
    created: bool = False
    """Whether an apply has created an object, or a Secret was created."""
    first: bool = False
    """Whether the service had no StatefulSet before this reconciliation."""
    status_changed: bool = False
    """Whether an effect produced a new fact that changes the status. If possible, `sync` then runs again before the status
    is written."""
    error: KubeError | None = None
    """The last temporary API error; None if there was none."""
    requeue_after: float | None = None
    """Maximum number of seconds until the next reconciliation; None if there is no limit."""
    write_counts: Deeds = field(default_factory=Deeds)
    """The number of created and deleted objects, for the log."""

    def requeue_within(self, seconds: float) -> None:
        """Request that the next reconciliation begins within this number of seconds."""
        self.requeue_after = seconds if self.requeue_after is None else min(self.requeue_after, max(0.0, seconds))


@dataclass
class Execution:
    """The state of the execution of a service's plan. `attempted_keys` and `result` are shared by all plans of a
    reconciliation.
    """

    service: Resource
    memory: ServiceMemory
    attempted_keys: set[Key]
    """Objects that this reconciliation has already attempted to write."""
    result: Result
    clock: Callable[[], float]
    """Returns the monotonic time."""
    held: Callable[[], bool] = lambda: False
    """Returns True if the service was frozen after the plan was made, so that no further effect of the plan may begin."""
    full: dict[str, Refusal] = field(default_factory=dict)
    """Maps a kind to the refusal of a new object of this kind because of a quota, in this execution."""
    guards: dict[Guard | NodeLost, asyncio.Task[bool]] = field(default_factory=dict)
    """Maps a guard to the task that evaluates the guard by a live read. A guard states which object must not exist for an
    effect to be executed. Effects that are executed together share the task."""

    @property
    def namespace(self) -> str:
        """The namespace of the service and its objects."""
        return self.service.ref.namespace

    def is_due(self, key: Key, hash_: str) -> bool:
        """Return whether a write should be attempted now. Each write is attempted at most once per reconciliation. A refused
        write is attempted again only after its pause, or if `hash_`, the digest of its content, has changed.
        """
        if key in self.attempted_keys:
            return False
        known = self.memory.refused.get(key)
        if known is not None and known.hash == hash_ and (wait := known.next - self.clock()) > 0:
            self.result.requeue_within(wait)
            return False
        self.attempted_keys.add(key)
        return True

    def exceeds_quota(self, key: Key, hash_: str) -> bool:
        """Return whether a quota has refused another new object of this kind in this execution. If so, store this write as
        refused without a request, so that it is attempted again together with the other refused writes. This saves requests,
        because a service may have 2,000 StatefulSets.
        """
        if (refusal := self.full.get(key[0])) is None:
            return False
        self.record_refusal(key, refusal, hash_)
        return True

    def record_refusal(self, key: Key, refusal: Refusal, hash_: str) -> None:
        """Store and log a refused write."""
        now, known = self.clock(), key[0] in self.full
        if QUOTA in refusal.message:
            self.full.setdefault(key[0], refusal)
        if self.memory.store_refusal(key, refusal, hash_, now):
            level = logging.DEBUG if known or journal.is_expected_refusal(refusal.message) else logging.WARNING
            logger.log(level, "%s/%s: %s %s: %s", self.namespace, self.service.ref.name, *key, refusal.message)
            self.result.status_changed = True
        self.result.requeue_within(self.memory.refused[key].next - now)

    def record_applied(self, key: Key, applied: ApplyResult, child: Child | None, *, new: bool) -> None:
        """Store an accepted apply. `child` is the stored object, or None for a kind that is not cached. `new` states whether
        the apply has created the object.
        """
        self.result.write_counts[journal.MADE, key[0]] += new
        if self.memory.refused.pop(key, None) is not None:
            self.result.status_changed = True
        if applied.warnings != self.memory.warnings.get(key, ()):
            self.memory.warnings[key] = applied.warnings
            self.result.status_changed = True
        if child is not None and child.owned != child.hash:
            self.memory.accepted[child.uid] = child.owned
