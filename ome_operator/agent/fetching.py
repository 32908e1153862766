"""One file on its way: its head, which grows in order through the checker, and pieces that are fetched ahead of it.

A large file is fetched at several places at a time while connections are free. Every piece gathers in a file of its own;
when the head has grown up to a piece, the piece is appended and goes. So the disk alone says what is there, after any kill.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ome_operator.agent.progress import Progress
from ome_operator.agent.store import CHUNK, Store, check, length
from ome_operator.agent.throttle import Throttle
from ome_operator.storage.hashes import Checker
from ome_operator.storage.listing import RemoteFile, SourceError, Unreachable

BATCH = 1024 * 1024
"""Bytes that are written at once."""
LINGER = 0.2
"""Seconds that bytes wait at most to be written: what a kill loses has to be fetched again."""

Read = Callable[[int, int], AsyncIterator[bytes]]
"""Bytes of the file from a first one up to, and without, a last one; raises SourceError."""


class Downlink(NamedTuple):
    """What all files of a node share."""

    slots: asyncio.Semaphore
    """Connections; who fetches a file holds one of them."""
    throttle: Throttle
    progress: Progress


class Fetching:
    """One attempt at one file, in pieces of `step` bytes; 0: all of it in order."""

    def __init__(self, file: RemoteFile, store: Store, read: Read, line: Downlink, step: int) -> None:
        self._file, self._store, self._read, self._line, self._step = file, store, read, line, step
        self._taken: dict[int, asyncio.Event] = {}
        """Pieces, by their first byte, that somebody fetches or has fetched; set when nobody does any more."""

    async def run(self, helpers: int) -> Checker:
        """Fetch what is missing; the checker of all of it. Raises what the source raises; what came is kept."""
        file, part = self._file, self._store.part(self._file)
        have = length(part)
        if have > file.size:
            part.unlink()
            have = 0
        checker = await asyncio.to_thread(check, part, file, limit=have) if have else Checker(file.hash, file.size)
        pieces = -(-(file.size - have) // self._step) if self._step else 0
        tasks = [asyncio.create_task(self._help(have)) for _ in range(min(helpers, pieces - 1))]
        try:
            with part.open("ab") as out:
                while checker.count < file.size:
                    await self._grow(out, checker)
        finally:
            for one in tasks:
                one.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return checker

    async def _grow(self, out: BinaryIO, checker: Checker) -> None:
        """Up to the end of the piece that the head is in."""
        at, file = checker.count, self._file
        start = at - at % self._step if self._step else 0
        end = min(start + self._step, file.size) if self._step else file.size
        if start in self._taken:
            await self._taken[start].wait()
        else:
            self._taken[start] = asyncio.Event()
        piece = self._store.piece(file, start)
        if (have := length(piece)) > at - start:
            await _done(asyncio.to_thread(_append, piece, at - start, min(have, end - start), out, checker))
        piece.unlink(missing_ok=True)
        if checker.count < end:
            await self._pour(checker.count, end, out, checker)

    async def _help(self, have: int) -> None:
        """Fetch pieces ahead of the head while there are any. What fails is left to the head, which says so."""
        while True:
            async with self._line.slots:
                starts = range(have - have % self._step, self._file.size, self._step)
                start = next((one for one in starts if one not in self._taken), None)
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
        if (have := start + length(path)) < end:
            with path.open("ab") as out:
                await self._pour(have, end, out, None)

    async def _pour(self, start: int, end: int, out: BinaryIO, checker: Checker | None) -> None:
        """From the source to the disk. Whatever came before an error is kept, for it need not be wrong."""
        batch, count, since = bytearray(), start, time.monotonic()
        try:
            async for data in self._read(start, end):
                batch += data
                count += len(data)
                if count > end:
                    raise Unreachable(f"the source sends more than the {end - start} bytes that it was asked for")
                if len(batch) >= BATCH or time.monotonic() - since > LINGER:
                    full, batch, since = batch, bytearray(), time.monotonic()
                    self._line.progress.came(len(full))
                    await _done(asyncio.to_thread(_write, out, full, checker))
                    await self._line.throttle.take(len(full))
        finally:
            if batch and count <= end:
                _write(out, batch, checker)
                self._line.progress.came(len(batch))
        if count < end:
            raise Unreachable(f"the source ended after {count} of {self._file.size} bytes")


async def _done(work: Coroutine[Any, Any, None]) -> None:
    """Wait for a thread, also when cancelled: a write that goes on would meet the next attempt's."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    finally:
        await task


def _write(out: BinaryIO, data: bytes | bytearray, checker: Checker | None) -> None:
    """To the operating system at once, so that a kill of this process loses nothing of it."""
    out.write(data)
    out.flush()
    if checker is not None:
        checker.update(data)


def _append(piece: Path, start: int, end: int, out: BinaryIO, checker: Checker) -> None:
    """Bytes of a piece to the head."""
    with piece.open("rb") as stream:
        stream.seek(start)
        while start < end and (data := stream.read(min(CHUNK, end - start))):
            _write(out, data, checker)
            start += len(data)
