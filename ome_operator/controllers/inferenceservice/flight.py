"""The flight recorder of this process: it records reconciliations in memory, and writes them to a file
(docs/recorder.md).
"""

import asyncio
import gzip
import json
import logging
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path

from ome_operator import __version__
from ome_operator.api import InferenceService
from ome_operator.core.observed.objects import Deps, Observed, Ref
from ome_operator.core.reconcile.plan import Plan
from ome_operator.recorder import recording
from ome_operator.recorder.passes import Pass, PassRecorder, SharedNodes
from ome_operator.recorder.store import Recorder

logger = logging.getLogger(__name__)

FILES = 4
"""Number of files that are kept on the disk; the oldest is deleted."""
LARGEST = 12 * 2**20
"""When a file has reached this size in bytes, no further service is written to it. `FILES` files of this size fit into
the chart's volume (64 MiB)."""


class Flight:
    """Records reconciliations. An error here is logged, and must not end a reconciliation."""

    def __init__(self, most: int, wall: Callable[[], datetime], folder: Path | None = None) -> None:
        self._kept, self._around, self._wall = Recorder(most), SharedNodes(), wall
        self._folder = folder or Path(tempfile.gettempdir())
        self._files = deque[Path]()
        self._writes = set[asyncio.Task[Path | None]]()

    @property
    def bytes(self) -> int:
        """Size of the kept recordings."""
        return self._kept.bytes

    def listen(self, service: InferenceService, deps: Deps, observed: Observed) -> PassRecorder | None:
        """Return a recorder for a reconciliation that begins; None if no recordings are kept."""
        return PassRecorder(service, deps, observed) if self._kept.most else None

    def ended(self, ref: Ref, ear: PassRecorder | None, now: datetime, outcome: Plan | Exception) -> None:
        """Store a reconciliation that ended with a plan or an error."""
        if ear is None:
            return
        try:
            self._kept.add(ref, ear.finish(now, outcome, self._around))
        except Exception:
            logger.exception("cannot record a reconciliation of %s/%s", ref.namespace, ref.name)

    def forget(self, ref: Ref) -> None:
        """Forget a service that is gone."""
        self._kept.forget(ref)

    def write(self, why: str, only: Ref | None = None) -> "asyncio.Task[Path | None]":
        """Start writing a file with the recordings of the service `only`, or of all services. The result of the task is
        the path of the file, or None after an error, which is logged.
        """
        refs = self._kept.services()[::-1] if only is None else (only,)
        task = asyncio.create_task(self._written(why, {ref: self._kept.of(ref) for ref in refs}), name="recording")
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return task

    async def _written(self, why: str, kept: Mapping[Ref, tuple[Pass, ...]]) -> Path | None:
        now = self._wall()
        path = self._folder / f"ome-recording-{now.strftime('%Y%m%dT%H%M%S%fZ')}.json.gz"
        try:
            # in a thread, because a thousand services take minutes
            count = await asyncio.to_thread(_file, path, kept, recording.head(__version__, why, now))
        except Exception as error:
            logger.error("cannot write the recording %s: %s", path, error)
            return None
        logger.warning("recording of %d of %d services, for %s: %s", count, len(kept), why, path)
        self._files.append(path)
        while len(self._files) > FILES:
            self._files.popleft().unlink(missing_ok=True)
        return path


def _file(path: Path, kept: Mapping[Ref, Iterable[Pass]], head: Mapping[str, object]) -> int:
    """Write a file that only this user can read. Return the number of services in the file."""
    where = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    count = 0
    with os.fdopen(where, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6, mtime=0) as file:
        file.write(json.dumps(dict(head))[:-1].encode() + b', "services": {')
        for ref, passes in kept.items():
            if raw.tell() > LARGEST:
                break
            entry = json.dumps({f"{ref.namespace}/{ref.name}": recording.service_json(list(passes))})[1:-1]
            file.write((",\n" if count else "\n").encode() + entry.encode())
            count += 1
        file.write(b"}}\n")
    return count
