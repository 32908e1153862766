"""Reconcile one service: read the cache, call `sync`, execute the plan, write the status, and schedule the next
reconciliation.
"""

import logging
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial

from ome_operator import keys
from ome_operator.api import Invalid
from ome_operator.cache.event_handler import EventHandler
from ome_operator.cache.owned import owned_children
from ome_operator.cache.resources import Resource
from ome_operator.controllers import events as kube_events
from ome_operator.controllers import status_writer
from ome_operator.controllers.base import CORE, Core
from ome_operator.controllers.inferenceservice import journal, starting
from ome_operator.controllers.inferenceservice.count_pace import CountPace, only_numbers
from ome_operator.controllers.inferenceservice.execution import Execution, Result
from ome_operator.controllers.inferenceservice.executor import Executor
from ome_operator.controllers.inferenceservice.first_pods import FirstPods
from ome_operator.controllers.inferenceservice.flight import Flight
from ome_operator.controllers.inferenceservice.foreign_objects import ForeignReader
from ome_operator.controllers.inferenceservice.memory import Key, ServiceMemory, retry_delay, rollout_waited
from ome_operator.controllers.inferenceservice.shared_state import SharedState
from ome_operator.controllers.inferenceservice.still_serves import still_serves
from ome_operator.controllers.placement import autoscalers
from ome_operator.controllers.waves import WaveRegistry
from ome_operator.core.freeze.hold import Hold
from ome_operator.core.observed import starts
from ome_operator.core.observed.objects import Epoch, Observed, Ref
from ome_operator.core.reasons import READY, Reason, ReasonRecord
from ome_operator.core.reconcile.plan import NEEDED, Event, Plan
from ome_operator.core.reconcile.sync import with_hold
from ome_operator.core.status import conditions as cond
from ome_operator.core.waves.shared_edits import whole_before
from ome_operator.core.waves.terms import WaveTerms
from ome_operator.kube.client import Client
from ome_operator.kube.errors import KubeError
from ome_operator.machinery.workqueue import WorkQueue
from ome_operator.settings import Settings
from ome_operator.util.wall_clock import WallClock

logger = logging.getLogger(__name__)

ROUNDS = 3
"""Maximum number of times that a reconciliation calls `sync`. `sync` is called again if effects have produced new facts
that change the status."""


class InferenceServiceReconciler:
    """Reconciles InferenceServices."""

    def __init__(
        self,
        handler: EventHandler,
        client: Client,
        queue: WorkQueue[Ref],
        settings: Settings,
        wall: WallClock,
        shared: SharedState,
        core: Core = CORE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._memories, self._gangs, self._reports, pods, self._pulls, self._report_demand = shared
        self._handler, self._cluster, self._client, self._queue = handler, handler.cache, client, queue
        self._executor = Executor(client, handler, settings.guard_delay, pods)
        self._settings, self._wall, self._core, self._clock = settings, wall, core, clock
        self._failures = kube_events.create_failures(client, clock, wall)
        self._start_failures = kube_events.start_failures(client, clock, wall)
        self._foreign = ForeignReader(client, clock)
        self.first_pods = FirstPods(handler.cache, self._memories, queue.add, settings.failures_after, clock)
        self._counts = CountPace(settings.status_interval, settings.status_rate)
        self.gone = 0
        """Number of services that have been deleted since the start."""
        default = WaveTerms(settings.waves, settings.bake, settings.max_concurrent_services)
        self.waves = WaveRegistry(
            terms=lambda ref: handler.cache.terms(ref, default),
            wall=wall,
            call=queue.add,
            changed=lambda ref: queue.add(ref, settings.catalog_delay),
        )
        self._scale_ups = kube_events.scale_ups(client, clock, wall)
        self.flight = Flight(settings.recorder_memory * 2**20, wall)

    def seed(self, namespace: str = "") -> None:
        """Delay rollouts of edited shared objects until each service of a namespace ("": all) was reconciled once."""
        refs = (resource.ref for resource in self._cluster.services())
        self.waves.expect(ref for ref in refs if namespace in ("", ref.namespace))

    def namespace_unwatched(self, namespace: str) -> None:
        """Discard the claims and rollout states of the services in a namespace that is not watched any more, so that no
        other service waits for them.
        """
        for resource in self._cluster.services():
            if resource.ref.namespace == namespace:
                self.waves.forget(resource.ref)
                self._pulls.forget(resource.ref)
                self._gangs.report_claim(resource.ref, None, self._wall())

    async def reconcile(self, ref: Ref) -> bool:
        """Reconcile a service. Return True if there was no unexpected error."""
        resource = self._cluster.find_resource(ref)
        if resource is None or resource.deleting:
            self._forget(ref)  # the garbage collector deletes the objects that the service owns
            return True
        memory = self._memories.memory_of(resource)
        result, tried = Result(), set[Key]()
        result.first = not any(owned_children(self._cluster, "StatefulSet", ref))
        wall, lasts = self._wall(), self._settings.policy.gang_timeout
        await autoscalers.read_scale_ups(self._scale_ups, self._cluster, resource, memory, now=wall, lasts=lasts)
        for _ in range(ROUNDS):
            result.status_changed = False
            plan = self._plan(resource, memory, result)
            anew = partial(self._newly_held, ref, self._cluster.active_hold(resource))
            if plan.look:
                await self._check_capacity(ref, memory, plan, result)
            else:
                await self._executor.execute_effects(plan, Execution(resource, memory, tried, result, self._clock, anew))
                if plan.claim is not None:
                    await self._gangs.read_foreign_pods(plan.claim)
                await self._inspect_missing_pods(resource, memory, plan, result)
                demand = plan.demand is not None
                result.status_changed |= await self._foreign.refresh(ref.namespace, plan.status, demand=demand)
                pods, now, after = self._cluster.pods_of(*ref[1:]), self._clock(), self._settings.starts_after
                await starting.read_events(self._start_failures, ref.namespace, pods, memory, result, now=now, after=after)
                self._log_deeds(ref, result)
            if not result.status_changed:
                break
            if (resource := self._cluster.find_resource(ref)) is None:
                return True
        await self._write_status(resource, memory, plan, result)
        self._requeue_after(ref, plan, result, memory)
        return not memory.last_bug

    # --- planning -----------------------------------------------------------------------------------------------------

    async def _check_capacity(self, ref: Ref, memory: ServiceMemory, plan: Plan, result: Result) -> None:
        """Check whether the nodes have the capacity that `plan` asks for. The caller executes no effect of this plan.

        A plan that asks for a check keeps every group of the serving revision. The execution of such a plan would remove
        the draining annotation from leaders that are about to be stopped. The plan after the check would set the annotation
        again, the plan with the next check would remove it again, and the rollout would never proceed.
        """
        for check in plan.look:
            if check.second_copy:
                memory.second_copy = {check.key: await self._gangs.check_second_copy(check.needs)}
                continue
            memory.store_capacity(check.key, await self._gangs.check_capacity(ref, check.needs, self._wall()), self._clock())
        result.status_changed = True

    def _plan(self, resource: Resource, memory: ServiceMemory, result: Result) -> Plan:
        now = self._wall()
        if isinstance(resource.parsed, Invalid):
            memory.last_bug = ""
            return self._refused(resource, Reason.INVALID_SPEC, resource.parsed.why, now)
        recorder = None
        try:
            deps, observed = self._cluster.deps(), self._observed(resource, memory, now)
            if (recorder := self.flight.listen(resource.parsed, deps, observed)) is not None:
                deps, observed = recorder.deps, recorder.observed
            plan = self._core.sync(resource.parsed, deps, observed, now)
            self.flight.record_outcome(resource.ref, recorder, now, plan)
            self._report_plan(resource, plan)
            self._handler.waits_for_nodes(resource.ref, plan.nodes)
            self._gangs.report_claim(resource.ref, plan.claim, now, moves=plan.nodes)
        except Exception as error:
            traceback = repr(error) != memory.last_bug
            memory.last_bug = repr(error)
            logger.error("sync failed for %s/%s: %r", resource.ref.namespace, resource.ref.name, error, exc_info=traceback)
            result.error = KubeError(f"{type(error).__name__}: {error}")
            self.flight.record_outcome(resource.ref, recorder, now, error)
            if traceback and recorder is not None:
                self.flight.write(f"InternalError: {error!r}", resource.ref)
            return self._refused(resource, Reason.INTERNAL_ERROR, status_writer.bug_message(error), now)
        memory.last_bug = ""
        return plan

    def _refused(self, resource: Resource, reason: ReasonRecord, why: str, now: datetime) -> Plan:
        """Return the plan for a service that cannot be read or handled. Other services do not wait for this service."""
        self._report_plan(resource, Plan())
        self._gangs.report_claim(resource.ref, None, now)
        serves = still_serves(self._cluster, resource)
        plan = self._core.refuse(dict(resource.status), resource.generation, reason, why, now, serves=serves)
        return with_hold(plan, resource.status, self._cluster.active_hold(resource), resource.generation, now)

    def _newly_held(self, ref: Ref, then: Hold | None) -> bool:
        """Return whether a freeze or observe mode applies now that did not apply (`then`) when the plan was made."""
        resource = self._cluster.find_resource(ref)
        return resource is not None and (held := self._cluster.active_hold(resource)) is not None and held != then

    def _observed(self, resource: Resource, memory: ServiceMemory, now: datetime) -> Observed:
        ref = resource.ref
        children, pods = self._cluster.children_of(ref.namespace, ref.name), self._cluster.pods_of(ref.namespace, ref.name)
        memory.count(children, pods, self._clock())
        turn = self._gangs.admission_of(ref, resource.status, now)
        return Observed(
            children=children,
            pods=starts.with_failures(pods, memory.starting.reasons),
            refusals=memory.refusals(),
            accepted=memory.accepted,
            checks=memory.valid_checks(self._clock(), waits=rollout_waited(resource.status)),
            remarks=memory.remarks(),
            failures=memory.failures,
            warnings=tuple(dict.fromkeys(text for texts in memory.warnings.values() for text in texts)),
            **self._reports.observed_fields(pods),
            traffic=self._reports.traffic(resource),
            scaling=self._reports.scaling(resource),
            goes=self._reports.goes(resource),
            turn=turn._replace(coming=autoscalers.autoscaler_adds_nodes(resource, memory, now)),
            ahead=self._ahead(resource),
            **self._foreign.last_read_objects(ref.namespace),
            avoided=self._reports.avoided(ref.namespace),
            pulls=self._pulls.active_jobs_of_others(ref),
            another=status_writer.co_writer(resource.writers, now, timedelta(seconds=self._settings.foreign_writer_pause)),
        )

    def _replacing(self, resource: Resource) -> bool:
        """Return whether the service has begun to replace its revision: StatefulSets of a revision other than the last
        complete revision exist, or the service has rejected a revision and gone back, so that no further service tries
        it.
        """
        revisions = {child.labels.get(keys.REVISION) for child in owned_children(self._cluster, "StatefulSet", resource.ref)}
        return bool(resource.status.get("rejected")) or len(revisions | whole_before(resource.status)) > 1

    def _ahead(self, resource: Resource) -> Callable[[Mapping[Ref, Epoch]], str]:
        """Return a function that maps edits of shared objects to the wave for which the service has to wait, or to ""."""
        if self._replacing(resource):
            return lambda _: ""
        return partial(self.waves.awaited_wave, resource.ref)

    def _report_plan(self, resource: Resource, plan: Plan) -> None:
        """Report this plan to the autoscaler, and to the progressive rollouts, because other services wait for this service.

        There must be no await between the decision and the report. A service that was admitted keeps its state while its
        revision is in a dry run, or while capacity is checked.
        """
        self._report_demand(resource.ref, plan.demand)
        self._pulls.report(resource.ref, plan.pulls)
        asks = plan.rolls or bool(plan.check or plan.look)
        self.waves.report(resource.ref, plan.stands, asks=asks, begun=self._replacing(resource))

    # --- reporting ----------------------------------------------------------------------------------------------------

    async def _inspect_missing_pods(self, resource: Resource, memory: ServiceMemory, plan: Plan, result: Result) -> None:
        """Read the Events about pods that have been missing for some seconds, unless they have been read recently."""
        now, due = self._clock(), []
        for key in plan.watch_failures:
            since = memory.missing.get(key)
            if since is None:
                continue
            tries, at = memory.event_reads.get(key, (0, 0.0))
            wait = max(since + self._settings.failures_after, at) - now
            if wait <= 0:
                tries, wait = tries + 1, retry_delay(tries + 1)
                memory.event_reads[key] = tries, now + wait
                due.append(key)
            result.requeue_within(wait)
        if not due:
            return
        try:
            messages = await self._failures.values_by_uid(resource.ref.namespace)
        except KubeError as error:
            logger.info("cannot read events in %s: %s", resource.ref.namespace, error)
            return
        children = self._cluster.children_of(resource.ref.namespace, resource.ref.name)
        for key in due:
            child = children.get(key)
            message = messages.get(child.uid, "") if child is not None else ""
            if message != memory.failures.get(key, ""):
                memory.failures[key] = message
                result.status_changed = True

    async def _write_status(self, resource: Resource, memory: ServiceMemory, plan: Plan, result: Result) -> None:
        memory.held_up = cond.is_true(READY, plan.status) and self._unreachable(resource, plan)
        if memory.held_up or not status_writer.status_differs(resource, plan.status, memory.status):
            return  # writes of objects that could not be created are repeated
        numbers = not plan.urgent and only_numbers(resource.status, plan.status)
        wait = 0.0 if plan.urgent else self._counts.seconds_until_write(memory, self._clock(), numbers=numbers)
        if wait > 0:
            result.requeue_within(wait)
            return
        turns = journal.condition_changes(resource.status.get("conditions") or (), plan.status.get("conditions") or ())
        try:
            written = await status_writer.write(self._client, self._handler, resource, plan.status)
        except KubeError as error:
            logger.info("cannot write the status of %s/%s: %s", resource.ref.namespace, resource.ref.name, error)
            result.error = error
            return
        if written is None:
            result.requeue_within(self._settings.guard_delay)
            return
        memory.status, memory.status_at = written, self._clock()
        if numbers:
            memory.status_turn = None
        for turn in turns:
            logger.info("%s/%s: %s", resource.ref.namespace, resource.ref.name, turn)
        await self._record_events(resource, memory, plan.events)

    def _unreachable(self, resource: Resource, plan: Plan) -> bool:
        """Return whether the service lacks its address or its RBAC rights, so that ready pods receive no requests."""
        wanted = {(apply.kind, apply.manifest["metadata"]["name"]) for apply in plan.apply if apply.kind in NEEDED}
        children = self._cluster.children_of(resource.ref.namespace, resource.ref.name) if wanted else {}
        return not wanted <= {key for key, child in children.items() if child.owner == resource.uid}

    async def _record_events(self, resource: Resource, memory: ServiceMemory, events: tuple[Event, ...]) -> None:
        """Post Events that were not posted recently."""
        now = self._clock()
        memory.events = {key: at for key, at in memory.events.items() if now - at < kube_events.REPEAT}
        for event in events:
            if (event.reason, event.message) not in memory.events:
                memory.events[(event.reason, event.message)] = now
                logger.info("%s/%s: %s: %s", resource.ref.namespace, resource.ref.name, event.reason, event.message)
                if len(memory.events) <= kube_events.MOST:
                    await kube_events.post_event(self._client, resource, event, self._wall())

    def _log_deeds(self, ref: Ref, result: Result) -> None:
        if deeds := journal.describe_writes(result.write_counts):
            logger.info("%s/%s: %s", ref.namespace, ref.name, deeds)
        result.write_counts.clear()

    # --- the next reconciliation --------------------------------------------------------------------------------------

    def _requeue_after(self, ref: Ref, plan: Plan, result: Result, memory: ServiceMemory) -> None:
        begins = result.first and any(owned_children(self._cluster, "StatefulSet", ref))
        if result.has_written or result.status_changed or (result.created and not begins):
            self._queue.add(ref, self._settings.child_delay, spaced=self._settings.child_spacing)
        elif result.created:
            self.first_pods.expect(ref, memory)
        # A plan whose status is held back is due at once. Without a pause, it would be repeated all the time.
        soonest = self._settings.guard_delay if memory.held_up else 0.0
        if result.error is not None:
            delay = self._queue.retry(ref, at_least=result.error.retry_after)
            logger.info("%s/%s: tried again in %.1f s: %s", ref.namespace, ref.name, delay, result.error)
            soonest = max(result.error.retry_after, self._settings.guard_delay)
        else:
            self._queue.reset_backoff(ref)
        for after in (result.requeue_after, plan.requeue_after, memory.next_check(self._clock()), self._settings.resync):
            if after is not None:
                self._queue.add(ref, max(after, soonest))

    def _forget(self, ref: Ref) -> None:
        if self._memories.forget(ref):
            self.gone += 1
        self._handler.waits_for_nodes(ref, False)
        self._gangs.report_claim(ref, None, self._wall(), gone=True)
        for memory in (self.flight, self.waves, self._queue, self._pulls):
            memory.forget(ref)
