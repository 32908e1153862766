"""Fetching a model: beside its place, resumed where a kill left it, proven before it is visible."""

import asyncio
import logging
import random
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from ome_operator.agent.fetching import Downlink, Fetching
from ome_operator.agent.pace import Pace, TooSlow
from ome_operator.agent.progress import Progress
from ome_operator.agent.record import shortened
from ome_operator.agent.room import Room, over_budget
from ome_operator.agent.steps import Fetch, Remaining, plan, too_full
from ome_operator.agent.store import Manifest, Proven, Store, check, size_below
from ome_operator.agent.throttle import Throttle
from ome_operator.agent.turns import Over, TurnOver
from ome_operator.agent.unpack import unpack
from ome_operator.storage.hashes import BLOCK, Checker
from ome_operator.storage.listing import Listing, Refused, RemoteFile, Source, SourceError, Unranged, Unreachable
from ome_operator.util.wall_clock import WallClock, now

logger = logging.getLogger(__name__)

UNPACKED = 10e6
"""Bytes of an archive for each second that unpacking may go on though others wait: what is stopped begins again, and has
to end some day.
"""
LOOK = 0.2
"""Seconds between two looks whether the turn is over."""


class Failed(Exception):
    """The model cannot be had now, in a sentence."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a node spends on fetching."""

    files: int = 8
    """Files at a time; where fewer are left, pieces of them."""
    piece: int = BLOCK
    """Bytes of a piece, for files of two or more."""
    throttle: Throttle = field(default_factory=lambda: Throttle(0))
    tries: int = 8
    """Attempts in a row without a new byte before a file is given up for now."""
    wrong: int = 5
    """Times that a whole file may come with a wrong hash."""
    first: float = 0.5
    """Seconds before the second attempt; then twice as many each time."""
    last: float = 60.0
    listing: float = 60.0
    """Seconds for one answer about what there is."""
    pace: Pace = field(default_factory=Pace)
    room: Room = field(default_factory=Room)
    namespace_bytes: int = 0
    """Bytes that BaseModels of one namespace may have on this node; 0: no bound."""


class Download:
    """One model revision on its way to this node."""

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
        over: Over = lambda: False,
        wall: WallClock = now,
    ) -> None:
        self._uri, self._source, self._store, self._limits, self._progress = uri, source, store, limits, progress
        self._node, self._namespace, self._over, self._wall = node, namespace, over, wall
        self._line = Downlink(asyncio.Semaphore(limits.files), limits.throttle, progress)
        self._jitter: Callable[[], float] = random.random
        self._paused = False

    async def run(self, revision: str = "") -> Manifest:
        """Fetch what is missing and publish it; raises Failed or TurnOver. `revision` pins what the URI leaves open."""
        try:
            return await self._run(revision)
        except TurnOver:
            raise
        except SourceError as error:
            raise Failed(str(error)) from error
        except OSError as error:
            raise Failed(f"the disk refuses: {error.strerror or error} ({self._store.home})") from error

    async def _run(self, revision: str) -> Manifest:
        listing = await self._listing(revision)
        store = self._store
        await asyncio.to_thread(store.prepare, listing)
        todo = self._plan(listing)
        self._progress.start(listing.revision, todo.total, todo.total - todo.left, len(listing.files))
        todo = await self._reuse(listing, todo.fetch)
        needs = todo.needs(self._limits.files)
        if full := too_full(needs, self._free(), str(store.home)) or await asyncio.to_thread(self._over_budget, needs):
            raise Failed(full)
        with self._limits.room.claim(store.root, store.disk(), self._progress):
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._file(listing, one)) for one in todo.fetch]
        wrong = [said for task in tasks if (said := task.result())]
        if wrong:
            raise Failed(wrong[0] + (f" (and {len(wrong) - 1} more files)" if len(wrong) > 1 else ""))
        if self._paused:
            raise TurnOver
        return await asyncio.to_thread(store.publish, self._uri, listing, self._wall().isoformat(timespec="seconds"))

    def _free(self) -> int:
        """Bytes that this fetch may take."""
        return self._limits.room.free(self._store.root, self._store.disk(), self._store.free())

    def _over_budget(self, needs: int) -> str:
        if not self._namespace or not self._limits.namespace_bytes:
            return ""
        return over_budget(needs, size_below(self._store.home), self._limits.namespace_bytes, self._namespace)

    async def _listing(self, revision: str) -> Listing:
        for attempt in range(self._limits.tries):
            if attempt and self._over():
                raise TurnOver
            try:
                return await self._listed(revision)
            except Unreachable as error:
                if attempt + 1 == self._limits.tries:
                    raise
                await self._pause(attempt, error)
        raise AssertionError("not reached")

    async def _listed(self, revision: str) -> Listing:
        try:
            async with asyncio.timeout(self._limits.listing):
                return await self._source.listing(revision)
        except TimeoutError as error:
            raise Unreachable(f"the source did not say within {self._limits.listing:.0f} s what there is") from error

    async def _reuse(self, listing: Listing, todo: tuple[Fetch, ...]) -> Remaining:
        """Take what this disk has already, of other revisions or where the model's path was filled by hand."""
        for one in todo:
            if one.have:
                continue
            for path in self._store.elsewhere(one.file):
                if (blocks := await asyncio.to_thread(_prove, path, one.file)) is None:
                    continue
                linked = await asyncio.to_thread(self._store.link, one.file, path)
                await asyncio.to_thread(self._store.accept, one.file, blocks, linked)
                self._progress.found(one.file.size)
                break
        return self._plan(listing)

    def _plan(self, listing: Listing) -> Remaining:
        return plan(listing, self._store.proven(), self._store.have, self._node)

    async def _file(self, listing: Listing, one: Fetch) -> str:
        """Fetch one file; a sentence when it cannot be had."""
        async with self._line.slots:
            attempt = wrong = 0
            pieces = True
            have = one.have
            while True:
                try:
                    checker = await self._attempt(listing, one.file, pieces=pieces)
                except TurnOver:
                    self._paused = True
                    return ""
                except (Refused, TooSlow) as error:
                    return f"{one.file.name}: {error}"
                except Unranged:
                    pieces = False
                    continue
                except Unreachable as error:
                    came = self._store.have(one.file)
                    attempt, have = (0, came) if came > have else (attempt + 1, have)
                    if attempt >= self._limits.tries:
                        return f"{one.file.name}: {error}"
                    await self._pause(attempt, error)
                    continue
                if checker.whole:
                    return await self._accept(one.file, checker)
                wrong, have = wrong + 1, 0
                self._store.forget(one.file)
                self._source.suspect(one.file)
                self._progress.lost(one.file.size)
                told = shortened(one.file.name), shortened(self._uri)
                logger.warning("%s of %s came with a wrong hash (%d times)", *told, wrong)
                if wrong >= self._limits.wrong:
                    return f"{one.file.name} came {wrong} times with another {one.file.hash.called} than its source says"
                await self._pause(wrong - 1, Unreachable(""))

    async def _accept(self, file: RemoteFile, checker: Checker) -> str:
        """A file's bytes are right; a sentence when they are an archive that cannot be used."""
        store = self._store
        if file.unpack is None:
            await asyncio.to_thread(store.accept, file, checker.blocks)
            return ""
        try:
            members = await self._unpack(file, file.unpack)
        except TurnOver:
            self._paused = True
            return ""
        except Refused as error:
            return f"{file.name}: {error}"
        await asyncio.to_thread(store.unpacked, file, members)
        return ""

    async def _unpack(self, file: RemoteFile, leading: str) -> list[Proven]:
        """Unpack an archive in a thread, which ends with the turn or the model; raises Refused or TurnOver."""
        stop, until = threading.Event(), time.monotonic() + file.size / UNPACKED
        given = self._store.part(file), self._store.files, leading, self._free(), stop.is_set
        work = asyncio.create_task(asyncio.to_thread(unpack, *given))
        try:
            while not (await asyncio.wait({work}, timeout=LOOK))[0]:
                if self._over() and time.monotonic() >= until:
                    stop.set()
        finally:
            stop.set()
            await asyncio.gather(work, return_exceptions=True)
        return work.result()

    async def _attempt(self, listing: Listing, file: RemoteFile, *, pieces: bool) -> Checker:
        """Ask for what is missing of a file; the checker of all of it. Raises what the source raises."""
        step = self._limits.piece if pieces and file.size >= 2 * self._limits.piece else 0

        async def read(start: int, end: int) -> AsyncIterator[bytes]:
            if self._over():
                raise TurnOver
            async for data in self._limits.pace.held(self._source.read(listing, file, start, end)):
                yield data
                if self._over():
                    raise TurnOver

        return await Fetching(file, self._store, read, self._line, step).run(self._limits.files - 1)

    async def _pause(self, attempt: int, error: Unreachable) -> None:
        seconds = min(self._limits.last, self._limits.first * 2**attempt) * (0.5 + self._jitter() / 2)
        if str(error):
            logger.info("%s: again in %.1f s: %s", shortened(self._uri), max(seconds, error.retry_after), error)
        await asyncio.sleep(max(seconds, min(error.retry_after, self._limits.last)))


def _prove(path: Path, file: RemoteFile) -> tuple[int, ...] | None:
    """The block sums of a file that is what it should be, by a hash: sizes alone prove no relation."""
    checker = check(path, file)
    return checker.blocks if checker.whole and file.hash.algorithm != "size" else None
