"""The parts that exist only while this process leads: the manager, its watches, and the tasks around them."""

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

from ome_operator.controllers import former_exposure
from ome_operator.controllers.base import Core
from ome_operator.controllers.conflicting_operators import ConflictingOperators
from ome_operator.controllers.manager import Manager, scope_of
from ome_operator.controllers.policies import Policies
from ome_operator.controllers.watched_kinds import WRITTEN, watches_of
from ome_operator.core.freeze.hold import freeze_text
from ome_operator.kube.client import Client
from ome_operator.kube.freeze_switch import FreezeSwitch
from ome_operator.kube.listing import why_unwatchable
from ome_operator.machinery import garbage_collection
from ome_operator.machinery.life import LEADING, ProcessLife
from ome_operator.machinery.metrics import Metrics
from ome_operator.settings import Settings
from ome_operator.util.wall_clock import WallClock
from ome_operator.watch.coverage import Coverage, WatchSettings
from ome_operator.watch.sink import WatchedKind


class Leader:
    """The tasks that watch, reconcile and write, from `begin` until `stop`. `kinds` are the kinds that the cluster
    serves.
    """

    def __init__(
        self,
        settings: Settings,
        core: Core,
        client: Client,
        watch_settings: WatchSettings,
        metrics: Metrics,
        wall: WallClock,
        kinds: Sequence[str],
        life: ProcessLife,
    ) -> None:
        self._settings, self._client, self._life = settings, client, life
        self._kinds = kinds = scope_of(settings).kinds(kinds)
        self._manager = manager = Manager(settings, core, client, metrics, wall, kinds)
        self.coverage = Coverage(
            settings.watch_namespaces,
            lambda place: watches_of(manager.scope.in_place(kinds, place), place),
            WRITTEN,
            manager,
            partial(why_unwatchable, client),
            watch_settings,
        )
        self._freeze = FreezeSwitch(
            client,
            settings.lease_namespace,
            settings.own_name,
            read_freeze=freeze_text,
            changed=manager.freeze,
            interval=settings.freeze_interval,
        )
        home = settings.lease_namespace, settings.own_name
        exposed = settings.policy.exposure.kind
        self._policies = Policies(client, manager.scope, *home, settings.audit_interval, manager.pod_dry_runs, exposed)
        self._policies.watch_metrics(metrics)
        self._conflicts = ConflictingOperators(
            client, manager.scope, home, lambda name: bool(self.coverage.watched_namespaces[name]), wall
        )
        self._conflicts.watch_metrics(metrics)
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, *more: tuple[str, Coroutine[Any, Any, None]]) -> Sequence[WatchedKind]:
        """Start the leader's tasks and the tasks `more`, each given as (name, coroutine). The end of any of these tasks
        ends the process. Return the kinds that kopf has to watch.
        """
        garbage_collection.collect_rarely()
        tasks = (
            ("freeze", self._freeze.run()),
            ("watch", self.coverage.run()),
            ("work", self._work()),
            ("policies", self._policies.run()),
            ("conflicting operators", self._find_conflicting_operators()),
            *more,
        )
        for name, work in tasks:
            task = asyncio.create_task(work, name=name)
            self._tasks.add(task)
            task.add_done_callback(self._life.stop_after_task)
        return watches_of(kind for kind in self._kinds if kind in WRITTEN)

    async def stop(self, grace: float) -> None:
        """Wait for at most `grace` seconds until running reconciliations have ended, then end all tasks except kopf's."""
        await self._manager.stop(grace)
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks, timeout=5.0)

    def record(self, reason: str) -> None:
        """Begin to write the reconciliations that the flight recorder has kept of all services to a file. The log states the
        name of the file. `reason` is the reason for writing it.
        """
        self._manager.record(reason)

    async def _work(self) -> None:
        await (
            self.coverage.complete.wait()
        )  # an incomplete cache would make reconciliations delete and recycle pods that are in use
        await self._freeze.known.wait()
        self._manager.watch_metrics(self.coverage)
        self._life.enter(LEADING, ready=True)
        garbage_collection.freeze_existing()
        former = asyncio.create_task(self._remove_former_exposure(), name="former")
        try:
            await self._manager.run()
        finally:
            former.cancel()

    async def _find_conflicting_operators(self) -> None:
        await self.coverage.complete.wait()  # a claim is created only in watched namespaces
        await self._conflicts.run()

    async def _remove_former_exposure(self) -> None:
        """Remove the Ingresses or HTTPRoutes that an operator with another value of `exposure.kind` has created for
        services.
        """
        await former_exposure.remove(
            self._client,
            self._settings.policy.exposure.kind,
            places=self._settings.watch_namespaces or ("",),
            owns=self._manager.acts_on_service,
            held=lambda: self._manager.cluster.global_hold() is not None,
        )
