"""The leader's cache, reconcilers, queues and resyncs; the manager is the sink of the watches."""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ome_operator.api import Invalid, well_known
from ome_operator.api.well_known import WellKnown
from ome_operator.cache.cluster_cache import KINDS, RECORD, ClusterCache
from ome_operator.cache.event_handler import EventHandler, Urgency
from ome_operator.cache.owned import owned_children
from ome_operator.cache.resources import BENCHMARK, CATALOG, SERVICE, SHORT
from ome_operator.cache.scope import Scope
from ome_operator.controllers import tidying
from ome_operator.controllers.bad_nodes import BadNodes
from ome_operator.controllers.base import Core
from ome_operator.controllers.benchmarkjob import BenchmarkJobReconciler
from ome_operator.controllers.catalog import CatalogReconciler
from ome_operator.controllers.demand import DemandScaler
from ome_operator.controllers.inferenceservice.reconciler import InferenceServiceReconciler
from ome_operator.controllers.inferenceservice.shared_state import Reports, SharedState
from ome_operator.controllers.metrics_collector import MetricsCollector
from ome_operator.controllers.nodemodels import NodeModelsReconciler
from ome_operator.controllers.router_pages import interval_of, way_of
from ome_operator.controllers.sglang import SglangReconciler
from ome_operator.controllers.telemetry import Telemetry, owned_routers
from ome_operator.controllers.traffic import TrafficSampler
from ome_operator.controllers.watched_kinds import SELECTORS
from ome_operator.core.benchmarkjob import job
from ome_operator.core.observed import from_api
from ome_operator.core.observed.objects import Deps, Ref
from ome_operator.core.reasons import Reason
from ome_operator.kube.client import Client
from ome_operator.lint.validator import Validator
from ome_operator.machinery import garbage_collection
from ome_operator.machinery.background import PACER
from ome_operator.machinery.metrics import Metrics
from ome_operator.machinery.resync import Resync
from ome_operator.machinery.schedule import SharedLimits
from ome_operator.machinery.workqueue import WorkQueue
from ome_operator.settings import Settings
from ome_operator.util import memoize
from ome_operator.util.wall_clock import WallClock
from ome_operator.util.wording import count
from ome_operator.watch.coverage import Coverage
from ome_operator.watch.sink import Body

logger = logging.getLogger(__name__)


def scope_of(settings: Settings) -> Scope:
    """Return the part of the cluster that the operator works on."""
    return Scope(
        settings.watch_namespaces, settings.policy.sees_cluster, settings.operator_class, settings.policy.model_agent
    )


class ResyncScope(NamedTuple):
    """A kind in a namespace, or in the whole cluster (""): the unit of a resync."""

    kind: str
    namespace: str

    def __str__(self) -> str:
        return self.kind + (f" in {self.namespace}" if self.namespace else "")


def _well_known(names: str) -> WellKnown:
    found = well_known.load_selected(names)
    if isinstance(found, Invalid):
        raise ValueError(found.why)
    return found


def _settled(settings: Settings) -> Deps:
    """Return a `Deps` in which the fields are set that stay the same while the operator runs."""
    return Deps(
        policy=settings.policy, well_known=_well_known(settings.well_known_models), judge=Validator(settings.lint_refuse)
    )


def _queue(settings: Settings, is_long: Callable[[Ref], bool]) -> WorkQueue[Ref]:
    """Return a new queue of reconciliations with the limits in the settings."""
    return WorkQueue(
        workers=settings.workers,
        is_long=is_long,
        long_runs=settings.long_passes,
        group=lambda ref: ref.namespace,
        first=settings.backoff_first,
        last=settings.backoff_last,
        shared=SharedLimits(settings.shared_share, settings.shared_passes),
        jitter=random.random,
    )


class Manager:
    """Stores all objects that the leading process watches in the cache, and reconciles the objects
    that a change concerns.
    """

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
        """Configured namespaces whose existing objects have all been delivered by the watches."""
        self._running = False
        self._settings, self._client, self._metrics = settings, client, metrics
        self.cluster = ClusterCache(_settled(settings))
        self._queue = _queue(settings, self._creates_everything)
        self._edits: WorkQueue[Ref] = WorkQueue(workers=1, first=1.0, last=60.0, jitter=random.random)
        """Edited shared objects whose services have to be enqueued."""
        self._telemetry = Telemetry(partial(owned_routers, self.cluster), self._queue.add, wall, *way_of(settings, client))
        self._traffic = TrafficSampler(self.cluster, self._telemetry.reports, self._queue.add, wall, interval_of(settings))
        heard, shared = self._telemetry, SharedState.empty(self.cluster, client, self._queue, settings)
        demanded = self.cluster, heard.reports, shared.gangs.has_capacity_now, self._queue.add, wall, settings.router_watch
        self._demand = DemandScaler(*demanded)
        acts, stores = settings.avoid_bad_nodes, scope.removes_weights
        self.bad_nodes = BadNodes(self.cluster, client, self._queue.add, wall, acts=acts, stores=stores)
        args = heard.strangers, heard.drains, self._traffic.of, heard.starts, heard.silences, heard.transfers, heard.arrivals
        reports = Reports(*args, self._demand.scaling_status, self.bad_nodes.avoided_nodes, self._demand.scales_to_zero)
        shared = shared._replace(reports=reports, report_demand=self._demand.report)
        self.pod_dry_runs = shared.pods
        self._handler = EventHandler(
            self.cluster,
            self._enqueue,
            core.models_of,
            core.runtimes_of,
            child_gone=shared.memories.child_gone,
            capacity_freed=shared.gangs.wake_next,
        )
        known = self._handler, client
        self._services = InferenceServiceReconciler(*known, self._queue, settings, wall, shared, core)
        self._metrics_collector = MetricsCollector(self.cluster, metrics, wall, settings.metrics_per_service)
        status_only = *known, self._queue, settings.resync, wall
        self._catalog = CatalogReconciler(*status_only, core, settings.status_interval, scope, self._services.waves)
        self._sglang = SglangReconciler(*status_only)
        images = job.Images(settings.benchmark_image, settings.tools_image, settings.policy.pull_secrets)
        self._benchmarks = BenchmarkJobReconciler(*status_only, images)
        self._node_models = NodeModelsReconciler(*known, self._queue, settings.resync, scope, settings.policy.agent_roots)
        self._audit = self._audit_of(settings)
        self._tasks: list[asyncio.Task[None]] = []
        self._unread: Counter[str] = Counter()

    def _audit_of(self, settings: Settings) -> Resync[ResyncScope]:
        return Resync(
            self._places(""),
            known=self._known,
            listed=lambda place: self.listed(*place),
            gone=lambda place, uid: self._handler.handle_deleted(place.kind, uid),
            queue=WorkQueue(workers=1, first=5.0, last=60.0, jitter=random.random),
            interval=settings.audit_interval,
            debounce=settings.audit_debounce,
        )

    # --- called by watches --------------------------------------------------------------------------------------------

    def handle_object(self, kind: str, body: Body) -> None:
        """Process the current state of an object. After an unexpected error, this state is lost, but the watch continues."""
        try:
            if not self.scope.covers_object(kind, body):
                if self.cluster.resources[kind].get(from_api.uid(body)) is not None:  # it had this operator's class before
                    self.handle_deletion(kind, body)
                return
            self._handler.handle_observed(kind, body)
        except Exception:
            self._unread[kind] += 1
            logger.exception("cannot process a %s: %s", kind, (body.get("metadata") or {}).get("name"))

    def handle_deletion(self, kind: str, body: Body) -> None:
        """Process the deletion of an object."""
        try:
            self._handler.handle_deleted(kind, from_api.uid(body), from_api.version(body))
        except Exception:  # the next resync of this kind removes the object
            logger.exception("cannot process a deleted %s", kind)

    def handle_relist(self, kind: str, namespace: str = "") -> None:
        """Schedule a resync of a kind, because its watch began again with a list."""
        self._audit.enqueue_kind(ResyncScope(kind, namespace))

    def namespace_listed(self, namespace: str) -> None:
        """Enqueue all objects of a namespace, which have now all been listed, so that reconciliations may begin."""
        if not namespace:
            return
        self._whole.add(namespace)
        self._audit.add(self._places(namespace))
        if self._running:
            self._services.seed(namespace)
        for ref in self.cluster.refs(namespace):
            self._enqueue(ref, Urgency.SOON)

    def namespace_unwatched(self, namespace: str) -> None:
        """Stop reconciling a namespace that is not watched any more.

        Its facts stay in the cache, because the namespace may be watched again later. Progressive rollouts do not wait for
        its services.
        """
        self._whole.discard(namespace)
        self._services.namespace_unwatched(namespace)

    def _outside(self, namespace: str) -> bool:
        """Return whether a namespace is not watched now, or not listed completely. With an incomplete cache,
        reconciliations would delete and recycle pods that are in use.
        """
        return bool(namespace and self.scope.namespaces) and namespace not in self._whole

    def _places(self, namespace: str) -> list[ResyncScope]:
        return [ResyncScope(kind, namespace) for kind in self.scope.in_place(self._kinds, namespace)]

    def _known(self, place: ResyncScope) -> set[str]:
        """Return the cached UIDs that a list of the kind and namespace `place` has to contain."""
        return set() if self._outside(place.namespace) else self.cluster.uids(*place)

    def acts_on_service(self, uid: str) -> bool:
        """Return whether the service with this UID is in the cache, which contains only services of the operator's class."""
        return self.cluster.resources[SERVICE].get(uid) is not None

    def _creates_everything(self, ref: Ref) -> bool:
        """Return whether a service has no StatefulSet yet, so that its reconciliation creates all objects and takes long."""
        return ref.kind == SERVICE and not any(owned_children(self.cluster, "StatefulSet", ref))

    def _enqueue(self, ref: Ref, urgency: Urgency) -> None:
        settings = self._settings
        if urgency == Urgency.SHARED:
            if self._running:  # the start enqueues every service anyway
                self._edits.add(ref, spaced=settings.catalog_delay)
        elif urgency == Urgency.AWAITED:
            self._queue.add(ref, spaced=settings.catalog_delay if ref.kind in CATALOG else 0.0)
        elif ref.kind == SERVICE:
            spacing = settings.status_interval if urgency == Urgency.REPORTED else settings.child_spacing
            self._queue.add(ref, settings.child_delay, spaced=spacing)
        else:
            self._queue.add(ref, settings.catalog_delay)

    async def _enqueue_concerned(self, ref: Ref) -> None:
        """Enqueue the services that an edited shared object concerns."""
        for service in self._handler.services_concerned_by(ref):
            self._queue.add_shared(service)
            await PACER.yield_if_due()
        if self.cluster.find_resource(ref) is None:
            self._edits.forget(ref)

    async def listed(self, kind: str, namespace: str = "") -> set[str]:
        """Return the UIDs of all objects of a kind in a namespace that the operator watches, from a consistent list of
        metadata.
        """
        return await self._client.list_uids(kind, namespace, label_selector=SELECTORS.get(kind, ""))

    def freeze(self, frozen: str) -> None:
        """Freeze everything. `frozen` states since when, by whom and why; "" ends the freeze."""
        self._handler.freeze(frozen)

    # --- work -----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run reconciliations and resyncs without end."""
        for namespace in self._whole if self.scope.namespaces else ("",):
            self._services.seed(namespace)
        await self.bad_nodes.load()
        self._running = True
        services, pods = len(self.cluster.resources[SERVICE]), len(self.cluster.pods)
        logger.info("watching %s and %s", count(services, "service"), count(pods, "pod"))
        self._tasks = [
            asyncio.create_task(self._queue.run(self._pass), name="passes"),
            asyncio.create_task(self._edits.run(self._enqueue_concerned), name="edits"),
            asyncio.create_task(self._services.first_pods.run(), name="first pods"),
            asyncio.create_task(self._audit.run(), name="audits"),
            asyncio.create_task(tidying.tidy(self.cluster, self._settings.resync, lambda: self._services.gone), name="tidy"),
            asyncio.create_task(garbage_collection.collect_periodically(lambda: not self._queue.busy_count), name="garbage"),
            asyncio.create_task(self._telemetry.run(), name="telemetry"),
            asyncio.create_task(self._traffic.run(), name="traffic"),
            asyncio.create_task(self._demand.run(), name="demand"),
            asyncio.create_task(self.bad_nodes.run(), name="bad nodes"),
        ]
        await asyncio.gather(*self._tasks)

    async def stop(self, grace: float) -> None:
        """Start no more reconciliations, and wait at most `grace` seconds until the running reconciliations have ended."""
        for task in self._tasks:
            task.cancel()
        await self._edits.drain(grace)
        if not await self._queue.drain(grace):
            logger.warning("running reconciliations were cancelled")

    def record(self, reason: str) -> None:
        """Begin to write all reconciliations that the flight recorder has kept to a file, whose name is logged. `reason` is
        the reason for writing the file.
        """
        self._services.flight.write(reason)

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
            self._metrics.record_pass(ref.kind, result, time.monotonic() - started)
            self._metrics_collector.update_metrics(ref)

    def watch_metrics(self, coverage: Coverage) -> None:
        """Register the functions that compute metrics when they are scraped."""
        ask, queue = self._metrics.ask, self._queue
        ask("ome_queue_depth", lambda: {("waiting",): queue.due_count, ("busy",): queue.busy_count})
        ask("ome_queue_oldest_seconds", lambda: {(): queue.oldest})
        ask("ome_watch_event_age_seconds", lambda: _by(coverage.last_event, lambda at: time.monotonic() - at))
        ask("ome_watch_events_total", lambda: _by(coverage.events))
        ask("ome_watch_unread_total", lambda: _by(coverage.unparsed_counts + self._unread))
        ask("ome_namespace_watched", lambda: _by(coverage.watched_namespaces))
        ask("ome_router_strangers_total", lambda: {(): self._telemetry.total})
        ask("ome_routers", self._telemetry.states)
        ask("ome_braked_services", self._held_services)
        ask("ome_nodes_avoided", self.bad_nodes.avoided_counts)
        ask("ome_node_failures", lambda: {(): self.bad_nodes.failure_count})
        ask("ome_shared_edits", lambda: _by(self._services.waves.edits()))
        ask("ome_wave_services", lambda: _by(self._services.waves.counts()))
        self._metrics_collector.watch()

    def _held_services(self) -> dict[tuple[str, ...], float]:
        found: dict[tuple[str, ...], float] = {(str(reason),): 0.0 for reason in (Reason.FROZEN, Reason.OBSERVED)}
        for resource in self.cluster.services():
            if (held := self.cluster.active_hold(resource)) is not None:
                found[held.reason,] += 1
        return found


def _by(values: Mapping[str, float], read: Callable[[float], float] = float) -> dict[tuple[str, ...], float]:
    return {(label,): read(value) for label, value in values.items()}
