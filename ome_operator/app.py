"""The process of the operator: its signals, probes, watchdog and Lease, and the exit code.

The process starts as a standby, which is alive and ready but watches nothing. When it becomes the leader, it first lists
all kinds, and then reconciles. The exit code is 0 if the process was asked to stop, and 1 if the process lost the Lease or
cannot watch any more. A restart is cheap: the new process only lists all objects again.
"""

import asyncio
import contextlib
import importlib
import logging
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import aiohttp

from ome_operator import keys
from ome_operator.cache.cluster_cache import KINDS
from ome_operator.controllers import start
from ome_operator.controllers.base import CORE, Core
from ome_operator.kube.client import Client
from ome_operator.kube.connection import Connection
from ome_operator.kube.errors import KubeError
from ome_operator.kube.leader_election import Election, ElectionSettings, LeadershipLost
from ome_operator.kube.lease_thread import LeaseThread
from ome_operator.leader import Leader
from ome_operator.machinery import health, watchdog
from ome_operator.machinery.life import LEADING, STOPPING, ProcessLife
from ome_operator.machinery.metrics import Metrics
from ome_operator.machinery.watchdog import Stall, StallLog
from ome_operator.settings import Settings
from ome_operator.util.wall_clock import WallClock, now
from ome_operator.watch.coverage import Coverage, WatchSettings
from ome_operator.watch.sink import CannotWatch, WatchedKind

logger = logging.getLogger(__name__)


class Lease(NamedTuple):
    """The election for the Lease for which this process competes, and the thread of the election. All methods of the
    election except `is_leader` must be called in this thread.
    """

    thread: LeaseThread
    election: Election


class OperatorProcess:
    """The operator's process, created on its event loop. It waits for the Lease in kopf's `startup` handler, and ends the
    leader's tasks in kopf's `cleanup` handler.
    """

    def __init__(self, settings: Settings, core: Core = CORE, wall: WallClock = now) -> None:
        self.settings, self.core, self.wall = settings, core, wall
        self.metrics = Metrics()
        self.life = ProcessLife(LeadershipLost, CannotWatch, KubeError)
        self.leader: asyncio.Future[Leader] = asyncio.get_running_loop().create_future()
        """A future that is done once this process leads. Its result is the leader."""

    async def run(self) -> int:
        """Run until the process has to stop. Return the exit code."""
        settings = self.settings
        self.catch_signals()
        connection = await Connection.open(settings.kubeconfig, settings.context)
        async with contextlib.AsyncExitStack() as stack:
            await self._serve(stack)
            await asyncio.to_thread(_load)
            loop, complaints = asyncio.get_running_loop(), StallLog(self.metrics.stalls.observe)
            dog, sleep = watchdog.begin(
                loop, stalled=complaints, dead=_end, lag=self.metrics.lags.observe, patience=settings.silence
            )
            stack.callback(sleep)
            lease = None
            if settings.leader_election:
                lease = await self._candidate(stack, lambda: dog.silent < settings.lease_patience)
            client = self._client(stack, connection, lease, settings.connections, observe=settings.policy.observe)
            reader = self._client(stack, connection, None, 1)
            introduced = asyncio.create_task(start.log_identity(reader, settings), name="whoami")
            stack.callback(introduced.cancel)
            watches = connection.session(limit=0, agent=keys.MANAGER)
            stack.push_async_callback(watches.close)
            await self._operate(KopfProcess(self, connection, client, watches, lease))
            self.metrics.leader.set(0)
            logger.info("stopped")
            return 1 if self.life.dead else 0

    async def _candidate(self, stack: contextlib.AsyncExitStack, works: Callable[[], bool]) -> Lease:
        """Return an election that runs in a separate thread until `stack` is closed. The Lease is renewed only while
        `works` returns True.

        The election's client has its own connection, so that a renewal does not wait for another request or a
        reconciliation.
        """
        settings, thread = self.settings, LeaseThread()
        stack.push_async_callback(thread.close)

        async def made() -> Election:
            connection = await Connection.open(settings.kubeconfig, settings.context)
            client = Client(connection, connections=1, timeout=settings.request_timeout, count=self.metrics.request)
            thread.stack.push_async_callback(client.close)
            return Election(client, _election(settings), self.wall, works=works)

        return Lease(thread, await thread.run(made()))

    def _client(
        self,
        stack: contextlib.AsyncExitStack,
        connection: Connection,
        lease: Lease | None,
        connections: int,
        *,
        observe: bool = False,
    ) -> Client:
        """Return a client that is closed with `stack`. With a `lease`, the client writes only while this process holds the
        lease. With `observe`, the client can write nothing but statuses.
        """
        client = Client(
            connection,
            connections=connections,
            timeout=self.settings.request_timeout,
            count=self.metrics.request,
            may_write=lease.election.is_leader if lease is not None else None,
            only_statuses=observe,
        )
        stack.push_async_callback(client.close)
        return client

    async def _operate(self, hosted: "KopfProcess") -> None:
        try:
            # Imported here, so that the code below reports an incompatible version of kopf in a sentence.
            from ome_operator.watch import handlers

            settings = self.settings
            await handlers.run_operator(hosted, self.life.stop, settings.watch_server_timeout, settings.watch_namespaces)
            if not hosted.asked:
                self.life.record_failure("kopf", None, expected=True)
        except Exception as error:
            self.life.record_failure("kopf", error, expected=True)
        finally:
            await hosted.stop()  # kopf does not call `cleanup` if `startup` was cut off

    async def _serve(self, stack: contextlib.AsyncExitStack) -> None:
        settings = self.settings
        routes = {"/healthz": self.life.health, "/readyz": self.life.readiness}
        probes, health_port = await health.serve(settings.address, settings.health_port, routes)
        stack.push_async_callback(probes.cleanup)

        async def shown() -> health.Answer:
            return True, await self.metrics.page()

        metrics, metrics_port = await health.serve(settings.address, settings.metrics_port, {"/metrics": shown})
        stack.push_async_callback(metrics.cleanup)
        logger.info("health on port %d, metrics on port %d", health_port, metrics_port)

    def catch_signals(self) -> None:
        """Stop the process at SIGTERM and SIGINT, and write a recording of the last reconciliations at SIGUSR1."""
        loop = asyncio.get_running_loop()
        stop, record = self._asked_to_stop, self._asked_to_record
        for number, asked in ((signal.SIGTERM, stop), (signal.SIGINT, stop), (signal.SIGUSR1, record)):
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, asked, number)

    def _asked_to_record(self, number: signal.Signals) -> None:
        if self.life.state == LEADING:
            self.leader.result().record(number.name)
        else:
            logger.warning("no recording was written: this process is %s and has reconciled nothing", self.life.state)

    def _asked_to_stop(self, number: signal.Signals) -> None:
        if not self.life.stop.is_set():
            logger.info("stopping: %s", number.name)
        self.life.stop.set()


class KopfProcess:
    """The part of the process that kopf hosts. It waits for the CRDs and the Lease, creates the leader, and ends it."""

    def __init__(
        self,
        process: OperatorProcess,
        connection: Connection,
        client: Client,
        watches: aiohttp.ClientSession,
        lease: Lease | None,
    ) -> None:
        self._process, self._life, self._settings = process, process.life, process.settings
        self._connection, self._client, self._watches, self._lease = connection, client, watches, lease
        self._stopped = False
        self.asked = True
        """Whether `stop` was called because somebody asked the process to stop."""

    async def start(self) -> Sequence[WatchedKind]:
        """Wait for the CRDs and the Lease, and start the tasks of the leader. Return the kinds of objects that users write,
        which kopf has to watch.
        """
        process, life = self._process, self._life
        try:
            await asyncio.sleep(0)  # kopf installs its signal handlers first; they delay a stop by 5 s
            process.catch_signals()
            life.enter("waiting for CRDs", ready=False)
            await start.kinds_served(self._client)
            if self._lease is not None:
                life.enter("standby", ready=True)
                await self._lease.thread.run(self._lease.election.acquire_lease())
            process.metrics.leader.set(1)
            life.enter("listing", ready=False)
            keda = await start.scaled_objects(self._client, self._settings)
            self._settings = replace(self._settings, policy=replace(self._settings.policy, keda=keda))
            return self._lead(await self._kinds())
        except Exception as error:
            life.record_failure("start", error)
            life.stop.set()
            return ()

    async def _kinds(self) -> tuple[str, ...]:
        """Return the kinds to watch that the cluster serves."""
        exposed = await start.exposed_kinds(self._client, self._settings.policy.exposure.kind)
        policies = ("NetworkPolicy",) if self._settings.policy.policies_from else ()
        scaled = ("ScaledObject",) if self._settings.policy.keda else ()
        return (*KINDS, *await start.short_kinds(self._client), *exposed, *policies, *scaled)

    def _lead(self, kinds: Sequence[str]) -> Sequence[WatchedKind]:
        process, settings, lease = self._process, self._settings, self._lease
        watches = WatchSettings(self._watches, self.server, settings.watch_server_timeout, settings.audit_interval)
        leader = Leader(settings, process.core, self._client, watches, process.metrics, process.wall, kinds, self._life)
        holding = () if lease is None else (("lease", lease.thread.hold_lease(lease.election, settings.lease_renew)),)
        watched = leader.begin(*holding)
        process.leader.set_result(leader)
        return watched

    async def stop(self) -> None:
        """Wait until running reconciliations have ended, end the tasks that `start` began, and release the Lease. The
        Lease is released here, because the end of kopf's own tasks may take longer.
        """
        if self._stopped or not self._process.leader.done():
            return
        leader, life = self._process.leader.result(), self._life
        life.enter(STOPPING, ready=life.ready)
        self.asked = life.stop.is_set()
        await leader.stop(self._settings.stop_grace if self.asked and not life.dead else 0.0)
        if self._lease is not None and not life.dead:
            await self._lease.thread.run(self._lease.election.release())
        await leader.coverage.end()
        self._stopped = True

    @property
    def coverage(self) -> Coverage:
        """The watches that receive kopf's events. They exist once `start` has returned."""
        return self._process.leader.result().coverage

    @property
    def server(self) -> str:
        """The address of the API server."""
        return self._connection.server

    def session(self, trace: aiohttp.TraceConfig, middleware: aiohttp.ClientMiddlewareType) -> aiohttp.ClientSession:
        """Return a new session of the HTTP client for kopf, which closes the session itself."""
        agent = f"{keys.MANAGER} (kopf)"
        return self._connection.session(limit=0, agent=agent, traces=[trace], middlewares=[middleware])


def _load() -> None:
    """Import kopf in a thread, because the import takes half a second of CPU time, and on a busy machine would block the
    event loop for more than a second.

    If the import fails here, it is repeated where kopf is used, and the error message is printed there.
    """
    with contextlib.suppress(Exception):
        importlib.import_module("ome_operator.watch.handlers")


def _end(stall: Stall) -> None:
    """End a process whose event loop does not respond. Only the thread of the watchdog can do this. The process no longer
    holds the Lease, because the Lease has expired meanwhile.
    """
    logger.critical("stopping: the event loop does not respond: %s", stall)
    os._exit(1)


async def run(settings: Settings) -> int:
    """Run the operator. Return the exit code."""
    return await OperatorProcess(settings, wall=now).run()


def _election(settings: Settings) -> ElectionSettings:
    return ElectionSettings(
        settings.lease_namespace,
        settings.own_name,
        settings.identity,
        settings.lease_duration,
        settings.lease_renew,
        settings.lease_retry,
        # An operator without cluster-wide rights finds others by their claims in its namespaces, not by this label.
        {keys.LEASE_CLASS: settings.operator_class if settings.policy.sees_cluster else None},
    )
