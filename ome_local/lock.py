"""A lock that lets one command at a time work on a cluster. The cluster's directory itself is locked, so that `down`
leaves no lock file behind.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ome_local import cancel


@contextmanager
def locked(root: Path, *, create: bool) -> Iterator[bool]:
    """Hold the lock of the directory inside the `with` block. If the directory does not exist and `create` is false,
    yield False without holding a lock.
    """
    while True:
        if create:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            handle = os.open(root, os.O_RDONLY)
        except FileNotFoundError:
            yield False
            return
        try:
            acquire_lock(handle)
        except BaseException:
            os.close(handle)
            raise
        if _is_still(root, handle):
            break
        os.close(handle)  # `down` removed this directory while this command was waiting for the lock
    try:
        yield True
    finally:
        os.close(handle)


def acquire_lock(handle: int) -> None:
    """Acquire the lock of an open file. Raises Cancelled if the work of this thread is cancelled."""
    while not _taken(handle):
        cancel.pause(0.1)


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (fcntl.LOCK_NB if cancel.is_carried() else 0))
    except BlockingIOError:
        return False
    return True


def _is_still(root: Path, handle: int) -> bool:
    try:
        return os.path.samestat(root.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False
