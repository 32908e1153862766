"""Write the statuses of the objects to which services refer: models, runtimes and accelerator classes."""

import math
import time
from collections.abc import Mapping
from typing import Any

from ome_operator import names
from ome_operator.api import Invalid, Runtime
from ome_operator.cache.cluster_cache import RECORD
from ome_operator.cache.event_handler import EventHandler
from ome_operator.cache.resources import HELD, RUNTIMES, Resource
from ome_operator.cache.scope import EVERYWHERE, Scope
from ome_operator.controllers import events as kube_events
from ome_operator.controllers.base import CORE, Core, Status, StatusReconciler
from ome_operator.controllers.waves import WaveRegistry
from ome_operator.core.catalog import agreement
from ome_operator.core.catalog.status import with_advice
from ome_operator.core.observed.objects import Ref
from ome_operator.core.reasons import Reason
from ome_operator.core.resolve.references import missing_classes, missing_references
from ome_operator.core.waves import status as waves_status
from ome_operator.kube.client import Client
from ome_operator.machinery.workqueue import WorkQueue
from ome_operator.util.wall_clock import WallClock

LACKING_S = 60.0
"""Seconds until an object is reconciled again if it refers to objects that do not exist. The wait is necessary because
the creation of such an object causes no event about the referring object."""


class CatalogReconciler(StatusReconciler):
    """Reconciles models, runtimes and accelerator classes by writing their status. `interval` is the minimum number of
    seconds between two writes of a status in which only the progress of nodes has changed.
    """

    def __init__(
        self,
        handler: EventHandler,
        client: Client,
        queue: WorkQueue[Ref],
        resync: float,
        wall: WallClock,
        core: Core = CORE,
        interval: float = 0.0,
        scope: Scope = EVERYWHERE,
        waves: WaveRegistry | None = None,
    ) -> None:
        super().__init__(handler, client, queue, resync, wall)
        self._core, self._interval, self._scope, self._waves = core, interval, scope, waves
        self._written_at: dict[Ref, float] = {}
        self._pinned: dict[Ref, Any] = {}

    def forget(self, ref: Ref) -> None:
        """Discard everything that is remembered about a deleted object."""
        super().forget(ref)
        self._written_at.pop(ref, None)
        self._pinned.pop(ref, None)

    def failed_status(self, resource: Resource, why: str) -> Status:
        """Return the status of an object whose reconciliation failed: the error, and the facts that the stored status
        contains.
        """
        return self._refused(resource, Reason.INTERNAL_ERROR, why)

    async def reconcile_resource(self, resource: Resource) -> float:
        """Write the status of an object if it has this operator's class. If only the progress of nodes has changed, the
        status is written at most once per interval. Return the seconds until the next reconciliation.
        """
        ref, before = resource.ref, resource.status.get("rollout")
        rollout, again = (None, None) if self._waves is None else self._waves.rollout_status(ref, before)
        resync = self._resync if again is None else min(self._resync, again)
        if not self._scope.acts_on(resource.labels):
            return resync
        status = self._status(resource)
        if absent := self._absent(resource):
            status = with_advice(status, resource.parsed, absent, self._wall())
            resync = min(resync, LACKING_S)
        if (left := agreement.wait_left(status, self._wall())) is not None:
            resync = min(resync, left)
        if rollout is not None:
            status["rollout"] = dict(rollout)
        wait = self._written_at.get(ref, -math.inf) + self._interval - time.monotonic()
        if wait > 0 and self.status_differs(resource, status) and _only_progress(status, resource.status):
            return min(wait, resync)
        if await self.write(resource, status):
            self._written_at[ref] = time.monotonic()
            held = self._cluster.active_hold(resource)
            for event in waves_status.events(before, rollout) if held is None or not held.is_observe_mode else ():
                await kube_events.post_event(self._client, resource, event, self._wall())
        pin = status.get("weights")
        if self._pinned.get(ref) != pin:  # compared after every pass, because the response of a write may be lost
            self._pinned[ref] = pin
            for node in self._cluster.holdings(ref):  # node labels depend on the pin
                self._queue.add(Ref(RECORD, "", node))
        return resync

    def _status(self, resource: Resource) -> Status:
        """Compute the status of a model, a runtime or an accelerator class from the cached objects that the status depends
        on.
        """
        now, ref, core = self._wall(), resource.ref, self._core
        if isinstance(resource.parsed, Invalid):
            return self._refused(resource, Reason.INVALID_SPEC, resource.parsed.why)
        if (beyond := self._cluster.over_limit(resource)) is not None:
            return self._refused(resource, Reason.TOO_MANY_MODELS, beyond.why)
        users = tuple(f"{user.namespace}/{user.name}" for user in self._handler.users(ref))
        deps = self._cluster.deps()
        if ref.kind in HELD:
            ready = deps.holders.get(names.model_label(*ref), frozenset()) if deps.policy.sees_cluster else None
            speakers = agreement.find_reporting_nodes(
                resource.parsed, deps.nodes, self._agent_since, deps.policy.pin_from, now
            )
            holdings, agent = self._cluster.holdings(ref), deps.policy.model_agent
            facts = users, ready, now, holdings, deps.well_known, speakers
            return core.model_status(resource.parsed, *facts, agent=agent)
        if ref.kind in RUNTIMES:
            return core.runtime_status(resource.parsed, users, now)
        return core.accelerator_status(resource.parsed, deps.nodes.values(), now)

    def _absent(self, resource: Resource) -> list[str]:
        """Return a sentence for each object that does not exist although `resource` refers to it."""
        deps, parsed = self._cluster.deps(), resource.parsed
        if isinstance(parsed, Invalid) or not deps.policy.sees_cluster:
            return []
        if isinstance(parsed, Runtime):
            return [each.sentence for each in missing_classes(parsed.spec, deps.accelerators)]
        return [each.sentence for each in missing_references(parsed, deps.models)]

    def _agent_since(self, node: str) -> str | None:
        record = self._cluster.record(node)
        return None if record is None else record.created

    def _refused(self, resource: Resource, reason: str, why: str) -> Status:
        return self._core.refuse(dict(resource.status), resource.generation, reason, why, self._wall()).status


def _only_progress(status: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Return whether two statuses differ only in the progress of nodes and services, which can be written later."""
    plain = status.keys() - {"nodes", "summary", "conditions", "rollout"}
    if waves_status.steps(status.get("rollout")) != waves_status.steps(before.get("rollout")):
        return False
    return all(status[key] == before.get(key) for key in plain) and _reasons(status) == _reasons(before)


def _reasons(status: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return [(item.get("type"), item.get("status"), item.get("reason")) for item in status.get("conditions") or ()]
