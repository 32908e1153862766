"""The flight recorder of this process: it listens to passes, and writes what it has kept to a file (docs/recorder.md)."""

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
"""Files that are left on the disk; the oldest goes."""
LARGEST = 12 * 2**20
"""Bytes after which a file gets no other service: FILES of them fit into the volume that the chart gives (64 MiB)."""


class Flight:
    """Nothing that goes wrong here may end a pass: it is logged, and the pass is not kept."""

    def __init__(self, most: int, wall: Callable[[], datetime], folder: Path | None = None) -> None:
        self._kept, self._around, self._wall = Recorder(most), SharedNodes(), wall
        self._folder = folder or Path(tempfile.gettempdir())
        self._files = deque[Path]()
        self._writes = set[asyncio.Task[Path | None]]()

    @property
    def bytes(self) -> int:
        """That are kept."""
        return self._kept.bytes

    def listen(self, service: InferenceService, deps: Deps, observed: Observed) -> PassRecorder | None:
        """What notes a pass that begins; None where nothing is kept."""
        return PassRecorder(service, deps, observed) if self._kept.most else None

    def ended(self, ref: Ref, ear: PassRecorder | None, now: datetime, outcome: Plan | Exception) -> None:
        """A pass ended in a plan or an error."""
        if ear is None:
            return
        try:
            self._kept.add(ref, ear.finish(now, outcome, self._around))
        except Exception:
            logger.exception("cannot keep a pass over %s/%s", ref.namespace, ref.name)

    def forget(self, ref: Ref) -> None:
        """A service is gone."""
        self._kept.forget(ref)

    def write(self, why: str, only: Ref | None = None) -> "asyncio.Task[Path | None]":
        """Begin to write a file, of a service or of all; where it is, or None where that failed, as the log says."""
        refs = self._kept.services()[::-1] if only is None else (only,)
        task = asyncio.create_task(self._written(why, {ref: self._kept.of(ref) for ref in refs}), name="recording")
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return task

    async def _written(self, why: str, kept: Mapping[Ref, tuple[Pass, ...]]) -> Path | None:
        now = self._wall()
        path = self._folder / f"ome-recording-{now.strftime('%Y%m%dT%H%M%S%fZ')}.json.gz"
        try:
            # In a thread: a thousand services take minutes, and passes go on.
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
    """Write a file that only we can read; how many services it has."""
    where = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    count = 0
    with os.fdopen(where, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6, mtime=0) as file:
        file.write(json.dumps(dict(head))[:-1].encode() + b', "services": {')
        for ref, passes in kept.items():
            if raw.tell() > LARGEST:
                break
            said = json.dumps({f"{ref.namespace}/{ref.name}": recording.service_json(list(passes))})[1:-1]
            file.write((",\n" if count else "\n").encode() + said.encode())
            count += 1
        file.write(b"}}\n")
    return count
