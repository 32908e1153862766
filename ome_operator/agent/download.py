"""Download a model into a directory next to its final location, resume after a kill, and publish it only after every file
was verified.
"""

import asyncio
import logging
import random
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from ome_operator.agent.disk_files import check_file, size_below
from ome_operator.agent.download_plan import Fetch, RemainingDownload, plan_download, too_full_message
from ome_operator.agent.fair_queue import TurnCheck, TurnExpired
from ome_operator.agent.file_download import Downlink, FileDownload
from ome_operator.agent.free_space import FreeSpace, over_budget_message
from ome_operator.agent.minimum_speed import MinimumSpeed, TooSlow
from ome_operator.agent.progress import Progress
from ome_operator.agent.record import shorten_text
from ome_operator.agent.store import Manifest, Store, VerifiedFile
from ome_operator.agent.throttle import Throttle
from ome_operator.agent.unpack import unpack
from ome_operator.errors import OmeError
from ome_operator.storage.hashes import BLOCK, Checker
from ome_operator.storage.listing import (
    Listing,
    RangeIgnored,
    RemoteFile,
    RequestRefused,
    Source,
    SourceError,
    SourceUnreachable,
)
from ome_operator.util.wall_clock import WallClock, now

logger = logging.getLogger(__name__)

UNPACKED = 10e6
"""Assumed speed of unpacking, in bytes of the archive per second. Unpacking is not stopped within the time that it takes at
this speed, even if other namespaces are waiting, because it would have to start again from the beginning."""
POLL_SECONDS = 0.2
"""Seconds between two checks of whether this model's turn to download is over (see fair_queue.py)."""


class DownloadFailed(OmeError):
    """Error: the model cannot be downloaded now. The text of the exception states why."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The resources that a node spends on downloads."""

    files: int = 8
    """Number of concurrent downloads. They are downloads of files, or of pieces of files when fewer files remain."""
    piece: int = BLOCK
    """Size of a piece in bytes. A file is split into pieces if it is at least two pieces long."""
    throttle: Throttle = field(default_factory=lambda: Throttle(0))
    tries: int = 8
    """Consecutive attempts without a new byte after which the download of a file fails for now."""
    wrong: int = 5
    """Number of times that a complete file may arrive with a wrong hash before its download fails."""
    first: float = 0.5
    """Seconds before the second attempt. Each further attempt doubles the pause, up to `last`."""
    last: float = 60.0
    listing: float = 60.0
    """Seconds that the source may take to return its list of files."""
    minimum_speed: MinimumSpeed = field(default_factory=MinimumSpeed)
    free_space: FreeSpace = field(default_factory=FreeSpace)
    namespace_bytes: int = 0
    """Maximum bytes of one namespace's BaseModels on this node; 0 means no limit."""


class Download:
    """The download of one model revision to this node."""

    def __init__(
        self,
        uri: str,
        source: Source,
        store: Store,
        limits: Limits,
        progress: Progress,
        *,
        node: str = "",
        namespace: str = "",
        over: TurnCheck = lambda: False,
        wall: WallClock = now,
    ) -> None:
        self._uri, self._source, self._store, self._limits, self._progress = uri, source, store, limits, progress
        self._node, self._namespace, self._over, self._wall = node, namespace, over, wall
        self._line = Downlink(asyncio.Semaphore(limits.files), limits.throttle, progress)
        self._jitter: Callable[[], float] = random.random
        self._paused = False

    async def run(self, revision: str = "") -> Manifest:
        """Download the missing files and publish the model.

        `revision` selects the revision if the URI does not contain a revision. Raises DownloadFailed if the model cannot be
        downloaded now, and TurnExpired if another namespace is waiting.
        """
        try:
            return await self._run(revision)
        except TurnExpired:
            raise
        except SourceError as error:
            raise DownloadFailed(str(error)) from error
        except OSError as error:
            raise DownloadFailed(f"cannot write below {self._store.home}: {error.strerror or error}") from error

    async def _run(self, revision: str) -> Manifest:
        listing = await self._listing(revision)
        store = self._store
        await asyncio.to_thread(store.prepare, listing)
        remaining = self._plan(listing)
        self._progress.start(listing.revision, remaining.total, remaining.total - remaining.bytes_left, len(listing.files))
        remaining = await self._reuse(listing, remaining.fetch)
        bytes_needed = remaining.bytes_needed(self._limits.files)
        if problem := too_full_message(bytes_needed, self._free(), str(store.home)):
            raise DownloadFailed(problem)
        if problem := await asyncio.to_thread(self._over_budget, bytes_needed):
            raise DownloadFailed(problem)
        with self._limits.free_space.reserve(store.root, store.disk(), self._progress):
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._file(listing, fetch)) for fetch in remaining.fetch]
        failures = [failure for task in tasks if (failure := task.result())]
        if failures:
            raise DownloadFailed(failures[0] + (f" (and {len(failures) - 1} more files)" if len(failures) > 1 else ""))
        if self._paused:
            raise TurnExpired
        return await asyncio.to_thread(store.publish, self._uri, listing, self._wall().isoformat(timespec="seconds"))

    def _free(self) -> int:
        """Return the number of bytes on the disk that this download may still use."""
        return self._limits.free_space.available_bytes(self._store.root, self._store.disk(), self._store.free_bytes())

    def _over_budget(self, needs: int) -> str:
        if not self._namespace or not self._limits.namespace_bytes:
            return ""
        return over_budget_message(needs, size_below(self._store.home), self._limits.namespace_bytes, self._namespace)

    async def _listing(self, revision: str) -> Listing:
        for attempt in range(self._limits.tries):
            if attempt and self._over():
                raise TurnExpired
            try:
                return await self._listed(revision)
            except SourceUnreachable as error:
                if attempt + 1 == self._limits.tries:
                    raise
                await self._pause(attempt, error)
        raise AssertionError("not reached")

    async def _listed(self, revision: str) -> Listing:
        try:
            async with asyncio.timeout(self._limits.listing):
                return await self._source.listing(revision)
        except TimeoutError as error:
            raise SourceUnreachable(
                f"the source did not return the list of its files within {self._limits.listing:.0f} s"
            ) from error

    async def _reuse(self, listing: Listing, fetches: tuple[Fetch, ...]) -> RemainingDownload:
        """Add the verified files that are already on this disk: files of other revisions, and files of a directory that was
        filled manually. Return the files that still have to be downloaded.
        """
        for fetch in fetches:
            if fetch.bytes_on_disk:
                continue
            for path in self._store.local_candidates(fetch.file):
                if (blocks := await asyncio.to_thread(_prove, path, fetch.file)) is None:
                    continue
                linked = await asyncio.to_thread(self._store.link, fetch.file, path)
                await asyncio.to_thread(self._store.store_verified, fetch.file, blocks, linked)
                self._progress.add_existing(fetch.file.size)
                break
        return self._plan(listing)

    def _plan(self, listing: Listing) -> RemainingDownload:
        return plan_download(listing, self._store.verified_files(), self._store.partial_bytes, self._node)

    async def _file(self, listing: Listing, fetch: Fetch) -> str:
        """Download one file. Return "" on success, otherwise a message that states why the file is not available."""
        async with self._line.slots:
            attempt = wrong = 0
            pieces = True
            have = fetch.bytes_on_disk
            while True:
                try:
                    checker = await self._attempt(listing, fetch.file, pieces=pieces)
                except TurnExpired:
                    self._paused = True
                    return ""
                except (RequestRefused, TooSlow) as error:
                    return f"{fetch.file.name}: {error}"
                except RangeIgnored:
                    pieces = False
                    continue
                except SourceUnreachable as error:
                    received = self._store.partial_bytes(fetch.file)
                    attempt, have = (0, received) if received > have else (attempt + 1, have)
                    if attempt >= self._limits.tries:
                        return f"{fetch.file.name}: {error}"
                    await self._pause(attempt, error)
                    continue
                if checker.is_complete:
                    return await self._accept(fetch.file, checker)
                wrong, have = wrong + 1, 0
                self._store.delete_partial(fetch.file)
                self._source.report_wrong_hash(fetch.file)
                self._progress.subtract_wrong(fetch.file.size)
                logged = shorten_text(fetch.file.name), shorten_text(self._uri)
                logger.warning("%s of %s was downloaded with a wrong hash (%d times)", *logged, wrong)
                if wrong >= self._limits.wrong:
                    called, name = fetch.file.hash.algorithm_name, fetch.file.name
                    return (
                        f"{name} was downloaded {wrong} times, and each time its {called} differed from the {called} that "
                        "the source states"
                    )
                await self._pause(wrong - 1, SourceUnreachable(""))

    async def _accept(self, file: RemoteFile, checker: Checker) -> str:
        """Record a downloaded file whose hash is right, and unpack it if it is an archive. Return a message if the archive
        cannot be used; "" on success.
        """
        store = self._store
        if not file.unpack:
            await asyncio.to_thread(store.store_verified, file, checker.blocks)
            return ""
        try:
            members = await self._unpack(file)
        except TurnExpired:
            self._paused = True
            return ""
        except RequestRefused as error:
            return f"{file.name}: {error}"
        await asyncio.to_thread(store.unpacked, file, members)
        return ""

    async def _unpack(self, file: RemoteFile) -> list[VerifiedFile]:
        """Unpack an archive in a thread. The thread stops when the model's turn is over or the model is removed.

        Raises RequestRefused if the archive is not usable, and TurnExpired if the turn is over.
        """
        stop, until = threading.Event(), time.monotonic() + file.size / UNPACKED
        arguments = self._store.partial_path(file), self._store.files, self._free(), stop.is_set
        work = asyncio.create_task(asyncio.to_thread(unpack, *arguments))
        try:
            while not (await asyncio.wait({work}, timeout=POLL_SECONDS))[0]:
                if self._over() and time.monotonic() >= until:
                    stop.set()
        finally:
            stop.set()
            await asyncio.gather(work, return_exceptions=True)
        return work.result()

    async def _attempt(self, listing: Listing, file: RemoteFile, *, pieces: bool) -> Checker:
        """Request the missing bytes of a file once, and return the checker that has processed all bytes of the file. Raises
        the source's errors. If `pieces` is true, several pieces of the file are requested at the same time.
        """
        step = self._limits.piece if pieces and file.size >= 2 * self._limits.piece else 0

        async def read(start: int, end: int) -> AsyncIterator[bytes]:
            if self._over():
                raise TurnExpired
            async for data in self._limits.minimum_speed.enforce(self._source.read(listing, file, start, end)):
                yield data
                if self._over():
                    raise TurnExpired

        return await FileDownload(file, self._store, read, self._line, step).run(self._limits.files - 1)

    async def _pause(self, attempt: int, error: SourceUnreachable) -> None:
        seconds = min(self._limits.last, self._limits.first * 2**attempt) * (0.5 + self._jitter() / 2)
        if str(error):
            logger.info("%s: next attempt in %.1f s: %s", shorten_text(self._uri), max(seconds, error.retry_after), error)
        await asyncio.sleep(max(seconds, min(error.retry_after, self._limits.last)))


def _prove(path: Path, file: RemoteFile) -> tuple[int, ...] | None:
    """Return the CRC-32 of each block of the file at `path` if the file has the hash that `file` contains; otherwise None.

    A file whose source publishes only a size is never reused, because equal sizes do not prove equal contents.
    """
    checker = check_file(path, file)
    return checker.blocks if checker.is_complete and file.hash.algorithm != "size" else None
