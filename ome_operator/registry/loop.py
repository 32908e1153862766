"""The registry's life: look, decide, tell the router; and say how the workers stand.

It outlives the router beside it: after SIGTERM it goes on until the router is gone.
"""

import asyncio
import contextlib
import json
import logging
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from ome_operator.machinery import health
from ome_operator.registry.clients import NO_ANSWER, SERVICE_ACCOUNT, TIMEOUT, Pods, Router, engine_load
from ome_operator.registry.metrics import RegistryMetrics
from ome_operator.registry.reconcile import LeaderState, Pod, RegistrySettings, WorkerChanges, WorkerMemory, reconcile

logger = logging.getLogger(__name__)

SOON = 0.5
"""Seconds until we look again while the router is away, and after a change."""
STUCK = 60.0
"""Seconds without a finished pass after which the liveness probe fails."""


@dataclass(frozen=True, kw_only=True)
class SidecarSettings:
    """Made once from the command line."""

    router: str
    """Address of the router."""
    server: str
    """Address of the API server."""
    namespace: str
    selector: str
    """Labels of the pods of our slice."""
    registry: RegistrySettings
    key: str = ""
    """What the router's `/workers` wants to see in `Authorization`, and ours; "" for nothing."""
    worker_key: str = ""
    """What the router shows its workers, "" for nothing."""
    interval: float = 3.0
    """Seconds between two lists: a dead worker must be out within 10 s, probe and removal included."""
    account: Path = SERVICE_ACCOUNT
    """Folder with `token` and `ca.crt`."""
    address: str = ""
    """Where probes are answered; "" is every address."""
    port: int = 0
    """0: a free port."""


class Registry:
    """One process beside one router; `wall` is the time of day, in seconds since the epoch."""

    def __init__(
        self, settings: SidecarSettings, session: aiohttp.ClientSession, wall: Callable[[], float] = time.time
    ) -> None:
        self._settings, self._session, self._wall = settings, session, wall
        stems = {role.component: role.stem for role in settings.registry.roles}
        self._pods = Pods(session, settings.server, settings.namespace, settings.selector, settings.account, stems)
        self._router = Router(session, settings.router, settings.key, settings.worker_key)
        self._metrics = RegistryMetrics()
        self._strangers: frozenset[str] = frozenset()
        self._known: tuple[Pod, ...] | None = None
        self._memory = WorkerMemory()
        self._leaders: tuple[LeaderState, ...] = ()
        self._loads: dict[str, int | None] = {}
        self._listed_at = self._passed_at = time.monotonic()
        self._troubles: dict[str, str] = {}
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Until it is stopped and the router is gone."""
        while (pause := await self._pass()) is not None:
            self._passed_at = time.monotonic()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause)
            if self._stop.is_set():
                await asyncio.sleep(min(pause, SOON))

    def stop(self) -> None:
        """Go on only as long as the router does."""
        self._stop.set()

    async def _pass(self) -> float | None:
        """One look at both sides; seconds until the next one, None at the end."""
        try:
            workers = await self._router.workers()  # before the pods: see `reconcile`
            await self._forget({one.base for one in workers})
        except NO_ANSWER as error:
            if self._stop.is_set():
                return None
            self._memory = self._memory._replace(asked={})  # a router that restarts has forgotten what it was sent
            self._log_trouble("router", f"the router does not answer: {error or type(error).__name__}")
            return SOON
        self._log_trouble("router", "")
        fresh = await self._look()
        if self._known is None:
            return self._settings.interval
        step = reconcile(self._known, workers, self._memory, self._settings.registry, self._wall(), fresh)
        self._memory, self._leaders = step.memory, step.leaders
        self._count_strangers(step)
        changed = await self._change_router(step)
        await self._ask_engines()
        return SOON if changed else self._settings.interval

    async def _forget(self, listed: set[str]) -> None:
        """Forget what the router was sent and has forgotten itself."""
        waiting = self._memory.asked.keys() - listed
        forgotten = {url for url in waiting if await self._router.forgot(url)}
        asked = {url: at for url, at in self._memory.asked.items() if url not in forgotten}
        self._memory = self._memory._replace(asked=asked)

    async def _look(self) -> bool:
        """List the pods; False when what we know of them is old."""
        try:
            self._known = await self._pods.list()
        except NO_ANSWER as error:
            why = error or type(error).__name__
            self._log_trouble("pods", f"the workers stay as they are, for the pods are unknown: {why}")
            return False
        self._listed_at = time.monotonic()
        self._log_trouble("pods", "")
        return True

    async def _change_router(self, step: WorkerChanges) -> bool:
        """Whether the router took any of it."""
        failed = ""
        done = 0
        for worker, why, _ in step.remove:
            try:
                await self._router.remove(worker)
                done += 1
                logger.info("removed %s (%s): %s", worker.url, worker.worker_type, why)
            except NO_ANSWER as error:
                failed = f"cannot remove {worker.url}: {error or type(error).__name__}"
        for target in step.add:
            try:
                await self._router.add(target)
                done += 1
                logger.info("added %s (%s): pod %s can serve", target.url, target.worker_type, target.pod)
            except NO_ANSWER as error:
                failed = f"cannot add {target.url}: {error or type(error).__name__}"
                asked = {url: at for url, at in self._memory.asked.items() if url != target.url}
                self._memory = self._memory._replace(asked=asked)
        self._log_trouble("changes", failed)
        return done > 0

    def _count_strangers(self, step: WorkerChanges) -> None:
        """Each that the router lists counts once, however often its removal fails."""
        found = {one.worker.id: one.worker for one in step.remove if one.stranger}
        new = found.keys() - self._strangers
        for worker in (found[one] for one in sorted(new)):
            logger.warning("a stranger in the router's list: %s (%s)", worker.url, worker.worker_type)
        self._metrics.found(len(new), self._wall())
        self._strangers = frozenset(found)

    async def _ask_engines(self) -> None:
        """The router forgets a worker's requests with the worker; its engine knows until the last one has ended."""
        urls = [one.url for one in self._leaders if one.state == "draining" and one.url and not one.listed]
        loads = await asyncio.gather(*(engine_load(self._session, url) for url in urls))
        self._loads = dict(zip(urls, loads, strict=True))

    def _log_trouble(self, about: str, trouble: str) -> None:
        """Log trouble once, and its end."""
        if trouble != self._troubles.get(about, ""):
            logger.warning("%s", trouble) if trouble else logger.info("%s: well again", about)
            self._troubles[about] = trouble

    # --- what others may ask --------------------------------------------------------------------------------------

    def alive(self) -> health.Answer:
        """Whether passes go on; servers that do not answer are no reason to restart."""
        age = time.monotonic() - self._passed_at
        return age < STUCK, "ok" if age < STUCK else f"no pass for {age:.0f} s"

    def metrics(self) -> health.Answer:
        """For Prometheus and for the operator."""
        return True, self._metrics.render(self._leaders)

    def workers(self) -> health.Answer:
        """Every leader of the slice: whether this router lists it, and how many requests run there."""
        body: dict[str, Any] = {
            "podsAge": round(time.monotonic() - self._listed_at, 1),
            "trouble": [one for one in self._troubles.values() if one],
            "workers": [
                {
                    "pod": one.pod,
                    "uid": one.uid,
                    "url": one.url,
                    "role": one.role,
                    "state": one.state,
                    "reason": one.why,
                    "listed": one.listed,
                    "running": one.running if one.listed else self._loads.get(one.url),
                }
                for one in self._leaders
            ],
        }
        return True, json.dumps(body)


async def run(settings: SidecarSettings) -> None:
    """Run until the router beside us is gone and we were told to stop; raises PortTaken."""
    async with aiohttp.ClientSession(timeout=TIMEOUT, headers={"User-Agent": "ome-registry"}) as session:
        registry = Registry(settings, session, wall=time.time)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, registry.stop)
        routes = {"/healthz": registry.alive, "/metrics": registry.metrics, "/workers": registry.workers}
        guarded = ("/workers",)  # probes and scrapes have no key, and learn no names
        runner, port = await health.serve(settings.address, settings.port, routes, settings.key, guarded)
        logger.info("beside %s, pods with %s; answers on port %d", settings.router, settings.selector, port)
        try:
            await registry.run()
        finally:
            await runner.cleanup()
