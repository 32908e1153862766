"""The composition root: the only place where the pure side and the shell are wired together, and the process's life.

Standby (alive, ready, no watches) -> leader -> all kinds listed -> passes. It ends with 0 when it was asked to stop, and
with 1 when it lost the Lease or cannot watch any more: starting again costs lists only.
"""

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any

from ome_operator import keys
from ome_operator.cache.cluster_cache import KINDS
from ome_operator.cache.resources import SHORT
from ome_operator.controllers.base import CORE, Core, WallClock
from ome_operator.controllers.manager import Manager, watched
from ome_operator.kube.client import Client
from ome_operator.kube.connection import Connection
from ome_operator.kube.errors import KubeError
from ome_operator.kube.leader_election import Election, ElectionSettings, Lost
from ome_operator.kube.resources import RESOURCES, SHORT_API
from ome_operator.machinery import health
from ome_operator.machinery.metrics import Metrics
from ome_operator.settings import Settings
from ome_operator.watch.watcher import Watcher

logger = logging.getLogger(__name__)


def now() -> datetime:
    """The wall clock of the process, in UTC: the only place where it is read for passes and the Lease."""
    return datetime.now(UTC)


class Operator:
    """One process."""

    def __init__(self, settings: Settings, core: Core = CORE, wall: WallClock = now) -> None:
        self._settings, self._core, self._wall = settings, core, wall
        self._metrics = Metrics("ome")
        self._stop = asyncio.Event()
        self._state = "starting"
        self._dead = ""
        self._ready = True
        self.ports: tuple[int, int] = (0, 0)
        """Of health and metrics, once they listen."""

    async def run(self) -> int:
        """Until it is stopped; the exit code."""
        settings = self._settings
        self._catch_signals()
        connection = await Connection.open(settings.kubeconfig, settings.context)
        async with contextlib.AsyncExitStack() as stack:
            await self._serve(stack)
            # Its own connection: a renewal waits behind no other request.
            election = None
            if settings.leader_election:
                election = Election(self._client(stack, connection, 1), _election(settings), self._wall)
            client = self._client(stack, connection, settings.connections, election)
            self._state, self._ready = "waiting for CRDs", False
            if not await self._unless_stopped(_kinds_served(client)):
                return 0
            if election is not None:
                self._state, self._ready = "standby", True
                if not await self._unless_stopped(election.acquire()):
                    return 0
            self._metrics.leader.set(1)
            self._state, self._ready = "listing", False
            code = await self._lead(connection, client, election)
            if election is not None and code == 0:
                await election.release()
            self._metrics.leader.set(0)
            return code

    def _client(
        self, stack: contextlib.AsyncExitStack, connection: Connection, connections: int, election: Election | None = None
    ) -> Client:
        """A client that is closed with the stack, and writes only while we lead where there is an election."""
        made = Client(
            connection,
            connections=connections,
            timeout=self._settings.request_timeout,
            count=self._metrics.request,
            may_write=election.leads if election is not None else None,
        )
        stack.push_async_callback(made.close)
        return made

    async def _lead(self, connection: Connection, client: Client, election: Election | None) -> int:
        """Everything that only the leader does."""
        session = connection.session(limit=0, agent=keys.MANAGER)
        try:
            kinds = (*KINDS, *await _short_kinds(client))
            leader = Manager(self._settings, self._core, client, self._metrics, self._wall, kinds)
            watcher = Watcher(
                watched(kinds),
                leader,
                session=session,
                server=connection.server,
                server_timeout=self._settings.watch_server_timeout,
            )
            tasks: set[asyncio.Task[Any]] = {asyncio.create_task(self._stop.wait(), name="stop")}
            if election is not None:
                tasks.add(asyncio.create_task(election.hold(), name="lease"))
            tasks.add(asyncio.create_task(watcher.run(), name="watch"))
            tasks.add(asyncio.create_task(self._work(leader, watcher), name="work"))
            done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self._state = "stopping"
            code = self._verdict(done)
            await leader.stop(self._settings.stop_grace if code == 0 else 0.0)
            for task in pending:
                task.cancel()
            await asyncio.wait(pending, timeout=5.0)
            return code
        finally:
            await session.close()

    async def _work(self, leader: "Manager", watcher: Watcher) -> None:
        await watcher.complete.wait()  # half a picture would prune and recover
        leader.watch_metrics(watcher)
        self._state, self._ready = "leading", True
        gc.collect()
        gc.freeze()  # what was listed lives long: the collector need not walk it again and again
        gc.set_threshold(50_000, 20, 20)  # bodies of events die young and without cycles; the default looks every 700
        await leader.run()

    def _verdict(self, done: set[asyncio.Task[Any]]) -> int:
        """0 only when nothing but the wish to stop ended."""
        for task in done:
            if task.get_name() == "stop":
                continue
            error = None if task.cancelled() else task.exception()
            self._dead = f"{task.get_name()}: {error or 'ended'}"
            # A lost Lease is an event of life; anything else deserves its traceback.
            logger.critical("stopping: %s", self._dead, exc_info=None if isinstance(error, Lost) else error)
        return 1 if self._dead else 0

    async def _serve(self, stack: contextlib.AsyncExitStack) -> None:
        settings = self._settings
        routes = {
            "/healthz": lambda: (not self._dead, self._dead or "ok"),
            "/readyz": lambda: (self._ready and not self._dead, self._state),
        }
        probes, health_port = await health.serve(settings.address, settings.health_port, routes)
        stack.push_async_callback(probes.cleanup)
        shown = {"/metrics": lambda: (True, self._metrics.render().decode())}
        metrics, metrics_port = await health.serve(settings.address, settings.metrics_port, shown)
        stack.push_async_callback(metrics.cleanup)
        self.ports = health_port, metrics_port
        logger.info("health on port %d, metrics on port %d", *self.ports)

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, self._stop.set)

    async def _unless_stopped(self, waiting: Coroutine[Any, Any, None]) -> bool:
        """Wait for something; False when we are to stop first."""
        task, stop = asyncio.create_task(waiting), asyncio.create_task(self._stop.wait())
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if self._stop.is_set() and not task.done():
            task.cancel()
            return False
        await task
        return True


async def run(settings: Settings) -> int:
    """Run the operator; the exit code."""
    return await Operator(settings, wall=now).run()


def _election(settings: Settings) -> ElectionSettings:
    return ElectionSettings(
        settings.lease_namespace,
        settings.lease_name,
        settings.identity,
        settings.lease_duration,
        settings.lease_renew,
        settings.lease_retry,
    )


async def _short_kinds(client: Client) -> tuple[str, ...]:
    """The kinds of sglang.ai that this cluster has; CRDs that come later are found by the next process."""
    served = await client.served(SHORT_API)
    return tuple(kind for kind in SHORT if RESOURCES[kind].plural in served)


async def _kinds_served(client: Client) -> None:
    """Wait for our CRDs: a kind that is not served cannot be watched."""
    wanted = {RESOURCES[kind].plural for kind in KINDS if RESOURCES[kind].api_version == keys.API_VERSION}
    said: frozenset[str] = frozenset()
    while True:
        try:
            missing = frozenset(wanted - await client.served(keys.API_VERSION))
        except KubeError as error:
            logger.warning("cannot ask which kinds are served: %s", error)
        else:
            if not missing:
                return
            if missing != said:
                logger.warning("waiting for CRDs of %s: %s (install the chart ome-crd)", keys.GROUP, sorted(missing))
            said = missing
        await asyncio.sleep(2.0)
