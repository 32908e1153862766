"""Statuses of what services refer to: models, runtimes, accelerator classes."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from ome_operator import names
from ome_operator.api import Invalid
from ome_operator.cache.cluster_cache import RECORD
from ome_operator.cache.event_handler import EventHandler
from ome_operator.cache.resources import HELD, RUNTIMES, Resource
from ome_operator.controllers.base import Status, StatusReconciler
from ome_operator.controllers.inferenceservice.reconciler import Refuse
from ome_operator.core.observed.objects import Holding, Node, Ref
from ome_operator.kube.client import Client
from ome_operator.machinery.workqueue import WorkQueue


class Say(Protocol):
    """What the statuses say; see core/catalog/status.py."""

    def model(
        self, model: Any, users: tuple[str, ...], ready: frozenset[str], now: datetime, holdings: Mapping[str, Holding]
    ) -> Status:
        """Of a model or of fine-tuned weights."""

    def runtime(self, runtime: Any, users: tuple[str, ...], now: datetime) -> Status:
        """Of a runtime."""

    def accelerator(self, accelerator: Any, nodes: Iterable[Node], now: datetime) -> Status:
        """Of an accelerator class."""


class CatalogReconciler(StatusReconciler):
    """Passes over models, runtimes and accelerator classes: they only write a status."""

    def __init__(
        self,
        cluster: EventHandler,
        client: Client,
        queue: WorkQueue[Ref],
        resync: float,
        say: Callable[[Resource], Status],
        refuse: Refuse,
        interval: float = 0.0,
    ) -> None:
        super().__init__(cluster, client, queue, resync)
        self._say, self._refuse, self._interval = say, refuse, interval
        self._written_at: dict[Ref, float] = {}
        self._pinned: dict[Ref, Any] = {}

    def forget(self, ref: Ref) -> None:
        """It is gone."""
        super().forget(ref)
        self._written_at.pop(ref, None)
        self._pinned.pop(ref, None)

    def failed_status(self, resource: Resource, why: str) -> Status:
        """What was learned of it stays."""
        return self._refuse(dict(resource.status), resource.generation, "InternalError", why, datetime.now(UTC)).status

    async def reconcile_resource(self, resource: Resource) -> float:
        """Say how it is; how far nodes are is told once per interval."""
        ref, status = resource.ref, self._say(resource)
        wait = self._written_at.get(ref, -math.inf) + self._interval - time.monotonic()
        if wait > 0 and self.differs(resource, status) and _only_progress(status, resource.status):
            return wait
        if await self.write(resource, status):
            self._written_at[ref] = time.monotonic()
        pin = status.get("weights")
        if self._pinned.get(ref) != pin:  # also where it was written before, and the answer got lost
            self._pinned[ref] = pin
            for node in self._cluster.holdings(ref):  # what is pinned decides over labels
                self._queue.add(Ref(RECORD, "", node))
        return self._resync


def _only_progress(status: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether a status differs in nothing but how far nodes are, which can wait."""
    plain = status.keys() - {"nodes", "summary", "conditions"}
    return all(status[key] == before.get(key) for key in plain) and _reasons(status) == _reasons(before)


def _reasons(status: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return [(one.get("type"), one.get("status"), one.get("reason")) for one in status.get("conditions") or ()]


def sayer(cluster: EventHandler, say: Say, refuse: Refuse) -> Callable[[Resource], Status]:
    """The status of an object of the catalog, from everything that it depends on."""

    def status(resource: Resource) -> Status:
        now, ref = datetime.now(UTC), resource.ref
        users = tuple(f"{user.namespace}/{user.name}" for user in cluster.users(ref))
        deps = cluster.deps()
        if isinstance(resource.parsed, Invalid):
            return refuse(dict(resource.status), resource.generation, "InvalidSpec", resource.parsed.why, now).status
        if ref.kind in HELD:
            ready = deps.holders.get(names.model_label(*ref), frozenset())
            return say.model(resource.parsed, users, ready, now, cluster.holdings(ref))
        if ref.kind in RUNTIMES:
            return say.runtime(resource.parsed, users, now)
        return say.accelerator(resource.parsed, deps.nodes.values(), now)

    return status
