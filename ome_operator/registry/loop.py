"""The registry's process: read pods and workers, calculate the changes, send the changes to the router, and report the
state of the workers.

The registry outlives the router in the same pod: after SIGTERM it continues until the router has ended.
"""

import asyncio
import contextlib
import json
import logging
import signal
import time
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp import web

from ome_operator.machinery import health
from ome_operator.names import slice_mark
from ome_operator.registry.clients import NO_ANSWER, TIMEOUT, PodLister, RouterClient
from ome_operator.registry.metrics import RegistryMetrics
from ome_operator.registry.reconcile import LeaderSigns, reconcile
from ome_operator.registry.records import LeaderState, Pod, WorkerChanges, WorkerMemory
from ome_operator.registry.settings import SidecarSettings
from ome_operator.registry.telemetry_reader import TelemetryReader
from ome_operator.registry.unserved import UnservedRequests, app
from ome_operator.util.wording import error_text

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
"""Seconds until the next pass in each of four cases: the router does not answer, the router has accepted a change, the
router is about to list a worker, or a leader is about to be ready."""
SOON_LISTED = 5.0
"""Seconds within which the router usually lists a worker after the first request to add it. The router first asks the
worker for its health. A router that cannot reach the worker never lists it."""
STUCK = 60.0
"""Seconds without a finished pass after which the liveness probe fails."""


class Registry:
    """The registry process of one router. `wall` returns the current time in seconds since the epoch."""

    def __init__(
        self, settings: SidecarSettings, session: aiohttp.ClientSession, wall: Callable[[], float] = time.time
    ) -> None:
        self._settings, self._session, self._wall = settings, session, wall
        stems = {role.component: role.stem for role in settings.registry.roles}
        self._pods = PodLister(session, settings.server, settings.namespace, settings.selector, settings.account, stems)
        self._router = RouterClient(session, settings.router, settings.key, settings.worker_key)
        self._metrics = RegistryMetrics()
        self._foreign: frozenset[str] = frozenset()
        self._known: tuple[Pod, ...] | None = None
        self._memory = WorkerMemory()
        self._first_asked: dict[str, float] = {}
        """Maps the URL of a worker to the time of the first request to the router to add it. The entry is removed when
        the router lists the worker."""
        self._leaders: tuple[LeaderState, ...] = ()
        self._stop, self._wake = asyncio.Event(), asyncio.Event()
        self.unserved = UnservedRequests()
        self._telemetry = TelemetryReader(
            session,
            settings.router_metrics,
            lambda: self._leaders,
            settings.worker_key,
            changed=self._wake.set,
            unserved=self.unserved,
            has_engines=self.has_engines,
        )
        self._listed_at = self._passed_at = time.monotonic()
        self._troubles: dict[str, str] = {}

    async def run(self) -> None:
        """Run passes until `stop` has been called and the router no longer answers."""
        telemetry = asyncio.create_task(self._telemetry.run(), name="telemetry")
        try:
            await self._run_passes()
        finally:
            telemetry.cancel()

    async def _run_passes(self) -> None:
        while (pause := await self._pass()) is not None:
            self._passed_at = time.monotonic()
            if not self._stop.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), pause)
                self._wake.clear()
            if self._stop.is_set():
                await asyncio.sleep(min(pause, RETRY_SECONDS))

    def stop(self) -> None:
        """Request `run` to return as soon as the router has ended. Until then the passes continue."""
        self._stop.set()
        self._wake.set()

    async def _pass(self) -> float | None:
        """Read workers and pods once, and send the changes to the router. Return the seconds until the next pass; None after
        `stop` if the router has ended, so that there is no further pass.
        """
        try:
            workers = await self._router.workers()  # before the pods: see `reconcile`
            await self._forget({worker.base for worker in workers})
        except NO_ANSWER as error:
            if self._stop.is_set():
                return None
            self._memory = self._memory._replace(asked={})  # a router that restarts loses the workers that it was sent
            self._log_trouble("router", f"the router does not answer: {error_text(error)}")
            return RETRY_SECONDS
        self._log_trouble("router", "")
        fresh = await self._list_pods()
        if self._known is None:
            return self._settings.interval
        found, now = self._telemetry, self._wall()
        healthy = {uid: now - age for uid, age in found.healthy_seconds.items()}
        signs = LeaderSigns(found.silent_leaders, found.faulty_leaders, healthy)
        changes = reconcile(self._known, workers, self._memory, self._settings.registry, now, fresh, signs)
        self._memory, self._leaders = changes.memory, changes.leaders
        self._telemetry.update_leaders(self._leaders, workers)
        self._count_foreign(changes)
        changed = await self._change_router(changes)
        self._first_asked = {url: min(self._first_asked.get(url, at), now) for url, at in self._memory.asked.items()}
        is_adding = any(now - at < SOON_LISTED for at in self._first_asked.values())
        return RETRY_SECONDS if changed or is_adding or self._telemetry.expects_leaders else self._settings.interval

    async def _forget(self, listed: set[str]) -> None:
        """Discard those stored requests to add a worker that the router has forgotten, so that they are sent again. `listed`
        contains the URLs of the workers that the router lists.
        """
        waiting = self._memory.asked.keys() - listed
        forgotten = {url for url in waiting if await self._router.has_forgotten(url)}
        asked = {url: at for url, at in self._memory.asked.items() if url not in forgotten}
        self._memory = self._memory._replace(asked=asked)

    async def _list_pods(self) -> bool:
        """List the pods. Return False if the list failed, so that the pods of the previous list are used."""
        try:
            self._known = await self._pods.list()
        except NO_ANSWER as error:
            why = error_text(error)
            self._log_trouble(
                "pods", f"the router's list of workers is not changed, because the pods could not be listed: {why}"
            )
            return False
        self._listed_at = time.monotonic()
        self._log_trouble("pods", "")
        return True

    async def _change_router(self, changes: WorkerChanges) -> bool:
        """Send the changes to the router. Return whether the router accepted any change."""
        failed = ""
        done = 0
        for worker, why, _ in changes.remove:
            try:
                await self._router.remove(worker)
                done += 1
                logger.info("removed %s (%s): %s", worker.url, worker.worker_type, why)
            except NO_ANSWER as error:
                failed = f"cannot remove {worker.url}: {error_text(error)}"
        for target in changes.add:
            try:
                if await self._router.add(target):
                    done += 1
                    logger.info("added %s (%s): pod %s can serve requests", target.url, target.worker_type, target.pod)
            except NO_ANSWER as error:
                failed = f"cannot add {target.url}: {error_text(error)}"
                asked = {url: at for url, at in self._memory.asked.items() if url != target.url}
                self._memory = self._memory._replace(asked=asked)
        self._log_trouble("changes", failed)
        return done > 0

    def _count_foreign(self, changes: WorkerChanges) -> None:
        """Log and count the workers in the router's list that do not belong to this slice. Each of these workers is counted
        only once, even if its removal fails several times.
        """
        foreign = {removal.worker.id: removal.worker for removal in changes.remove if removal.is_foreign}
        new = foreign.keys() - self._foreign
        for worker in (foreign[worker_id] for worker_id in sorted(new)):
            logger.warning(
                "found a foreign worker, which is not a pod of this router's revision, in the router's list: %s (%s)",
                worker.url,
                worker.worker_type,
            )
        self._metrics.count_foreign(len(new), self._wall())
        self._foreign = frozenset(foreign)

    def _log_trouble(self, about: str, trouble: str) -> None:
        """Log a problem once when it begins and once when it ends. `about` is the task that has the problem, such as `pods`.
        `trouble` is the message, or "" if there is no problem.
        """
        if trouble != self._troubles.get(about, ""):
            logger.warning("%s", trouble) if trouble else logger.info("%s: the problem is resolved", about)
            self._troubles[about] = trouble

    def has_engines(self) -> bool | None:
        """Return whether the router lists an engine of each role; None until the pods have been listed once."""
        if self._known is None:
            return None
        listed = {leader.role for leader in self._leaders if leader.listed}
        return all(role.worker_type in listed for role in self._settings.registry.roles)

    def is_starting(self) -> bool:
        """Return whether the slice has a leader that is not being drained."""
        return any(leader.state != "draining" for leader in self._leaders)

    # --- probes and reports ---------------------------------------------------------------------------------------

    def is_alive(self) -> health.Answer:
        """Return whether a pass has ended within the last `STUCK` seconds, and a text for the liveness probe. A pass also
        ends if the API server or the router does not answer, because a restart of the registry would not help.
        """
        age = time.monotonic() - self._passed_at
        return age < STUCK, "ok" if age < STUCK else f"the last pass was {age:.0f} s ago"

    def metrics(self) -> health.Answer:
        """Return True, and the metrics for Prometheus and the operator in the text format of Prometheus."""
        return True, self._metrics.render(self._leaders)

    def summary(self) -> health.Answer:
        """Return True, and the summary of the work of the router and its leaders as JSON. The summary contains no names
        (docs/telemetry.md).
        """
        slice_ = slice_mark(self._settings.namespace, self._settings.selector)
        return True, json.dumps(self._telemetry.summary(slice_, self._metrics.foreign(self._wall())))

    def workers(self) -> health.Answer:
        """Return True, and a JSON list of the leaders of the slice. It states for each leader whether this router lists it,
        and how many requests run on it.
        """
        body: dict[str, Any] = {
            "podsAge": round(time.monotonic() - self._listed_at, 1),
            "trouble": [trouble for trouble in self._troubles.values() if trouble],
            "workers": [
                {
                    "pod": leader.pod,
                    "uid": leader.uid,
                    "url": leader.url,
                    "role": leader.role,
                    "state": leader.state,
                    "reason": leader.why,
                    "listed": leader.listed,
                    "running": leader.running if leader.listed else self._telemetry.request_count(leader.uid),
                }
                for leader in self._leaders
            ],
        }
        return True, json.dumps(body)


async def run(settings: SidecarSettings) -> None:
    """Run the registry until the process has received SIGTERM or SIGINT and the router has ended. Raises PortTaken."""
    async with aiohttp.ClientSession(timeout=TIMEOUT, headers={"User-Agent": "ome-registry"}) as session:
        registry = Registry(settings, session, wall=time.time)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, registry.stop)
        routes = {
            "/healthz": registry.is_alive,
            "/metrics": registry.metrics,
            "/summary": registry.summary,
            "/workers": registry.workers,
        }
        guarded = ("/workers",)  # probes and scrapes need no key, so their responses contain no names
        runner, port = await health.serve(settings.address, settings.port, routes, settings.key, guarded)
        logger.info("registry of router %s for pods with %s; listens on port %d", settings.router, settings.selector, port)
        answering = await _answer(settings, registry)
        try:
            await registry.run()
        finally:
            await runner.cleanup()
            if answering is not None:
                await answering.cleanup()


async def _answer(settings: SidecarSettings, registry: Registry) -> web.AppRunner | None:
    """Start the server that answers requests while no engine runs. Return None if another process of the pod uses the port;
    the registry then works without this server.
    """
    made = app(registry.unserved, settings.worker_key, registry.is_starting)
    try:
        runner, port = await health.listen(made, settings.address, settings.answer_port)
    except health.PortTaken as error:
        logger.warning("no request is answered while no engine runs: %s", error)
        return None
    logger.info("requests are answered with 503 on port %d while no engine runs", port)
    return runner
