"""Calculate which files of a model still have to be downloaded, from the source's list of files and the files on the
disk.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ome_operator.agent.store import VerifiedFile
from ome_operator.names import digest
from ome_operator.storage.listing import Listing, RemoteFile

MARGIN = 1024**3
"""Number of bytes that downloads leave free on the disk, because the kubelet evicts pods when the disk is full."""


class Fetch(NamedTuple):
    """A file that is not verified yet."""

    file: RemoteFile
    bytes_on_disk: int
    """Bytes of the file that are already on the disk, but not verified."""


class RemainingDownload(NamedTuple):
    """The files of a model that still have to be downloaded."""

    fetch: tuple[Fetch, ...]
    """Files to download, with the larger files first, so that the files that end last are small."""
    total: int
    """Size of the complete model in bytes."""

    @property
    def bytes_left(self) -> int:
        """Number of bytes that still have to be downloaded."""
        return sum(item.file.size - item.bytes_on_disk for item in self.fetch)

    def bytes_needed(self, files: int) -> int:
        """Return the bytes of disk space that are still needed if `files` files are downloaded at the same time.

        An archive and its unpacked files are on the disk at the same time. Compressed archives may need more than this
        estimate.
        """
        archives = sorted((item.file.size for item in self.fetch if item.file.unpack), reverse=True)
        return self.bytes_left + sum(archives[:files])


def plan_download(
    listing: Listing, proven: Mapping[str, VerifiedFile], have: Callable[[RemoteFile], int], node: str = ""
) -> RemainingDownload:
    """Return the files to download. `proven` maps file names to verified files; `have` returns how many bytes of a file
    are on the disk.

    The order of files with about the same size depends on the name `node`. Nodes that start together therefore download
    different files first, and copy the other files from each other.
    """
    todo = []
    for file in listing.files:
        known = proven.get(file.name)
        if known is None or (known.hash, known.size) != (file.hash, file.size):
            todo.append(Fetch(file, min(have(file), file.size)))

    def order(item: Fetch) -> tuple[int, str, str]:
        return -item.file.size.bit_length(), digest([node, item.file.name]) if node else "", item.file.name

    return RemainingDownload(tuple(sorted(todo, key=order)), listing.size)


def too_full_message(missing: int, free: int, directory: str) -> str:
    """Return a message if the disk has too little space; "" if the space suffices.

    `missing` is the number of bytes to download; `free` is the free disk space minus the margin and the reservations of
    other downloads.
    """
    if missing <= free or missing == 0:
        return ""
    return (
        f"the files that are still to be downloaded need {size_text(missing)}, but only {size_text(max(0, free))} are "
        f"available below {directory} (1 GiB is always kept free, and space is reserved for running downloads): "
        "delete files there"
    )


def size_text(count: int) -> str:
    """Return a number of bytes in the largest suitable unit, such as "1.5 GiB"."""
    for unit, size in (("TiB", 1024**4), ("GiB", 1024**3), ("MiB", 1024**2)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
