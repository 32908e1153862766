"""The sealed compile caches on this node's disk (docs/compile-caches.md).

Each set of pods with the same cache has a directory, which the kubelet creates when it mounts the directory into a pod. The
agent stores in the directory one archive for each kind of hardware. Next to the archive, it stores how often pods have
loaded the archive since an engine last served. Only the agent writes to the directory, so a pod cannot change an archive.
The agent does not interpret archives: it only verifies that an archive ends with the hash of its other bytes.
"""

import contextlib
import hashlib
import logging
import os
import re
import secrets
import shutil
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ome_operator.agent.download_plan import MARGIN
from ome_operator.agent.namespaces import FORMER
from ome_operator.compile_cache.archive import HASH
from ome_operator.core.weights.compile_caches import DIGITS, FOLDER
from ome_operator.core.weights.mount import NAMESPACES
from ome_operator.errors import OmeError

logger = logging.getLogger(__name__)

ARCHIVE_BYTES = 4 << 30
"""Maximum size of an archive in bytes."""
PLACES = 64
"""Maximum number of directories of a namespace below a root. Pods in other directories are not answered, and these
directories are removed, the oldest first."""
ENTRIES = 32
"""Maximum number of files in a directory. No archive is added to a directory with more files. The limit exists because a
pod can name any hardware."""
LOADS = 3
"""Number of times that an archive may be loaded without an engine that serves afterwards. The next attempt to load the
archive withdraws it, because the archive may be the reason why the engine does not start."""
TOGETHER = 30.0
"""Seconds within which several loads count as a single load, because the ranks of a group start together."""
WITHDRAWN = 7 * 86400.0
"""Seconds after the withdrawal of an archive for which no other archive is accepted in its place."""
CHUNK = 1 << 20
ROOM_EVERY = 64 * CHUNK
"""Number of received bytes after which the free space of the disk is checked again."""
_DIGEST = re.compile(rf"[0-9a-f]{{{DIGITS}}}")
_CACHE, _LOADS, _WITHDRAWN, _FRESH = ".cache", ".loads", ".withdrawn", ".new-"
KEPT = {_CACHE: 30 * 86400.0, _LOADS: 30 * 86400.0, _WITHDRAWN: WITHDRAWN, _FRESH: 3600.0}
"""Seconds for which the files of each kind are kept. The time begins with the last use of an archive; for an incomplete
archive, it begins with the last byte that arrived."""


class CacheRefused(OmeError):
    """Error: there is no archive, or an archive is not accepted. The message states the reason."""


class CachePlace(NamedTuple):
    """A directory of compile caches, which pods of a namespace mount. `digest` is the name of the directory."""

    root: str
    namespace: str
    digest: str

    @property
    def path(self) -> Path:
        """The path of the directory on the node."""
        return Path(self.root, NAMESPACES, self.namespace, FOLDER, self.digest)


class CompileStore:
    """All sealed compile caches below the roots, which together have at most `budget` bytes."""

    def __init__(self, roots: Iterable[str], budget: int, clock: Callable[[], float] = time.time) -> None:
        self._roots, self._budget, self._clock = tuple(roots), budget, clock
        self._lock = threading.Lock()
        self._arriving = 0
        """Number of bytes that were received of archives that are not complete yet."""
        self.limit = min(budget, ARCHIVE_BYTES)
        """Maximum size of an archive in bytes."""

    def places(self, most: int | None = PLACES) -> list[CachePlace]:
        """Return the directories that pods mount, the newest of each namespace first. Of each namespace below each root, at
        most `most` directories are returned; None means all. Symbolic links and other names are ignored.
        """
        found = []
        for root in self._roots:
            for space in _folders(Path(root) / NAMESPACES):
                if space.name != FORMER:
                    digests = [each for each in _folders(space / FOLDER) if _DIGEST.fullmatch(each.name)]
                    digests.sort(key=lambda each: each.stat().st_mtime, reverse=True)
                    found += [CachePlace(root, space.name, each.name) for each in digests[:most]]
        return found

    def clean(self) -> None:
        """Remove the caches of deleted namespaces, the directories beyond `PLACES`, the files that are older than `KEPT`
        permits (such as archives that an interrupted agent left incomplete), and archives that exceed the budget.
        """
        for root in self._roots:
            for former in _folders(Path(root) / NAMESPACES / FORMER):
                shutil.rmtree(former / FOLDER, ignore_errors=True)
        seen: Counter[tuple[str, str]] = Counter()
        with self._lock:
            for place in self.places(most=None):
                seen[place.root, place.namespace] += 1
                if seen[place.root, place.namespace] > PLACES:
                    shutil.rmtree(place.path, ignore_errors=True)
                    continue
                try:
                    self._remove_old(place.path)
                except OSError as error:
                    logger.warning("cannot remove old compile caches in %s: %s", place.path, error)
            self._make_room("", 0)

    def _remove_old(self, folder: Path) -> None:
        for path in folder.iterdir():
            kind = path.name[: len(_FRESH)] if path.name.startswith(_FRESH) else path.suffix
            status = path.lstat()
            if kind in KEPT and stat.S_ISREG(status.st_mode) and self._clock() - status.st_mtime > KEPT[kind]:
                path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def load(self, place: CachePlace, hardware: str) -> Iterator[tuple[BinaryIO, int]]:
        """Open the archive of a place for this hardware after it was verified, and count the load. Yield the file and its
        size. Raises CacheRefused if there is no usable archive, and OSError if a file cannot be read or written.
        """
        path = _named(place, hardware, _CACHE)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise CacheRefused("the node has no sealed compile cache of this engine yet") from error
        with os.fdopen(descriptor, "rb") as file:
            if not _is_whole(file):
                path.unlink(missing_ok=True)
                raise CacheRefused("the sealed compile cache was damaged, so the agent has removed it")
            with self._lock:
                self._count(place, hardware)
            os.utime(descriptor, (self._clock(), self._clock()))
            file.seek(0)
            yield file, os.fstat(descriptor).st_size

    def _count(self, place: CachePlace, hardware: str) -> None:
        """Count a load of an archive. If the archive was loaded LOADS times without an engine that serves afterwards,
        withdraw the archive and raise CacheRefused.
        """
        counter = _named(place, hardware, _LOADS)
        now = self._clock()
        with contextlib.suppress(FileNotFoundError):
            status = counter.stat()
            if 0 <= now - status.st_mtime < TOGETHER:
                return
            if status.st_size >= LOADS:
                _named(place, hardware, _CACHE).unlink(missing_ok=True)
                counter.replace(withdrawn := _named(place, hardware, _WITHDRAWN))
                os.utime(withdrawn, (now, now))
                logger.warning(
                    "%s: removed the compile cache, because the last %d starts with it did not serve", place.path, LOADS
                )
                raise CacheRefused(
                    f"the last {LOADS} starts with the sealed compile cache did not serve, so the agent has removed it"
                )
        with counter.open("ab") as file:
            file.write(b".")
        os.utime(counter, (now, now))

    def served(self, place: CachePlace, hardware: str) -> bool:
        """Record that an engine serves on the hardware `hardware`. Return whether the agent accepts the cache of this
        engine. The agent accepts it if `place` has no archive for this hardware yet. Raises CacheRefused if no archive may
        be stored in the directory now.
        """
        with self._lock:
            _named(place, hardware, _LOADS).unlink(missing_ok=True)
            if _named(place, hardware, _CACHE).exists():
                return False
            with contextlib.suppress(FileNotFoundError):
                age = self._clock() - _named(place, hardware, _WITHDRAWN).stat().st_mtime
                if age < WITHDRAWN:
                    raise CacheRefused(
                        "engines that started with the previous compile cache never served, so the agent stores no "
                        "compile cache for some days"
                    )
            if sum(1 for _ in place.path.iterdir()) > ENTRIES:
                raise CacheRefused("the node already has compile caches of this engine for too many kinds of hardware")
            return True

    def receive(self, place: CachePlace, hardware: str, read: Callable[[int], bytes]) -> int:
        """Store an archive, and return the size of the archive in bytes. The archive consists of the results of successive
        calls of `read`. The argument of `read` is the largest number of bytes to return. If CacheRefused or OSError is
        raised, nothing is stored.
        """
        target = _named(place, hardware, _CACHE)
        fresh = place.path / f"{_FRESH}{secrets.token_hex(8)}"
        counted = [0]
        try:
            with fresh.open("xb") as file:
                os.fchmod(file.fileno(), 0o600)
                size = self._written(file, self._bounded(read, counted))
            with self._lock:
                self._make_room(place.namespace, size)
                os.utime(fresh, (self._clock(), self._clock()))
                fresh.replace(target)
            return size
        finally:
            fresh.unlink(missing_ok=True)
            with self._lock:
                self._arriving -= counted[0]

    def _bounded(self, read: Callable[[int], bytes], counted: list[int]) -> Callable[[int], bytes]:
        """Return a function that reads as `read` does, and adds the number of received bytes to `counted[0]`. The function
        raises CacheRefused if the archives that are being received together exceed the budget.
        """

        def bounded(count: int) -> bytes:
            data = read(count)
            with self._lock:
                counted[0] += len(data)
                self._arriving += len(data)
                if self._arriving > max(self._budget, self.limit + CHUNK):
                    raise CacheRefused(
                        "other compile caches arrive at the same time, and together they exceed the space for compile caches"
                    )
            return data

        return bounded

    def _written(self, file: BinaryIO, read: Callable[[int], bytes]) -> int:
        """Write the bytes that `read` returns to a file, and return their number. Raises CacheRefused if the disk has too
        little free space, or if the archive is too long or does not end with the hash of its other bytes.
        """
        digest, tail, size, checked = hashlib.sha256(), b"", 0, -ROOM_EVERY
        while data := read(CHUNK):
            if size - checked >= ROOM_EVERY:
                checked = size
                if shutil.disk_usage(file.fileno()).free < MARGIN:
                    raise CacheRefused("the disk of the node has too little free space")
            size += len(data)
            if size > self.limit:
                raise CacheRefused(f"the compile cache has more than {self.limit} bytes")
            file.write(data)
            tail += data
            digest.update(tail[:-HASH])
            tail = tail[-HASH:]
        if len(tail) < HASH or digest.digest() != tail:
            raise CacheRefused("the compile cache did not arrive completely")
        return size

    def _make_room(self, namespace: str, size: int) -> None:
        """Remove archives until `size` more bytes of the namespace `namespace` fit into the budget. In each step, the
        namespace with the most bytes loses the archive that was not used for the longest time. Raises CacheRefused if that
        namespace has no archive.
        """
        archives = sorted(self._archives(), key=lambda each: each[2])
        used = {space: sum(each[3] for each in archives if each[0] == space) for space, *_ in archives}
        used[namespace] = used.get(namespace, 0) + size
        while sum(used.values()) > self._budget:
            largest = max(used, key=lambda space: used[space])
            victim = next((each for each in archives if each[0] == largest), None)
            if victim is None:
                raise CacheRefused(f"compile caches may have {self._budget} bytes on this node")
            archives.remove(victim)
            victim[1].unlink(missing_ok=True)
            used[largest] -= victim[3]

    def _archives(self) -> Iterator[tuple[str, Path, float, int]]:
        """Yield (namespace, path, Unix time of the last use, size in bytes) of each archive."""
        for place in self.places():
            for path in place.path.glob(f"*{_CACHE}"):
                with contextlib.suppress(FileNotFoundError):
                    status = path.lstat()
                    if stat.S_ISREG(status.st_mode):
                        yield place.namespace, path, status.st_mtime, status.st_size


def _named(place: CachePlace, hardware: str, suffix: str) -> Path:
    if not _DIGEST.fullmatch(hardware):
        raise CacheRefused("the request names no hardware")
    return place.path / f"{hardware}{suffix}"


def _is_whole(file: BinaryIO) -> bool:
    """Return whether a file is a regular file that ends with the hash of its other bytes."""
    status = os.fstat(file.fileno())
    digest, left = hashlib.sha256(), status.st_size - HASH
    if not stat.S_ISREG(status.st_mode) or left < 0:
        return False
    while left and (data := file.read(min(CHUNK, left))):
        digest.update(data)
        left -= len(data)
    return not left and file.read() == digest.digest()


def _folders(folder: Path) -> list[Path]:
    """Return the directories in `folder`, without symbolic links; [] if `folder` itself is not a directory."""
    if folder.is_symlink():
        return []
    try:
        with os.scandir(folder) as listed:
            return [folder / entry.name for entry in listed if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
