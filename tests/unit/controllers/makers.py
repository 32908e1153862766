"""Makers of the objects that the controllers under test depend on."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

from ome_operator import keys
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.event_handler import EventHandler
from ome_operator.cache.resources import SERVICE, parse_or_keep
from ome_operator.cache.scope import EVERYWHERE
from ome_operator.controllers.base import Core
from ome_operator.controllers.inferenceservice.execution import Execution, Result
from ome_operator.controllers.inferenceservice.executor import Executor
from ome_operator.controllers.inferenceservice.memory import ServiceMemory
from ome_operator.controllers.inferenceservice.reconciler import InferenceServiceReconciler
from ome_operator.controllers.inferenceservice.shared_state import SharedState
from ome_operator.controllers.pod_dry_runs import PodDryRuns
from ome_operator.core.observed.objects import Deps, Ref
from ome_operator.kube.client import Client
from ome_operator.machinery.workqueue import WorkQueue
from ome_operator.settings import Settings
from ome_operator.util.wall_clock import WallClock
from tests.support.fake_api import Call, FakeApi

OWNER = {"kind": SERVICE, "name": "svc", "uid": "u", "controller": True}
BODY = {"metadata": {"name": "svc", "namespace": "ns", "uid": "u", "resourceVersion": "5"}, "spec": {"engine": {}}}
"""A service."""
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def cluster(*seen: dict[str, Any], dirty: list[Ref] | None = None) -> EventHandler:
    """Return a cluster whose cache contains these objects. Keys of services to reconcile are added to `dirty`."""
    found = [] if dirty is None else dirty
    made = EventHandler(ClusterCache(Deps()), lambda ref, _: found.append(ref), lambda _: (), lambda _: ())
    for body in seen:
        made.handle_observed(body["kind"], body)
    return made


def services(
    handler: EventHandler,
    api: FakeApi,
    queue: WorkQueue[Ref],
    core: Core,
    *,
    settings: Settings | None = None,
    wall: WallClock = lambda: NOW,
    clock: Callable[[], float] = time.monotonic,
) -> InferenceServiceReconciler:
    """Return the controller of services, which has not yet reconciled any service."""
    settings, client = settings or Settings(), cast(Client, api)
    shared = SharedState.empty(handler.cache, client, queue, settings, clock=clock)
    return InferenceServiceReconciler(handler, client, queue, settings, wall, shared, core, clock)


def execution(memory: ServiceMemory | None = None, clock: Callable[[], float] = lambda: 0.0) -> Execution:
    """Return the execution of a plan for the service. It begins now."""
    return Execution(parse_or_keep(SERVICE, BODY, None), memory or ServiceMemory(), set(), Result(), clock)


def executor(api: FakeApi, handler: EventHandler) -> Executor:
    """Return the executor of plans."""
    return Executor(api, handler, 1.0, PodDryRuns(api, EVERYWHERE, keys.MANAGER))


def wall() -> datetime:
    """Return the time of a wall clock that stands still."""
    return NOW


def queue() -> WorkQueue[Ref]:
    """Return a queue that retries a failed key after one second, then after two, four and so on."""
    return WorkQueue(workers=1, first=1.0, last=9.0, jitter=lambda: 0.5)


def storing(body: dict[str, Any]) -> Callable[[Call], dict[str, Any]]:
    """Return a function that answers a request to apply a status: it returns this object with the new status."""
    metadata = {**body["metadata"], "resourceVersion": "9"}
    return lambda call: {**body, "metadata": metadata, "status": call.body["status"]}
