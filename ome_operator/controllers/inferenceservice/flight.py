"""The flight recorder of this process: it records reconciliations in memory, and writes them to a file
(docs/recorder.md).
"""

import asyncio
import json
import logging
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from ome_operator import __version__
from ome_operator.api import InferenceService
from ome_operator.core.observed.objects import Deps, Observed, Ref
from ome_operator.core.reconcile.plan import Plan
from ome_operator.recorder import recording, writer
from ome_operator.recorder.passes import Pass, PassRecorder, SharedNodes
from ome_operator.recorder.store import Recorder
from ome_operator.util.wording import error_text

logger = logging.getLogger(__name__)

FILES = 4
"""Number of files that are kept on the disk. The oldest file is deleted."""
WAITING = 8
"""Maximum number of files that are being written or wait to be written; they are written one after another. The limit
exists because a bug may affect thousands of services at once, and the writing processes must not use up the memory of the
operator's container."""
SECONDS = 900.0
"""Maximum duration of the process that writes a file."""


class Flight:
    """Records reconciliations. An error of the recording is only logged, and must not end a reconciliation."""

    def __init__(self, most: int, wall: Callable[[], datetime], folder: Path | None = None) -> None:
        self._kept, self._around, self._wall = Recorder(most), SharedNodes(), wall
        self._folder = folder or Path(tempfile.gettempdir())
        self._files = deque[Path]()
        self._writes = set[asyncio.Task[Path | None]]()
        self._writing = asyncio.Lock()

    @property
    def bytes(self) -> int:
        """Size of the kept recordings in bytes."""
        return self._kept.bytes

    def listen(self, service: InferenceService, deps: Deps, observed: Observed) -> PassRecorder | None:
        """Return a recorder for a reconciliation that begins; None if no recordings are kept."""
        return PassRecorder(service, deps, observed) if self._kept.most else None

    def record_outcome(self, ref: Ref, recorder: PassRecorder | None, now: datetime, outcome: Plan | Exception) -> None:
        """Store a reconciliation that ended with a plan or an error. `recorder` is the result of `listen`; if it is None,
        nothing is stored.
        """
        if recorder is None:
            return
        try:
            self._kept.add(ref, recorder.finish_pass(now, outcome, self._around))
        except Exception:
            logger.exception("cannot record a reconciliation of %s/%s", ref.namespace, ref.name)

    def forget(self, ref: Ref) -> None:
        """Discard the recordings of a deleted service."""
        self._kept.forget(ref)

    def write(self, reason: str, only: Ref | None = None) -> "asyncio.Task[Path | None]":
        """Begin to write a file with the recordings of the service `only`; None means all services. `reason` is the reason
        for writing the file. The task returns the path of the file. If there is an error, or too many files wait to be
        written, this is logged and the task returns None.
        """
        refs = self._kept.services()[::-1] if only is None else (only,)
        kept = {ref: self._kept.passes_of(ref) for ref in refs} if len(self._writes) < WAITING else None
        task = asyncio.create_task(self._written(reason, kept), name="recording")
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return task

    async def _written(self, reason: str, kept: Mapping[Ref, tuple[Pass, ...]] | None) -> Path | None:
        """Write a file after all files that were requested earlier. `kept` is None if too many other files already wait."""
        if kept is None:
            logger.warning(
                "no recording was written for %s, because %d other recordings wait to be written", reason, WAITING
            )
            return None
        now = self._wall()
        path = self._folder / f"ome-recording-{now.strftime('%Y%m%dT%H%M%S%fZ')}.json.gz"
        try:
            async with self._writing, asyncio.timeout(SECONDS):
                self._delete_oldest(path)
                count = await _file(path, kept, recording.file_header(__version__, reason, now))
        except Exception as error:
            logger.error("cannot write the recording %s: %s", path, error_text(error))
            return None
        logger.warning("recording of %d of %d services, for %s: %s", count, len(kept), reason, path)
        return path

    def _delete_oldest(self, path: Path) -> None:
        """Delete the oldest files, so that at most FILES files exist. The file at `path`, which may remain incomplete, is
        counted.
        """
        self._files.append(path)
        while len(self._files) > FILES:
            self._files.popleft().unlink(missing_ok=True)


async def _file(path: Path, kept: Mapping[Ref, tuple[Pass, ...]], head: Mapping[str, object]) -> int:
    """Write a file in another process, so that tenants' texts that take long to process do not block this process. Return
    the number of services in the file. Raises OSError if the process fails. If the task is cancelled, the process is
    killed.

    The process is started without asyncio, because a task that is cancelled while asyncio starts a process may wait forever
    (Python 3.11).
    """
    process = _start(path)
    try:
        out = (await asyncio.to_thread(_exchange, process, kept, head)).decode(errors="replace").strip().splitlines()
    finally:
        process.kill()
    if process.returncode:
        raise OSError(out[-1] if out else f"its process ended with code {process.returncode}")
    return int(out[-1])


def _start(path: Path) -> "subprocess.Popen[bytes]":
    command = (sys.executable, "-m", writer.__name__, str(path), str(writer.LARGEST))
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def _exchange(process: "subprocess.Popen[bytes]", kept: Mapping[Ref, tuple[Pass, ...]], head: Mapping[str, object]) -> bytes:
    """Send the recordings to the process, which may stop reading when its file is large enough. Wait for its end, and return
    its output.
    """
    with process:
        assert process.stdin is not None and process.stdout is not None
        with suppress(ConnectionError):
            process.stdin.write(json.dumps(dict(head)).encode() + b"\n")
            for ref, passes in kept.items():
                process.stdin.write(_line(f"{ref.namespace}/{ref.name}", passes))
        with suppress(ConnectionError):
            process.stdin.close()
        return process.stdout.read()


def _line(service: str, passes: tuple[Pass, ...]) -> bytes:
    return json.dumps(recording.passes_as_json(service, list(passes))).encode() + b"\n"
