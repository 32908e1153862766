"""One command at a time on one cluster: a lock on its directory itself, so that `down` leaves no lock file behind."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(root: Path, *, create: bool) -> Iterator[bool]:
    """Hold the directory's lock. Yields False, without a lock, when there is no directory and none is to be made."""
    while True:
        if create:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            handle = os.open(root, os.O_RDONLY)
        except FileNotFoundError:
            yield False
            return
        fcntl.flock(handle, fcntl.LOCK_EX)
        if _is_still(root, handle):
            break
        os.close(handle)  # `down` removed this directory while we waited for it
    try:
        yield True
    finally:
        os.close(handle)


def _is_still(root: Path, handle: int) -> bool:
    try:
        return os.path.samestat(root.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False
