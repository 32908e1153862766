"""The composition root: the only place where the pure side and the shell are wired together, and the process's life.

Standby (alive, ready, no watches) -> leader -> all kinds listed -> passes. It ends with 0 when it was asked to stop, and
with 1 when it lost the Lease or cannot watch any more: starting again costs lists only.
"""

import asyncio
import contextlib
import importlib
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import aiohttp

from ome_operator import keys
from ome_operator.cache.cluster_cache import KINDS
from ome_operator.controllers import former_exposure, start
from ome_operator.controllers.base import CORE, Core
from ome_operator.controllers.conflicting_operators import Rivals
from ome_operator.controllers.manager import WRITTEN, Manager, scope_of, watched
from ome_operator.controllers.policies import Policies
from ome_operator.core.freeze.hold import frozen
from ome_operator.kube.client import Client
from ome_operator.kube.connection import Connection
from ome_operator.kube.errors import KubeError
from ome_operator.kube.freeze_switch import FreezeSwitch
from ome_operator.kube.leader_election import Election, ElectionSettings, Lost
from ome_operator.kube.lease_thread import LeaseThread
from ome_operator.kube.namespaces import can_watch
from ome_operator.machinery import collector, health, watchdog
from ome_operator.machinery.metrics import Metrics
from ome_operator.machinery.watchdog import Complaints, Stall
from ome_operator.settings import Settings
from ome_operator.util.wall_clock import WallClock, now
from ome_operator.watch.coverage import Coverage, How
from ome_operator.watch.sink import CannotWatch, Watched

logger = logging.getLogger(__name__)


class Operator:
    """One process, which kopf hosts: it waits in kopf's `startup`, and ends in kopf's `cleanup`."""

    def __init__(self, settings: Settings, core: Core = CORE, wall: WallClock = now) -> None:
        self._settings, self._core, self._wall = settings, core, wall
        self._metrics = Metrics()
        self._stop = asyncio.Event()
        self._state = "starting"
        self._dead = ""
        self._ready = True
        self._asked = True
        self._tasks: set[asyncio.Task[Any]] = set()
        self.ports: tuple[int, int] = (0, 0)
        """Of health and metrics, once they listen."""

    async def run(self) -> int:
        """Until it is stopped; the exit code."""
        settings = self._settings
        self._catch_signals()
        self._connection = connection = await Connection.open(settings.kubeconfig, settings.context)
        async with contextlib.AsyncExitStack() as stack:
            await self._serve(stack)
            await asyncio.to_thread(_load)
            loop, told = asyncio.get_running_loop(), Complaints(self._metrics.stalls.observe)
            dog, sleep = watchdog.begin(
                loop, stalled=told, dead=_end, lag=self._metrics.lags.observe, patience=settings.silence
            )
            stack.callback(sleep)
            self._lease: Election | None = None
            if settings.leader_election:
                self._holder = LeaseThread()
                stack.push_async_callback(self._holder.close)
                self._lease = await self._holder.run(self._candidate(lambda: dog.silent < settings.lease_patience))
            self._client = self._made(stack, settings.connections, self._lease, observe=settings.policy.observe)
            introduced = asyncio.create_task(start.introduce(self._made(stack, 1), settings), name="whoami")
            stack.callback(introduced.cancel)
            self._watches = connection.session(limit=0, agent=keys.MANAGER)
            stack.push_async_callback(self._watches.close)
            await self._operate()
            self._metrics.leader.set(0)
            logger.info("stopped")
            return 1 if self._dead else 0

    async def _candidate(self, works: Callable[[], bool]) -> Election:
        """Made where it lives, with a connection of its own: a renewal waits behind no other request, and behind no pass."""
        settings = self._settings
        connection = await Connection.open(settings.kubeconfig, settings.context)
        client = Client(connection, connections=1, timeout=settings.request_timeout, count=self._metrics.request)
        self._holder.stack.push_async_callback(client.close)
        return Election(client, _election(settings), self._wall, works=works)

    def _made(
        self, stack: contextlib.AsyncExitStack, connections: int, election: Election | None = None, *, observe: bool = False
    ) -> Client:
        """A client that is closed with the stack, and writes only while we lead where there is an election; `observe`: only
        statuses.
        """
        made = Client(
            self._connection,
            connections=connections,
            timeout=self._settings.request_timeout,
            count=self._metrics.request,
            may_write=election.leads if election is not None else None,
            only_statuses=observe,
        )
        stack.push_async_callback(made.close)
        return made

    async def _operate(self) -> None:
        try:
            # Here, so that another kopf than the one that we know is a sentence, too.
            from ome_operator.watch import handlers

            settings = self._settings
            await handlers.operate(self, self._stop, settings.watch_server_timeout, settings.watch_namespaces)
            if not self._asked:
                self._die("kopf", None)
        except Exception as error:
            self._die("kopf", error)
        finally:
            await self.stop()  # kopf calls no `cleanup` where `startup` was cut off

    # --- what kopf hosts --------------------------------------------------------------------------------------------

    async def start(self) -> Sequence[Watched]:
        """Wait for CRDs and the Lease, and begin what only the leader does; the kinds that people write."""
        try:
            await asyncio.sleep(0)  # kopf sets handlers of signals meanwhile, which bear no second signal and stop 5 s later
            self._catch_signals()
            self._state, self._ready = "waiting for CRDs", False
            await start.kinds_served(self._client)
            if self._lease is not None:
                self._state, self._ready = "standby", True
                await self._holder.run(self._lease.acquire())
            self._metrics.leader.set(1)
            self._state, self._ready = "listing", False
            exposed = await start.exposed(self._client, self._settings.policy.exposure.kind)
            policies = ("NetworkPolicy",) if self._settings.policy.policies_from else ()
            return self._lead(await start.short_kinds(self._client), (*exposed, *policies))
        except Exception as error:
            self._die("start", error)
            self._stop.set()
            return ()

    def _lead(self, short: Sequence[str], exposed: Sequence[str]) -> Sequence[Watched]:
        collector.patient()
        settings = self._settings
        kinds = scope_of(settings).kinds((*KINDS, *short, *exposed))
        self._manager = manager = Manager(settings, self._core, self._client, self._metrics, self._wall, kinds)
        self.told = Coverage(
            settings.watch_namespaces,
            lambda place: watched(manager.scope.in_place(kinds, place), place),
            WRITTEN,
            manager,
            partial(can_watch, self._client),
            How(self._watches, self.server, settings.watch_server_timeout, settings.audit_interval),
        )
        self._freeze = FreezeSwitch(
            self._client,
            settings.lease_namespace,
            settings.own_name,
            said=frozen,
            changed=manager.freeze,
            interval=settings.freeze_interval,
        )
        self._begin("freeze", self._freeze.run())
        self._begin("watch", self.told.run())
        self._begin("work", self._work(manager))
        policies = Policies(
            self._client, manager.scope, settings.lease_namespace, settings.own_name, settings.audit_interval
        )
        policies.watch_metrics(self._metrics)
        self._begin("policies", policies.run())
        home = settings.lease_namespace, settings.own_name
        rivals = Rivals(self._client, manager.scope, home, lambda name: bool(self.told.watched[name]), self._wall)
        rivals.watch_metrics(self._metrics)
        self._begin("rivals", self._look_around(rivals))
        if self._lease is not None:
            self._begin("lease", self._holder.hold(self._lease, settings.lease_renew))
        return watched(kind for kind in kinds if kind in WRITTEN)

    def _begin(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Begin what must not end before we are to stop."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._state != "stopping" and not task.cancelled():
            self._die(task.get_name(), task.exception())
            self._stop.set()

    async def stop(self) -> None:
        """Let passes end that run, end what `start` began, and hand the Lease over: kopf may still wait for connections
        of a scraper.
        """
        if self._tasks:
            self._state = "stopping"
            self._asked = self._stop.is_set()
            await self._manager.stop(self._settings.stop_grace if self._asked and not self._dead else 0.0)
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=5.0)
            if self._lease is not None and not self._dead:
                await self._holder.run(self._lease.release())
            await self.told.end()
            self._tasks = set()

    @property
    def server(self) -> str:
        """Address of the API server."""
        return self._connection.server

    def session(self, trace: aiohttp.TraceConfig, middleware: aiohttp.ClientMiddlewareType) -> aiohttp.ClientSession:
        """A new session for kopf, which closes it."""
        agent = f"{keys.MANAGER} (kopf)"
        return self._connection.session(limit=0, agent=agent, traces=[trace], middlewares=[middleware])

    async def _remove_former(self, manager: Manager) -> None:
        """What leads to our services in a kind that is not made any more."""
        await former_exposure.remove(
            self._client,
            self._settings.policy.exposure.kind,
            places=self._settings.watch_namespaces or ("",),
            owns=manager.acts_on_service,
            held=lambda: manager.cluster.held() is not None,
        )

    # --- the process ------------------------------------------------------------------------------------------------

    async def _look_around(self, rivals: Rivals) -> None:
        await self.told.complete.wait()  # a claim is left where something is watched
        await rivals.run()

    async def _work(self, manager: Manager) -> None:
        await self.told.complete.wait()  # half a picture would prune and recover
        await self._freeze.known.wait()
        manager.watch_metrics(self.told)
        self._state, self._ready = "leading", True
        collector.listed()
        former = asyncio.create_task(self._remove_former(manager), name="former")
        try:
            await manager.run()
        finally:
            former.cancel()

    def _die(self, what: str, error: BaseException | None) -> None:
        """Something ended that must not end; the first such thing is the reason."""
        if self._dead:
            return
        because = f" ({error.__cause__})" if error is not None and error.__cause__ is not None else ""
        self._dead = f"{what}: {error or 'ended'}{because}"
        known = what == "kopf" or isinstance(error, Lost | CannotWatch | KubeError)
        # What is known is an event of life; anything else deserves its traceback.
        logger.critical("stopping: %s", self._dead, exc_info=None if known else error)

    async def _serve(self, stack: contextlib.AsyncExitStack) -> None:
        settings = self._settings
        routes = {
            "/healthz": lambda: (not self._dead, self._dead or "ok"),
            "/readyz": lambda: (self._ready and not self._dead, self._state),
        }
        probes, health_port = await health.serve(settings.address, settings.health_port, routes)
        stack.push_async_callback(probes.cleanup)

        async def shown() -> health.Answer:
            return True, await self._metrics.page()

        metrics, metrics_port = await health.serve(settings.address, settings.metrics_port, {"/metrics": shown})
        stack.push_async_callback(metrics.cleanup)
        self.ports = health_port, metrics_port
        logger.info("health on port %d, metrics on port %d", *self.ports)

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        stop, record = self._asked_to_stop, self._asked_to_record
        for number, asked in ((signal.SIGTERM, stop), (signal.SIGINT, stop), (signal.SIGUSR1, record)):
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, asked, number)

    def _asked_to_record(self, number: signal.Signals) -> None:
        if self._state == "leading":
            self._manager.record(number.name)
        else:
            logger.warning("there is no recording: this process is %s, and has made no pass", self._state)

    def _asked_to_stop(self, number: signal.Signals) -> None:
        if not self._stop.is_set():
            logger.info("stopping: %s", number.name)
        self._stop.set()


def _load() -> None:
    """Import kopf in a thread: that takes half a second of CPU, and on a busy machine the event loop would stand still for
    more than a second. What fails here fails again where it becomes a sentence.
    """
    with contextlib.suppress(Exception):
        importlib.import_module("ome_operator.watch.handlers")


def _end(stall: Stall) -> None:
    """The event loop does not answer any more: nobody else could end the process, and its Lease has run out."""
    logger.critical("stopping: the event loop does not answer: %s", stall)
    os._exit(1)


async def run(settings: Settings) -> int:
    """Run the operator; the exit code."""
    return await Operator(settings, wall=now).run()


def _election(settings: Settings) -> ElectionSettings:
    return ElectionSettings(
        settings.lease_namespace,
        settings.own_name,
        settings.identity,
        settings.lease_duration,
        settings.lease_renew,
        settings.lease_retry,
        # Who reads nothing cluster-wide meets others in its namespaces alone, where it leaves claims.
        {keys.LEASE_CLASS: settings.operator_class if settings.policy.sees_cluster else None},
    )
