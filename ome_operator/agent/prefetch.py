"""Read the weights of models whose engines are starting on this node into the page cache
(docs/models-agent.md, "Weights in the page cache").
"""

import asyncio
import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from ome_operator.agent import page_cache
from ome_operator.agent.page_cache import CHUNK
from ome_operator.agent.prefetch_plan import GIB, SETTING, Piece, plan, room, weights_in_order
from ome_operator.agent.throttle import Throttle

logger = logging.getLogger(__name__)

MOST_FILES = 10_000
"""Maximum number of files of a model that is read into the page cache. Models with more files are not read."""


class CachedWeights(NamedTuple):
    """The result of reading one directory into the page cache."""

    bytes: int
    """Bytes of the weights that are in the page cache. If the kernel does not report this number, the bytes that were
    read."""
    total: int
    """Total bytes of those files in the directory that engines read."""
    message: str = ""
    """Why the directory was not read completely; "" if it was read completely."""


class Prefetcher:
    """Reads the directories that the operator lists for this node, one at a time, and each only once for as long as the
    operator lists it.
    """

    def __init__(self, limit: int, rate: float = 0.0) -> None:
        """Initialize the prefetcher. `limit` is the maximum number of bytes for all listed directories together (0: nothing
        is read), and `rate` the maximum bytes per second (0: no limit).
        """
        self._limit, self._rate = limit, rate
        self.is_listed = False
        """Whether the operator's last answer listed any directory."""
        self._outcomes: dict[str, CachedWeights] = {}
        self._current, self._stop = "", threading.Event()
        self._queue: list[str] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def enabled(self) -> bool:
        """Whether the agent reads files into the page cache."""
        return self._limit > 0

    def follow(self, listed: Collection[Any], complete: Collection[str]) -> None:
        """Receive the directories that the operator lists, and the directories whose models are Ready. A directory in both
        collections is read, unless the operator stops listing it before.
        """
        if not self.enabled:
            return
        self.is_listed = bool(listed)
        wanted = [place for place in dict.fromkeys(map(str, listed)) if place in complete]
        self._outcomes = {place: outcome for place, outcome in self._outcomes.items() if place in listed}
        if self._current and self._current not in listed:
            self._stop.set()
        self._queue = [place for place in wanted if place not in self._outcomes and place != self._current]
        if self._queue and self._task is None:
            self._task = asyncio.create_task(self._run())

    def status(self) -> dict[str, Any]:
        """Return the part of the NodeModels record about prefetching; {} if prefetching is disabled. The operator lists
        directories only for agents whose record contains this part.
        """
        if not self.enabled:
            return {}
        items = [
            {key: value for key, value in {"directory": place, **outcome._asdict()}.items() if value != ""}
            for place, outcome in sorted(self._outcomes.items())
        ]
        return {"limit": self._limit, **({"directories": items} if items else {})}

    async def _run(self) -> None:
        try:
            while self._queue:
                self._current = place = self._queue.pop(0)
                self._stop.clear()
                outcome = await self._one(place)
                if not self._stop.is_set():
                    self._outcomes[place] = outcome
        finally:
            self._current, self._task = "", None

    async def _one(self, place: str) -> CachedWeights:
        """Read one directory into the page cache. Errors are not raised, but stated in the message of the result. `place` is
        the path of the directory.
        """
        began = time.monotonic()
        held = sum(outcome.bytes for outcome in self._outcomes.values())
        try:
            outcome = await asyncio.to_thread(
                prefetch, Path(place), self._limit - held, Throttle(self._rate), self._stop, held
            )
        except Exception as error:
            logger.exception("cannot prefetch %s", place)
            return CachedWeights(0, 0, f"internal error ({type(error).__name__}): please report it with the agent's log")
        logged = outcome.bytes / GIB, outcome.total / GIB, place, time.monotonic() - began
        message = f": {outcome.message}" if outcome.message else ""
        logger.info("%.2f of %.2f GiB of %s are in the page cache after %.1f s%s", *logged, message)
        return outcome

    async def close(self) -> None:
        """Stop reading files into the page cache, and discard the directories that are still to be read."""
        self._queue = []
        self._stop.set()
        if self._task is not None:
            await self._task


def prefetch(root: Path, limit: int, throttle: Throttle, stop: threading.Event, held: int = 0) -> CachedWeights:
    """Read the files below `root` that engines read, at most `limit` bytes, until `stop` is set. `held` is the number of
    bytes of other directories that were read ahead, and must stay in the page cache. Errors of the disk are not raised, but
    stated in the message of the result.
    """
    sizes: dict[str, int] = {}
    try:
        sizes = file_sizes(root)
        return _Reading(root, sizes, throttle, stop, held).run(limit)
    except (OSError, KeyError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or str(error)
        return CachedWeights(0, sum(sizes[name] for name in weights_in_order(sizes)), f"cannot read its files: {why}")


def file_sizes(root: Path) -> dict[str, int]:
    """Return the size in bytes of each regular file below a directory, by its path relative to the directory. Raises
    OSError if the directory cannot be read, and ValueError if there are more than MOST_FILES files.
    """
    sizes = {}
    for path in root.rglob("*"):
        if path.is_file():
            sizes[str(path.relative_to(root))] = path.stat().st_size
        if len(sizes) > MOST_FILES:
            raise ValueError(f"more than {MOST_FILES} files")
    return sizes


class _Reading:
    """One attempt to read the files of a directory into the page cache."""

    def __init__(self, root: Path, sizes: Mapping[str, int], throttle: Throttle, stop: threading.Event, held: int) -> None:
        self._root, self._sizes, self._throttle, self._stop = root, sizes, throttle, stop
        self._block, self._buffer = page_cache.block(throttle.rate), bytearray(CHUNK)
        self._added, self._held = 0, held

    def run(self, limit: int) -> CachedWeights:
        names = weights_in_order(self._sizes)
        total, cached = sum(self._sizes[name] for name in names), self._cached(names)
        free, bound = room(page_cache.memory(), self._held)
        allowed, bound = (limit, SETTING) if limit < free else (free, bound)
        message = self._follow(plan(self._sizes, cached, self._block, max(0, allowed)))
        after = self._cached(names)
        reached = sum(map(sum, after.values())) if after else self._added
        if not message and reached < total:
            message = f"{bound} permitted only {allowed / GIB:.2f} GiB"
        return CachedWeights(min(reached, total), total, message)

    def _cached(self, names: Sequence[str]) -> dict[str, list[int]]:
        """Return a map from file name to the bytes of each block that are in the page cache; {} if the kernel does not
        report them.
        """
        found = {}
        for name in names:
            with page_cache.open_for_reading(self._root / name) as descriptor:
                if not page_cache.tells_residency(descriptor):
                    return {}
                size = self._sizes[name]
                blocks = ((start, min(self._block, size - start)) for start in range(0, size, self._block))
                found[name] = [page_cache.cached_bytes(descriptor, length, start) for start, length in blocks]
        return found

    def _follow(self, pieces: Sequence[Piece]) -> str:
        """Read the pieces in order. Return why the reading ended early, or "" if all pieces were read."""
        first: Piece | None = None
        for piece, following in zip_longest(pieces, pieces[1:]):
            if self._stop.is_set():
                return "its pods serve, or are gone"
            free, bound = room(page_cache.memory(), self._held + self._added)
            if free < piece.missing:
                return f"{bound} has become short"
            self._read(piece, following)
            first = first or (piece if piece.length == self._block else None)
            if first is not None and not self._kept(first):
                return "the block that was read first is no longer in the page cache"
        return ""

    def _read(self, piece: Piece, following: Piece | None) -> None:
        """Read a piece. If `following` belongs to the same file, let the kernel begin to read `following` in the
        background. `following` is the next piece, or None after the last piece.
        """
        end = piece.start + piece.length
        ahead = following.length if following and (following.name, following.start) == (piece.name, end) else 0
        with page_cache.open_for_reading(self._root / piece.name) as descriptor:
            page_cache.request_readahead(descriptor, piece.start, piece.length + ahead)
            count = page_cache.read_block(descriptor, piece.start, piece.length, self._buffer, self._took)
        self._added += min(count, piece.missing)

    def _took(self, count: int) -> bool:
        """Wait as long as the maximum rate requires after `count` bytes, and return whether the reading may continue."""
        return not self._stop.wait(self._throttle.seconds_until_allowed(count))

    def _kept(self, piece: Piece) -> bool:
        """Return whether a piece that was read is still in the page cache. A piece is missing if the kernel has dropped
        its pages to make space for later pieces, or if the file system caches nothing. Return true if the kernel does not
        report what is cached.
        """
        with page_cache.open_for_reading(self._root / piece.name) as descriptor:
            told = page_cache.tells_residency(descriptor)
            return not told or page_cache.cached_bytes(descriptor, piece.length, piece.start) >= piece.length // 2
