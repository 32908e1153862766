"""What the leading process knows and does: the sink of its watches, its queue of passes, and its audits."""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ome_operator import keys
from ome_operator.api import Invalid, well_known
from ome_operator.api.well_known import WellKnown
from ome_operator.cache.cluster_cache import KINDS, LABELLED, RECORD, ClusterCache
from ome_operator.cache.event_handler import EventHandler, Urgency
from ome_operator.cache.resources import BENCHMARK, CATALOG, SERVICE, SHORT
from ome_operator.cache.scope import Scope
from ome_operator.controllers import tidying
from ome_operator.controllers.base import Core
from ome_operator.controllers.benchmarkjob import BenchmarkJobReconciler
from ome_operator.controllers.catalog import CatalogReconciler
from ome_operator.controllers.inferenceservice.reconciler import InferenceServiceReconciler
from ome_operator.controllers.inferenceservice.shared_state import SharedState
from ome_operator.controllers.metrics_collector import Eyes
from ome_operator.controllers.nodemodels import NodeModelsReconciler
from ome_operator.controllers.router_watch import RouterWatch
from ome_operator.controllers.sglang import SglangReconciler
from ome_operator.core.benchmarkjob import job
from ome_operator.core.observed import from_api
from ome_operator.core.observed.objects import Deps, Ref
from ome_operator.core.reasons import Reason
from ome_operator.kube.client import Client
from ome_operator.kube.resources import RESOURCES
from ome_operator.lint.validator import Validator
from ome_operator.machinery import garbage_collection
from ome_operator.machinery.background import PACER
from ome_operator.machinery.metrics import Metrics
from ome_operator.machinery.resync import Resync
from ome_operator.machinery.schedule import Shared
from ome_operator.machinery.workqueue import WorkQueue
from ome_operator.settings import Settings
from ome_operator.util import memoize
from ome_operator.util.wall_clock import WallClock
from ome_operator.watch.coverage import Coverage
from ome_operator.watch.sink import Body, Watched

logger = logging.getLogger(__name__)

SELECTOR = f"{keys.MANAGED_BY}={keys.MANAGER}"
SELECTORS = dict.fromkeys(LABELLED, SELECTOR) | {"ControllerRevision": f"{SELECTOR},!{keys.COMPONENT}"}
"""Label selectors by kind. StatefulSets have ControllerRevisions of their own, with the labels of their pods: not ours."""
WRITTEN = frozenset((SERVICE, *CATALOG, BENCHMARK, *SHORT))
"""Kinds that people write: kopf watches these, and an informer of ours all others."""


def scope_of(settings: Settings) -> Scope:
    """What the operator is to work on."""
    return Scope(
        settings.watch_namespaces, settings.policy.sees_cluster, settings.operator_class, settings.policy.model_agent
    )


class Place(NamedTuple):
    """A kind in a namespace, "" for all of it: what an audit compares."""

    kind: str
    namespace: str

    def __str__(self) -> str:
        return self.kind + (f" in {self.namespace}" if self.namespace else "")


def _well_known(said: str) -> WellKnown:
    found = well_known.selected(said)
    if isinstance(found, Invalid):
        raise ValueError(found.why)
    return found


def _settled(settings: Settings) -> Deps:
    """Return the part of `Deps` that stays the same while the operator runs."""
    return Deps(
        policy=settings.policy, well_known=_well_known(settings.well_known_models), judge=Validator(settings.lint_refuse)
    )


def _queue(settings: Settings, is_long: Callable[[Ref], bool]) -> WorkQueue[Ref]:
    """The queue of passes."""
    return WorkQueue(
        workers=settings.workers,
        is_long=is_long,
        long_runs=settings.long_passes,
        group=lambda ref: ref.namespace,
        first=settings.backoff_first,
        last=settings.backoff_last,
        shared=Shared(settings.shared_share, settings.shared_passes),
        jitter=random.random,
    )


class Manager:
    """What the leader knows and does; the sink of its watches."""

    def __init__(
        self,
        settings: Settings,
        core: Core,
        client: Client,
        metrics: Metrics,
        wall: WallClock,
        kinds: Sequence[str] = KINDS,
    ) -> None:
        self.scope = scope = scope_of(settings)
        self._kinds = kinds
        self._whole: set[str] = set()
        """Of the namespaces that are named, those of which everything was told."""
        self._running = False
        self._settings, self._client, self._metrics = settings, client, metrics
        self.cluster = ClusterCache(_settled(settings))
        self._queue = _queue(settings, self._makes_everything)
        self._edits: WorkQueue[Ref] = WorkQueue(workers=1, first=1.0, last=60.0, jitter=random.random)
        """Edited objects whose services are to be told."""
        self._routers = RouterWatch(lambda: list(self.cluster.pods), self._queue.add, wall, settings.router_watch)
        shared = SharedState.empty(self.cluster, client, self._queue, settings, self._routers.of)
        self._handler = EventHandler(
            self.cluster,
            self._enqueue,
            core.models_of,
            core.runtimes_of,
            child_gone=shared.memories.child_gone,
            capacity_freed=shared.gangs.freed,
        )
        known = self._handler, client
        self._services = InferenceServiceReconciler(*known, self._queue, settings, wall, shared, core)
        self._eyes = Eyes(self.cluster, metrics, wall, settings.metrics_per_service)
        status_only = *known, self._queue, settings.resync, wall
        self._catalog = CatalogReconciler(*status_only, core, settings.status_interval, scope, self._services.waves)
        self._sglang = SglangReconciler(*status_only)
        images = job.Images(settings.benchmark_image, settings.tools_image, settings.policy.pull_secrets)
        self._benchmarks = BenchmarkJobReconciler(*status_only, images)
        self._node_models = NodeModelsReconciler(*known, self._queue, settings.resync, scope)
        self._audit = self._audit_of(settings)
        self._tasks: list[asyncio.Task[None]] = []
        self._unread: Counter[str] = Counter()

    def _audit_of(self, settings: Settings) -> Resync[Place]:
        return Resync(
            self._places(""),
            known=self._known,
            listed=lambda place: self.listed(*place),
            gone=lambda place, uid: self._handler.gone(place.kind, uid),
            queue=WorkQueue(workers=1, first=5.0, last=60.0, jitter=random.random),
            interval=settings.audit_interval,
            debounce=settings.audit_debounce,
        )

    # --- the sink ---------------------------------------------------------------------------------------------------

    def seen(self, kind: str, body: Body) -> None:
        """An object is there. A body that breaks us is one lost fact, not a dead watch."""
        try:
            if not self.scope.knows(kind, body):
                if self.cluster.resources[kind].get(from_api.uid(body)) is not None:  # it was ours a moment ago
                    self.deleted(kind, body)
                return
            self._handler.seen(kind, body)
        except Exception:
            self._unread[kind] += 1
            logger.exception("cannot read a %s: %s", kind, (body.get("metadata") or {}).get("name"))

    def deleted(self, kind: str, body: Body) -> None:
        """An object was deleted."""
        try:
            self._handler.gone(kind, from_api.uid(body), from_api.version(body))
        except Exception:  # the next audit of its kind finds it
            logger.exception("cannot read a deleted %s", kind)

    def relisted(self, kind: str, namespace: str = "") -> None:
        """A watch started anew."""
        self._audit.relisted(Place(kind, namespace))

    def namespace_listed(self, namespace: str) -> None:
        """Everything in a place was told: passes may begin there, and look at what they missed."""
        if not namespace:
            return
        self._whole.add(namespace)
        self._audit.add(self._places(namespace))
        if self._running:
            self._services.seed(namespace)
        for ref in self.cluster.refs(namespace):
            self._enqueue(ref, Urgency.SOON)

    def namespace_unwatched(self, namespace: str) -> None:
        """A namespace is not watched any more. What is known of it stays for the day when it comes again, and nothing is
        done with it: its services hold up nobody.
        """
        self._whole.discard(namespace)
        self._services.away(namespace)

    def _outside(self, namespace: str) -> bool:
        """Whether a namespace is not watched now, or not whole yet: half a picture would prune and recover."""
        return bool(namespace and self.scope.namespaces) and namespace not in self._whole

    def _places(self, namespace: str) -> list[Place]:
        return [Place(kind, namespace) for kind in self.scope.in_place(self._kinds, namespace)]

    def _known(self, place: Place) -> set[str]:
        """UIDs that a list could prove wrong."""
        return set() if self._outside(place.namespace) else self.cluster.uids(*place)

    def acts_on_service(self, uid: str) -> bool:
        """Whether the service with this UID is known, and so of our class."""
        return self.cluster.resources[SERVICE].get(uid) is not None

    def _makes_everything(self, ref: Ref) -> bool:
        """Whether nothing of a service is there yet."""
        return ref.kind == SERVICE and not any(self.cluster.children["StatefulSet"].group((ref.namespace, ref.name)))

    def _enqueue(self, ref: Ref, urgency: Urgency) -> None:
        settings = self._settings
        if urgency == Urgency.SHARED:
            if self._running:  # until then every service is dirty anyway
                self._edits.add(ref, spaced=settings.catalog_delay)
        elif urgency == Urgency.AWAITED:
            self._queue.add(ref, spaced=settings.catalog_delay if ref.kind in CATALOG else 0.0)
        elif ref.kind == SERVICE:
            self._queue.add(ref, settings.child_delay, spaced=settings.child_spacing)
        else:
            self._queue.add(ref, settings.catalog_delay)

    async def _tell_concerned(self, ref: Ref) -> None:
        """An object was edited: whom it concerns is dirty."""
        for service in self._handler.concerned(ref):
            self._queue.add_shared(service)
            await PACER.yield_if_due()
        if self.cluster.find(ref) is None:
            self._edits.forget(ref)

    async def listed(self, kind: str, namespace: str = "") -> set[str]:
        """UIDs of all objects of a kind that we watch in a place, by a consistent list of metadata."""
        return await self._client.list_uids(kind, namespace, label_selector=SELECTORS.get(kind, ""))

    def freeze(self, frozen: str) -> None:
        """Freeze everything, or end the freeze: `frozen` states since when, by whom and why, or is ""."""
        self._handler.freeze(frozen)

    # --- work -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Passes and audits, for ever."""
        for namespace in self._whole if self.scope.namespaces else ("",):
            self._services.seed(namespace)
        self._running = True
        logger.info("watching %d services, %d pods", len(self.cluster.resources[SERVICE]), len(self.cluster.pods))
        self._tasks = [
            asyncio.create_task(self._queue.run(self._pass), name="passes"),
            asyncio.create_task(self._edits.run(self._tell_concerned), name="edits"),
            asyncio.create_task(self._audit.run(), name="audits"),
            asyncio.create_task(self._tidy(), name="tidy"),
            asyncio.create_task(garbage_collection.collect_periodically(lambda: not self._queue.busy), name="garbage"),
        ]
        if self._settings.router_watch > 0:
            self._tasks.append(asyncio.create_task(self._routers.run(), name="routers"))
        await asyncio.gather(*self._tasks)

    async def stop(self, grace: float) -> None:
        """Take no more keys, and let running passes end."""
        for task in self._tasks:
            task.cancel()
        await self._edits.drain(grace)
        if not await self._queue.drain(grace):
            logger.warning("passes were cut off")

    def record(self, why: str) -> None:
        """Begin to write what the flight recorder has kept of all services to a file, which the log names."""
        self._services.flight.write(why)

    async def _tidy(self) -> None:
        await tidying.tidy(self.cluster, self._settings.resync, lambda: self._services.gone)

    async def _pass(self, ref: Ref) -> None:
        if self._outside(ref.namespace):
            self._queue.forget(ref)
            return
        started, result = time.monotonic(), "error"
        memoize.resize(len(self.cluster.resources[SERVICE]))
        passes = {
            SERVICE: self._services.reconcile,
            RECORD: self._node_models.reconcile,
            BENCHMARK: self._benchmarks.reconcile,
            **dict.fromkeys(SHORT, self._sglang.reconcile),
        }
        reconcile: Callable[[Ref], Awaitable[bool]] = passes.get(ref.kind, self._catalog.reconcile)
        try:
            if await reconcile(ref):
                result = "ok"
        finally:
            self._metrics.passed(ref.kind, result, time.monotonic() - started)
            self._eyes.passed(ref)

    def watch_metrics(self, coverage: Coverage) -> None:
        """What is read when somebody scrapes."""
        ask, queue = self._metrics.ask, self._queue
        ask("ome_queue_depth", lambda: {("waiting",): queue.depth, ("busy",): queue.busy})
        ask("ome_queue_oldest_seconds", lambda: {(): queue.oldest})
        ask("ome_watch_event_age_seconds", lambda: _by(coverage.last_event, lambda at: time.monotonic() - at))
        ask("ome_watch_events_total", lambda: _by(coverage.events))
        ask("ome_watch_unread_total", lambda: _by(coverage.unread + self._unread))
        ask("ome_namespace_watched", lambda: _by(coverage.watched))
        ask("ome_router_strangers_total", lambda: {(): self._routers.total})
        ask("ome_braked_services", self._braked)
        ask("ome_shared_edits", lambda: _by(self._services.waves.edits()))
        ask("ome_wave_services", lambda: _by(self._services.waves.counts()))
        self._eyes.watch()

    def _braked(self) -> dict[tuple[str, ...], float]:
        found: dict[tuple[str, ...], float] = {(str(reason),): 0.0 for reason in (Reason.FROZEN, Reason.OBSERVED)}
        for resource in self.cluster.services():
            if (held := self.cluster.active_hold(resource)) is not None:
                found[held.reason,] += 1
        return found


def _by(values: Mapping[str, float], read: Callable[[float], float] = float) -> dict[tuple[str, ...], float]:
    return {(label,): read(value) for label, value in values.items()}


def watched(kinds: Iterable[str] = KINDS, namespace: str = "") -> list[Watched]:
    """What to watch of these kinds, in a namespace or in all: of some only objects with our label."""
    found = []
    for kind in kinds:
        of = RESOURCES[kind]
        found.append(Watched(kind, of.group, of.version, of.plural, SELECTORS.get(kind, ""), namespace))
    return found
