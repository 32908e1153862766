"""Files on a node's disk: sizes, checks of their content, and replacement that survives a kill."""

import contextlib
import os
from pathlib import Path

from ome_operator.storage.hashes import Checker
from ome_operator.storage.listing import RemoteFile

CHUNK = 4 * 1024 * 1024
"""Bytes that are read at a time."""


def size_below(folder: Path) -> int:
    """Return the total size in bytes of all files below a folder. Files that are deleted during the scan are ignored."""
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(directory) / name).stat().st_size
    return total


def file_size(path: Path) -> int:
    """Return the size of a file in bytes, or 0 if the file does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def has_size(path: Path, size: int) -> bool:
    """Return whether `path` is a file of exactly `size` bytes."""
    return path.is_file() and path.stat().st_size == size


def check_file(path: Path, file: RemoteFile, *, limit: int | None = None) -> Checker:
    """Pass the bytes of the file at `path`, or only its first `limit` bytes, through a checker, and return the checker.
    `file` contains the expected hash and size. If `limit` is None, all bytes are passed.
    """
    checker = Checker(file.hash, file.size)
    left = file.size if limit is None else limit
    with path.open("rb") as stream:
        while left > 0 and (data := stream.read(min(CHUNK, left))):
            checker.update(data)
            left -= len(data)
    return checker


def replace_file(path: Path, data: bytes) -> None:
    """Replace the content of a file. A kill at any moment leaves the old or the new content."""
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    fresh.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Flush a file or a directory from the kernel's cache to the disk (fsync)."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
