"""What is left to do for a model, from what its source has and what the disk has."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ome_operator.agent.store import Proven
from ome_operator.names import digest
from ome_operator.storage.listing import Listing, RemoteFile

MARGIN = 1024**3
"""Bytes that stay free on the disk: a full disk is the kubelet's business too."""


class Fetch(NamedTuple):
    """A file that is not proven yet."""

    file: RemoteFile
    have: int
    """Bytes of it on the disk."""


class Remaining(NamedTuple):
    """What is left."""

    fetch: tuple[Fetch, ...]
    """The larger first, so that the last ones to end are small."""
    total: int
    """Bytes of the model."""

    @property
    def left(self) -> int:
        """Bytes to fetch."""
        return sum(item.file.size - item.have for item in self.fetch)

    def needs(self, files: int) -> int:
        """Bytes of disk that are still wanted when so many files come at a time: an archive and what comes out of it lie
        there together while it is unpacked. What is compressed may want more.
        """
        archives = sorted((item.file.size for item in self.fetch if item.file.unpack is not None), reverse=True)
        return self.left + sum(archives[:files])


def plan(listing: Listing, proven: Mapping[str, Proven], have: Callable[[RemoteFile], int], node: str = "") -> Remaining:
    """What to fetch. `have` says how many bytes of a file are on the disk.

    Files of about the same size come in an order that is each node's own, so that nodes which begin together fetch
    different ones and find the others at their peers.
    """
    todo = []
    for file in listing.files:
        known = proven.get(file.name)
        if known is None or (known.hash, known.size) != (file.hash, file.size):
            todo.append(Fetch(file, min(have(file), file.size)))

    def order(item: Fetch) -> tuple[int, str, str]:
        return -item.file.size.bit_length(), digest([node, item.file.name]) if node else "", item.file.name

    return Remaining(tuple(sorted(todo, key=order)), listing.size)


def too_full(left: int, free: int, where: str) -> str:
    """A sentence when the disk cannot take it, else ""; `free` is what neither stays free nor goes to others."""
    if left <= free or left == 0:
        return ""
    return (
        f"{size_text(left)} are still to come and {where} has room for {size_text(max(0, free))} (1 GiB stays free, and "
        "what other models under way will take): make room there"
    )


def size_text(count: int) -> str:
    """Bytes in the largest unit that says enough."""
    for unit, size in (("TiB", 1024**4), ("GiB", 1024**3), ("MiB", 1024**2)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
