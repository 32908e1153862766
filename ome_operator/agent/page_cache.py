"""Access to the kernel's page cache: determine how much memory the page cache may use and which bytes of a file are cached,
and read files into the page cache.
"""

import contextlib
import ctypes
import errno
import mmap
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from ome_operator.agent.prefetch_plan import MIB, ContainerMemory, MemoryState, container_memory, node_memory

BLOCK = 64 * MIB
"""Number of bytes after which a reader checks whether to continue, if there is no rate limit (see `block`)."""
CHUNK = 8 * MIB
"""Number of bytes that one system call reads, which is also the size of the buffer."""
MEMINFO, CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
_LIBC = ctypes.CDLL(None, use_errno=True)


def memory(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> MemoryState:
    """Return the memory of the node and of this container. Raises OSError, KeyError or ValueError if the files of the
    kernel cannot be read or parsed.
    """
    return node_memory(meminfo.read_text(), container(cgroup))


def container(cgroup: Path = CGROUP) -> ContainerMemory | None:
    """Return the memory of this container; None if the container has no memory limit. `cgroup` is the mount point of
    cgroups, at which a container sees its own cgroup: of version 2, or of version 1 with a directory `memory`. Raises
    OSError, KeyError or ValueError if the files of the cgroup cannot be read or parsed.
    """
    versions = (
        (cgroup, ("memory.max", "memory.current", "memory.stat"), "inactive_file"),
        (cgroup / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat"), "total_inactive_file"),
    )
    for folder, names, inactive in versions:
        with contextlib.suppress(FileNotFoundError):  # the root of all cgroups has no limit
            limit, used, counts = ((folder / name).read_text() for name in names)
            return container_memory(limit, used, counts, inactive)
    return None


@contextlib.contextmanager
def open_for_reading(path: Path) -> Iterator[int]:
    """Open a regular file for reading. Raises OSError if the file cannot be opened. Devices and pipes raise OSError at
    once.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        yield descriptor
    finally:
        os.close(descriptor)


def block(rate: float) -> int:
    """Return the size of a block: the number of bytes after which a reader checks whether to continue. `rate` is the limit
    in bytes per second; 0 means no limit. The kernel reads two blocks ahead without regard to the rate, so a block has
    at most half of `rate` bytes, rounded down to whole chunks, but at least one chunk.
    """
    return BLOCK if rate <= 0 else min(BLOCK, max(CHUNK, int(rate / 2) // CHUNK * CHUNK))


def tells_residency(descriptor: int) -> bool:
    """Return whether mincore reports to this process which pages of a file are cached. Since Linux 5.2, it does so only for
    the owner of the file and for processes that may write the file. For all other processes, mincore reports every page as
    cached.
    """
    return os.fstat(descriptor).st_uid == os.geteuid() or os.access(f"/proc/self/fd/{descriptor}", os.W_OK)


def cached_bytes(descriptor: int, length: int, start: int = 0) -> int:
    """Return how many of `length` bytes from offset `start`, a multiple of `CHUNK`, are cached. Raises OSError if mincore
    fails.
    """
    total = 0
    for at in range(start, start + length, BLOCK):
        size = min(BLOCK, start + length - at)
        with mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY, offset=at) as view:
            pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
            first = ctypes.c_char.from_buffer(view)
            failed = _LIBC.mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), pages)
            del first  # the mapping cannot be closed while a view refers to it
        if failed:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        total += min(size, bytes(pages).count(1) * mmap.PAGESIZE)
    return total


def request_readahead(descriptor: int, start: int, length: int) -> None:
    """Ask the kernel to read `length` bytes from offset `start` into the page cache in the background, without regard to
    the rate. The disk is then busy while the reader copies a block.
    """
    os.posix_fadvise(descriptor, start, length, os.POSIX_FADV_WILLNEED)


def read_block(descriptor: int, start: int, length: int, buffer: bytearray, took: Callable[[int], bool]) -> int:
    """Read up to `length` bytes from offset `start`, and return how many were read. `took` is called with the number of
    bytes of each chunk; the reading ends when it returns false. Raises OSError if the file cannot be read.
    """
    at = start
    while at < start + length:
        size = os.preadv(descriptor, [memoryview(buffer)[: start + length - at]], at)
        at += size
        if not size or not took(size):
            break
    return at - start
