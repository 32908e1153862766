"""Decide which bytes of a model an agent reads into the page cache before an engine reads them
(docs/models-agent.md, "Weights in the page cache").
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

MIB = 1024 * 1024
GIB = 1024 * MIB
FORMATS = (".safetensors", ".gguf", ".bin", ".pt", ".pth")
"""Suffixes of files of weights. Engines read the files of a single format: the first format in this order that the model
has.
"""
SMALL = 64 * MIB
"""Maximum size in bytes of a file without weights, such as a tokenizer. A larger file is not read into the page cache."""
RESERVE, RESERVED_SHARE = 2 * GIB, 0.1
"""Two amounts: a number of bytes, and a fraction of the node's memory. The larger amount is left unused for programs that
start in the meantime."""
MARGIN = 256 * MIB
"""Bytes of the container's memory limit that are left for the agent itself. If the agent needs more, the kernel drops
prefetched pages."""
NODE, CONTAINER, SETTING = "the free memory of this node", "the memory limit of the agent's container", "agent.prefetchGB"
"""Texts for messages about the limit of the bytes that are read into the page cache: the memory of the node, the memory
of the container, or a setting."""


class Piece(NamedTuple):
    """Bytes of a file to read: `length` bytes from offset `start`, of which `missing` are not in the page cache."""

    name: str
    start: int
    length: int
    missing: int


class ContainerMemory(NamedTuple):
    """The memory of a container with a memory limit, in bytes."""

    free_bytes: int
    """Bytes that the container can still cache before the kernel drops pages of it; negative if the limit leaves less than
    `MARGIN`."""
    inactive_file: int
    """Bytes of the cached files that are charged to the container and were read only once, or not recently."""


class MemoryState(NamedTuple):
    """The memory of a node and of the agent's container, in bytes."""

    total: int
    available: int
    """The kernel's estimate (MemAvailable) of the bytes that programs can allocate without swapping."""
    free: int
    inactive_file: int
    """Bytes of cached files that were read only once, or not recently. The kernel drops these first."""
    container: ContainerMemory | None = None
    """The memory of the agent's container; None if the container has no limit."""


def weights_in_order(sizes: Mapping[str, int]) -> list[str]:
    """Return the files that an engine reads, in the order in which the engine reads them. `sizes` maps the name of each
    file of a model (its path relative to the model's directory) to its size in bytes.

    Configuration and tokenizer come first, then the weights sorted by name, as in SGLang 0.5.23 and vLLM. Files in
    subdirectories are included only if the main directory contains no weights, as in models of diffusers. Other models
    store a second copy of their weights in subdirectories.
    """
    top = [name for name in sizes if "/" not in name]
    small = sorted(name for name in top if _format(name) is None and sizes[name] <= SMALL)
    return small + (_of_one_format(top) or _of_one_format(sizes))


def _format(name: str) -> str | None:
    suffix = PurePosixPath(name).suffix
    return suffix if suffix in FORMATS else None


def _of_one_format(names: Iterable[str]) -> list[str]:
    """Return the names of the files in the first format of `FORMATS` that occurs, sorted. Files named
    `consolidated*.safetensors` are left out if there are other files of this format, because they are a second copy of the
    weights.
    """
    named = sorted(names)
    found = next(filter(None, ([name for name in named if _format(name) == suffix] for suffix in FORMATS)), [])
    return [name for name in found if not name.startswith("consolidated")] or found


def room(memory: MemoryState, held: int = 0) -> tuple[int, str]:
    """Return the number of bytes that may be read into the page cache now, and which memory limits this number (NODE or
    CONTAINER).

    Only free memory and inactive pages of files are used, so that no page is dropped that a running engine uses. `held` is
    the number of bytes that were read ahead for engines that have not read them yet: these pages are inactive, but must
    stay. Once engines have read these pages, the pages are no longer inactive, and the result is smaller than necessary.
    """
    reserve = max(RESERVE, int(memory.total * RESERVED_SHARE))
    node = min(memory.available - held, memory.free + max(0, memory.inactive_file - held)) - reserve
    if memory.container is not None:
        container = memory.container.free_bytes + max(0, memory.container.inactive_file - held)
        if container < node:
            return max(0, container), CONTAINER
    return max(0, node), NODE


def plan(sizes: Mapping[str, int], cached: Mapping[str, Sequence[int]], block: int, limit: int) -> list[Piece]:
    """Return the pieces to read, in order, such that at most `limit` bytes are added to the page cache. Files are divided
    into blocks of `block` bytes. `cached` maps names to the bytes of each block that are in the page cache already; a
    file without an entry has no cached bytes. Blocks that are completely in the page cache are left out.
    """
    pieces, left = list[Piece](), limit
    for name in weights_in_order(sizes):
        counts = cached.get(name, ())
        for index, start in enumerate(range(0, sizes[name], block)):
            length = min(block, sizes[name] - start)
            missing = length - (counts[index] if index < len(counts) else 0)
            if missing <= 0:
                continue
            if missing > left:  # Count the whole block as not cached, because it is not known which of its bytes are cached.
                length = left // MIB * MIB
                return [*pieces, Piece(name, start, length, length)] if length > 0 else pieces
            pieces.append(Piece(name, start, length, missing))
            left -= missing
    return pieces


def node_memory(meminfo: str, container: ContainerMemory | None) -> MemoryState:
    """Return the memory from the text of `/proc/meminfo`. Raises KeyError or ValueError for another text. `container` is the
    memory of the agent's container; None if the container has no limit.
    """
    kib = {key: int(rest.split()[0]) for key, _, rest in (line.partition(":") for line in meminfo.splitlines()) if rest}
    total, available, free, inactive = (
        kib[field] * 1024 for field in ("MemTotal", "MemAvailable", "MemFree", "Inactive(file)")
    )
    return MemoryState(total, available, free, inactive, container)


def container_memory(limit: str, used: str, stat: str, inactive: str) -> ContainerMemory | None:
    """Return the memory of a container from the texts of its cgroup's files; None if it has no limit.

    Pages of files are charged to the cgroup that reads them first. At the limit, the kernel drops the oldest inactive pages
    of this cgroup; other pages stay. `inactive` is the key of these pages in `stat`. Raises KeyError or ValueError for
    invalid texts.
    """
    if not limit.strip().isdigit():  # The text is "max" if the container has no limit.
        return None
    counts = dict(line.split() for line in stat.splitlines())
    return ContainerMemory(int(limit) - int(used) - MARGIN, int(counts[inactive]))
