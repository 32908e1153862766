"""Download one file: its head in order, and pieces after the head at the same time.

The head is the beginning of the file that has arrived without a gap; its bytes pass through the checker, which computes
the hash. A large file is downloaded at several offsets at the same time while connections are free. Each piece is stored
in its own file. When the head has reached the first byte of a piece, the piece is appended to the head and deleted. The
files on the disk are therefore the complete state of a download, and survive a kill at any moment.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ome_operator.agent.disk_files import CHUNK, check_file, file_size
from ome_operator.agent.progress import Progress
from ome_operator.agent.store import Store
from ome_operator.agent.throttle import Throttle
from ome_operator.storage.hashes import Checker
from ome_operator.storage.listing import RemoteFile, SourceError, SourceUnreachable

BATCH = 1024 * 1024
"""Number of bytes that are written to the disk in one operation."""
LINGER = 0.2
"""Maximum seconds before received bytes are written to the disk, because a kill loses bytes that are not written."""

Read = Callable[[int, int], AsyncIterator[bytes]]
"""A function that iterates over the bytes of the file from the first offset to the second offset, which is excluded. It
raises SourceError."""


class Downlink(NamedTuple):
    """The resources that the downloads of all files of one model share: connections, bandwidth limit
    and progress counters.
    """

    slots: asyncio.Semaphore
    """The connections that may be open at the same time; the download of a file or piece holds one connection."""
    throttle: Throttle
    progress: Progress


class FileDownload:
    """One attempt to download a file in pieces of `step` bytes; with a step of 0 the file is downloaded in order."""

    def __init__(self, file: RemoteFile, store: Store, read: Read, line: Downlink, step: int) -> None:
        self._file, self._store, self._read, self._line, self._step = file, store, read, line, step
        self._taken: dict[int, asyncio.Event] = {}
        """Maps the first byte of each piece that a task downloads or has downloaded to an event that is set when the task
        has ended."""

    async def run(self, helpers: int) -> Checker:
        """Download the missing bytes with up to `helpers` extra connections, and return the checker of the complete file.

        Raises the errors of the source. Bytes that were received before an error are kept.
        """
        file, part = self._file, self._store.partial_path(self._file)
        have = file_size(part)
        if have > file.size:
            part.unlink()
            have = 0
        checker = await asyncio.to_thread(check_file, part, file, limit=have) if have else Checker(file.hash, file.size)
        pieces = -(-(file.size - have) // self._step) if self._step else 0
        tasks = [asyncio.create_task(self._fetch_ahead(have)) for _ in range(min(helpers, pieces - 1))]
        try:
            with part.open("ab") as out:
                while checker.count < file.size:
                    await self._extend_head(out, checker)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return checker

    async def _extend_head(self, out: BinaryIO, checker: Checker) -> None:
        """Extend the head (the beginning of the file that has arrived without a gap) to the end of the piece that contains
        the first missing byte. With a step of 0, extend the head to the end of the file.
        """
        at, file = checker.count, self._file
        start = at - at % self._step if self._step else 0
        end = min(start + self._step, file.size) if self._step else file.size
        if start in self._taken:
            await self._taken[start].wait()
        else:
            self._taken[start] = asyncio.Event()
        piece = self._store.piece(file, start)
        if (have := file_size(piece)) > at - start:
            await _done(asyncio.to_thread(_append, piece, at - start, min(have, end - start), out, checker))
        piece.unlink(missing_ok=True)
        if checker.count < end:
            await self._copy_range(checker.count, end, out, checker)

    async def _fetch_ahead(self, have: int) -> None:
        """Download pieces after the head until no piece is left. If a piece fails, the download of the head requests the
        same bytes later and reports the error.
        """
        while True:
            async with self._line.slots:
                starts = range(have - have % self._step, self._file.size, self._step)
                start = next((candidate for candidate in starts if candidate not in self._taken), None)
                if start is None:
                    return
                done = self._taken[start] = asyncio.Event()
                try:
                    await self._piece(start, min(start + self._step, self._file.size))
                except SourceError:
                    return
                finally:
                    done.set()

    async def _piece(self, start: int, end: int) -> None:
        path = self._store.piece(self._file, start)
        if (have := start + file_size(path)) < end:
            with path.open("ab") as out:
                await self._copy_range(have, end, out, None)

    async def _copy_range(self, start: int, end: int, out: BinaryIO, checker: Checker | None) -> None:
        """Copy bytes from the source to the disk. Bytes that were received before an error are kept, because the error does
        not make them wrong. `checker` is the checker of the head; None for a piece, whose bytes are checked later. The bytes
        are those from position `start` up to, but not including, `end`.
        """
        batch, count, since = bytearray(), start, time.monotonic()
        try:
            async for data in self._read(start, end):
                batch += data
                count += len(data)
                if count > end:
                    raise SourceUnreachable(f"the source sends more than the {end - start} bytes that were requested")
                if len(batch) >= BATCH or time.monotonic() - since > LINGER:
                    full, batch, since = batch, bytearray(), time.monotonic()
                    self._line.progress.add_received(len(full))
                    await _done(asyncio.to_thread(_write, out, full, checker))
                    await self._line.throttle.take(len(full))
        finally:
            if batch and count <= end:
                _write(out, batch, checker)
                self._line.progress.add_received(len(batch))
        if count < end:
            raise SourceUnreachable(f"the source ended after {count} of {self._file.size} bytes")


async def _done(work: Coroutine[Any, Any, None]) -> None:
    """Wait until the work of a thread is done, even after a cancellation, because writes that continue after a cancellation
    would collide with the writes of the next attempt.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    finally:
        await task


def _write(out: BinaryIO, data: bytes | bytearray, checker: Checker | None) -> None:
    """Write the bytes to the operating system at once, so that a kill of this process loses none of them. If `checker` is
    not None, the bytes also pass through it.
    """
    out.write(data)
    out.flush()
    if checker is not None:
        checker.update(data)


def _append(piece: Path, start: int, end: int, out: BinaryIO, checker: Checker) -> None:
    """Append the bytes of a piece from `start` to `end` to the head."""
    with piece.open("rb") as stream:
        stream.seek(start)
        while start < end and (data := stream.read(min(CHUNK, end - start))):
            _write(out, data, checker)
            start += len(data)
