"""Base class of reconcilers whose main output is the status of an object.

A reconciliation reads the object from the cache, computes the status, writes the status if it differs from the stored
status, and schedules the next reconciliation.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ome_operator.api import InferenceService
from ome_operator.cache.event_handler import EventHandler
from ome_operator.cache.reference_index import Refs
from ome_operator.cache.resources import Resource
from ome_operator.controllers import status_writer
from ome_operator.core.catalog import status as catalog_status
from ome_operator.core.observed.objects import Deps, Observed, Ref
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.reconcile.sync import refuse_spec, sync
from ome_operator.core.resolve.inputs import object_refs, runtime_refs
from ome_operator.kube.client import Client
from ome_operator.kube.errors import KubeError
from ome_operator.machinery.workqueue import WorkQueue
from ome_operator.util.wall_clock import WallClock

logger = logging.getLogger(__name__)

Status = dict[str, Any]
Sync = Callable[[InferenceService, Deps, Observed, datetime], Plan]
Refuse = Callable[..., Plan]
"""Function that returns the plan for an object that cannot be parsed or handled. Its arguments are the current status, the
generation, the reason, the message, the time, and whether the object is a service that serves (`serves`)."""


@dataclass(frozen=True)
class Core:
    """The pure functions that reconcilers call. Tests replace individual functions."""

    sync: Sync = sync
    refuse: Refuse = refuse_spec
    models_of: Refs = object_refs
    runtimes_of: Refs = runtime_refs
    model_status: Callable[..., Status] = catalog_status.model_status
    runtime_status: Callable[..., Status] = catalog_status.runtime_status
    accelerator_status: Callable[..., Status] = catalog_status.accelerator_status


CORE = Core()


class StatusReconciler(ABC):
    """Reconciles kinds whose main output is their status. `resync` is the number of seconds after which an object is
    reconciled again.
    """

    def __init__(self, handler: EventHandler, client: Client, queue: WorkQueue[Ref], resync: float, wall: WallClock) -> None:
        self._handler, self._cluster = handler, handler.cache
        self._client, self._queue, self._resync, self._wall = client, queue, resync, wall
        self._last: dict[Ref, status_writer.Written] = {}
        self._bugs: dict[Ref, str] = {}
        """Maps an object to the last unexpected error of its reconciliation. The traceback of the same error is logged
        only once."""

    @abstractmethod
    async def reconcile_resource(self, resource: Resource) -> float:
        """Reconcile an object, and call `write` with its status. Return the seconds until the next reconciliation. If this
        method raises a KubeError, the reconciliation is repeated after a backoff.
        """

    @abstractmethod
    def failed_status(self, resource: Resource, why: str) -> Status:
        """Return the status of an object whose reconciliation failed: the reason is InternalError, the message is `why`,
        and the other fields keep their stored values.
        """

    def forget(self, ref: Ref) -> None:
        """Discard everything that is remembered about a deleted object."""
        self._last.pop(ref, None)
        self._bugs.pop(ref, None)
        self._queue.forget(ref)

    async def reconcile(self, ref: Ref) -> bool:
        """Reconcile the object with this key. Return False only after an unexpected error. After a KubeError, which counts
        as expected, the reconciliation is repeated, and the result is True.
        """
        resource = self._cluster.find_resource(ref)
        if resource is None or resource.deleting:
            self.forget(ref)
            return True
        try:
            again = await self.reconcile_resource(resource)
        except KubeError as error:
            delay = self._queue.retry(ref, at_least=error.retry_after)
            logger.info(
                "the reconciliation of %s %s/%s is tried again in %.0f s: %s",
                ref.kind,
                ref.namespace,
                ref.name,
                delay,
                error,
            )
            return True
        except Exception as error:
            await self._report_bug(resource, error)
            return False
        self._bugs.pop(ref, None)
        self._queue.reset_backoff(ref)
        self._queue.add(ref, again)
        return True

    async def _report_bug(self, resource: Resource, error: Exception) -> None:
        """Report an unexpected error in the log and the status, and try again later."""
        ref, new = resource.ref, self._bugs.get(resource.ref) != repr(error)
        self._bugs[ref] = repr(error)
        delay = self._queue.retry(ref)
        message = "the reconciliation of %s %s/%s failed and is tried again in %.0f s: %r"
        logger.error(message, ref.kind, ref.namespace, ref.name, delay, error, exc_info=error if new else None)
        try:
            await self.write(resource, self.failed_status(resource, status_writer.bug_message(error)))
        except KubeError as refused:
            logger.info("cannot write the status of %s %s/%s: %s", ref.kind, ref.namespace, ref.name, refused)

    def status_differs(self, resource: Resource, status: Mapping[str, Any]) -> bool:
        """Return whether a status differs from the stored status and has to be written."""
        return status_writer.status_differs(resource, status, self._last.get(resource.ref, ("", "")))

    async def write(self, resource: Resource, status: Mapping[str, Any]) -> bool:
        """Write a status that differs from the stored status. Return whether the status was written."""
        if not self.status_differs(resource, status):
            return False
        written = await status_writer.write(self._client, self._handler, resource, status)
        if written is not None:
            self._last[resource.ref] = written
        return written is not None
