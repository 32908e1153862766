"""A compile cache as one stream of bytes: an index of its files, their contents, and a SHA-256 of everything before it.

The stream contains regular files only. It can be verified before any of its bytes is used, and a stream that ends early is
detected, because the last 32 bytes are then no longer the hash of the others.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

MAGIC = b"OME compile cache 1\n"
HASH = 32
"""Length of the hash in bytes."""
MAX_FILES = 50_000
MAX_INDEX = 32 << 20
"""Maximum length of the index in bytes."""
MAX_NAME = 1024
CHUNK = 1 << 20
NOT_CACHES = frozenset({"ple", "model_streamer"})
"""Folders that SGLang creates in its cache directory and that contain data of a model instead of compiled code."""


class NoCache(Exception):
    """There is no usable compile cache, for the reason in the message. The engine starts without a cache."""


class ChangedError(Exception):
    """A file changed while it was read. A later attempt may succeed."""


class CachedFile(NamedTuple):
    """A file of a compile cache. The time of its last change is kept, because build tools such as ninja compare it."""

    name: str
    size: int
    mode: int
    mtime_ns: int


def entries(folder: Path, limit: int) -> list[CachedFile]:
    """Return the files of a compile cache that belong into an archive, ordered by name. Raises NoCache for anything but
    folders and regular files, and for a cache that is larger than `limit` bytes or has too many files.

    Files named `lock` or `*.lock` are left out, because some build tools wait until such a file is removed.
    """
    found: list[CachedFile] = []
    total = 0
    for seen, (name, status) in enumerate(_walk(folder, "")):
        if seen >= MAX_FILES:
            raise NoCache(f"the engine's cache has more than {MAX_FILES} files and folders")
        if stat.S_ISDIR(status.st_mode):
            continue
        if not stat.S_ISREG(status.st_mode):
            raise NoCache(f"{name[:200]!a} in the engine's cache is neither a folder nor a regular file")
        total += status.st_size
        if total > limit:
            raise NoCache(f"the engine's cache has more than {limit} bytes")
        found.append(CachedFile(name, status.st_size, stat.S_IMODE(status.st_mode) & 0o777, status.st_mtime_ns))
    return sorted(found)


def _walk(folder: Path, above: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as listed:
        for entry in listed:
            name = f"{above}{entry.name}"
            if name in NOT_CACHES or entry.name == "lock" or entry.name.endswith(".lock"):
                continue
            try:
                status = entry.stat(follow_symlinks=False)
                yield name, status
                if stat.S_ISDIR(status.st_mode):
                    yield from _walk(folder / entry.name, f"{name}/")
            except FileNotFoundError as error:
                raise ChangedError(f"{name} disappeared") from error


def pack(folder: Path, out: BinaryIO, limit: int) -> tuple[int, int]:
    """Write the archive of a folder, and return the number of its files and their bytes. Raises NoCache if the folder cannot
    be archived, and ChangedError if it changes meanwhile; the archive is then incomplete.
    """
    files = entries(folder, limit)
    if not files:
        raise NoCache("the engine has compiled nothing")
    try:
        index = json.dumps(files, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise NoCache("a name in the engine's cache is not UTF-8") from error
    total = sum(entry.size for entry in files)
    if len(MAGIC) + 8 + len(index) + total + HASH > limit or len(index) > MAX_INDEX:
        raise NoCache(f"the engine's cache has more than {limit} bytes")
    digest = hashlib.sha256()

    def write(data: bytes) -> None:
        digest.update(data)
        out.write(data)

    write(MAGIC + len(index).to_bytes(8, "big") + index)
    for entry in files:
        _copy(folder / entry.name, entry, write)
    out.write(digest.digest())
    return len(files), total


def _copy(path: Path, entry: CachedFile, write: Callable[[bytes], None]) -> None:
    """Write the bytes of a file. Raises ChangedError if it is not the file of the entry any more."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ChangedError(f"{entry.name} cannot be read: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        left = entry.size
        while left and (data := file.read(min(CHUNK, left))):
            write(data)
            left -= len(data)
        status = os.fstat(descriptor)
        if left or (status.st_size, status.st_mtime_ns) != (entry.size, entry.mtime_ns):
            raise ChangedError(f"{entry.name} changed while it was read")


class _Reader:
    """Reads a stream of known length and computes its hash."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream, self.left, self.digest = stream, size - HASH, hashlib.sha256()

    def take(self, count: int) -> bytes:
        """Return up to `count` bytes, at least one. Raises NoCache if the stream ends."""
        data = self._stream.read(min(count, CHUNK, self.left)) if self.left > 0 else b""
        if not data:
            raise NoCache("the archive is shorter than its index says")
        self.left -= len(data)
        self.digest.update(data)
        return data

    def exactly(self, count: int) -> bytes:
        """Return exactly `count` bytes. Raises NoCache if there are fewer."""
        parts = []
        while count:
            parts.append(self.take(count))
            count -= len(parts[-1])
        return b"".join(parts)

    def verify(self) -> None:
        """Raise NoCache unless nothing is left and the stream ends with the hash of its bytes."""
        if self.left or self._stream.read(HASH) != self.digest.digest():
            raise NoCache("the archive does not have the hash with which it was sealed")


def unpack(stream: BinaryIO, size: int, into: Path) -> tuple[int, int]:
    """Create the files of an archive of `size` bytes in a new folder, and return their number and their bytes. Raises
    NoCache if the archive is not valid, and OSError; the folder then has to be removed.
    """
    reader = _Reader(stream, size)
    if reader.exactly(len(MAGIC)) != MAGIC:
        raise NoCache("the archive has another format")
    length = int.from_bytes(reader.exactly(8), "big")
    if length > MAX_INDEX:
        raise NoCache("the index of the archive is too long")
    files = _parsed(reader.exactly(length))
    if sum(entry.size for entry in files) != reader.left:
        raise NoCache("the archive does not have the size that its index says")
    into.mkdir(mode=0o700)
    for entry in files:
        path = into / entry.name
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            left = entry.size
            while left:
                data = reader.take(left)
                file.write(data)
                left -= len(data)
            file.flush()
            os.fchmod(descriptor, entry.mode & 0o777 | 0o600)
            os.utime(descriptor, ns=(entry.mtime_ns, entry.mtime_ns))
    reader.verify()
    return len(files), sum(entry.size for entry in files)


def _parsed(index: bytes) -> list[CachedFile]:
    """Return the entries of an index. Raises NoCache if the index is not valid."""
    try:
        rows = json.loads(index)
        files = [CachedFile(*row) for row in rows]
        numbers = all(type(number) is int and 0 <= number < 1 << 62 for entry in files for number in entry[1:])
        named = all(_is_name(entry.name) for entry in files)
    except (ValueError, TypeError, RecursionError) as error:
        raise NoCache("the index of the archive cannot be read") from error
    if not numbers or not named or not 0 < len(files) <= MAX_FILES or len({entry.name for entry in files}) != len(files):
        raise NoCache("the index of the archive is not valid")
    return files


def _is_name(name: object) -> bool:
    """Return whether a value is a relative path below the folder, in its only normal form."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or "\0" in name:
        return False
    return not {"", ".", ".."} & set(name.split("/"))
