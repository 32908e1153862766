"""The pass over kinds of which we keep nothing but a status: look up, decide, write what differs, plan the next pass."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from ome_operator.cache.event_handler import Cluster
from ome_operator.cache.resources import Kept
from ome_operator.controllers import status_writer
from ome_operator.core.observed.objects import Ref
from ome_operator.kube.client import Client
from ome_operator.kube.errors import KubeError
from ome_operator.machinery.workqueue import WorkQueue

logger = logging.getLogger(__name__)

Status = dict[str, Any]


class Spoken(ABC):
    """Passes over such kinds; `resync` is in seconds."""

    def __init__(self, cluster: Cluster, client: Client, queue: WorkQueue[Ref], resync: float) -> None:
        self._cluster, self._client, self._queue, self._resync = cluster, client, queue, resync
        self._last: dict[Ref, status_writer.Written] = {}
        self._bugs: dict[Ref, str] = {}
        """Of which the log has a traceback already."""

    @abstractmethod
    async def look(self, kept: Kept) -> float:
        """Do what has to be done and `write` the status; seconds until the next look. A KubeError asks for a retry."""

    @abstractmethod
    def failed(self, kept: Kept, why: str) -> Status:
        """The status of an object over which a pass failed: InternalError, beside what was known."""

    def forget(self, ref: Ref) -> None:
        """It is gone."""
        self._last.pop(ref, None)
        self._bugs.pop(ref, None)
        self._queue.forget(ref)

    async def handle(self, ref: Ref) -> None:
        """One pass."""
        kept = self._cluster.find(ref)
        if kept is None or kept.deleting:
            self.forget(ref)
            return
        try:
            again = await self.look(kept)
        except KubeError as error:
            delay = self._queue.retry(ref, at_least=error.retry_after)
            logger.info("%s %s/%s: again in %.0f s: %s", ref.kind, ref.namespace, ref.name, delay, error)
            return
        except Exception as error:
            await self._broke(kept, error)
            return
        self._bugs.pop(ref, None)
        self._queue.succeeded(ref)
        self._queue.add(ref, again)

    async def _broke(self, kept: Kept, error: Exception) -> None:
        """Say that a pass failed for a reason that only a person can end, and try again later."""
        ref, new = kept.ref, self._bugs.get(kept.ref) != repr(error)
        self._bugs[ref] = repr(error)
        delay = self._queue.retry(ref)
        said = "a pass over %s %s/%s failed, again in %.0f s: %r"
        logger.error(said, ref.kind, ref.namespace, ref.name, delay, error, exc_info=error if new else None)
        try:
            await self.write(kept, self.failed(kept, status_writer.bug(error)))
        except KubeError as refused:
            logger.info("cannot write the status of %s %s/%s: %s", ref.kind, ref.namespace, ref.name, refused)

    def differs(self, kept: Kept, status: Mapping[str, Any]) -> bool:
        """Whether this status has to be written."""
        return status_writer.differs(kept, status, self._last.get(kept.ref, ("", "")))

    async def write(self, kept: Kept, status: Mapping[str, Any]) -> bool:
        """Write it where it differs; whether it was written."""
        if not self.differs(kept, status):
            return False
        written = await status_writer.write(self._client, self._cluster, kept, status)
        if written is not None:
            self._last[kept.ref] = written
        return written is not None
