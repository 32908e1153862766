"""The list of a source's files at one revision, with sizes and hashes, and the interface of all sources."""

from collections.abc import AsyncIterator, Iterable
from itertools import islice, pairwise
from pathlib import PurePosixPath
from typing import NamedTuple, Protocol
from urllib.parse import unquote

from ome_operator.errors import OmeError
from ome_operator.names import digest
from ome_operator.storage.hashes import Hash

MAX_FILES = 50_000
"""Maximum number of files of one model. The limit is necessary because a listing needs memory (0.6 KiB per file) before
its contents can be checked."""


MAX_NAME_BYTES = 8 * 1024 * 1024
"""Maximum bytes of the names of all files of one model, because the manifest on the disk contains them."""
MAX_SIZE = 2**63 - 1
"""Maximum total bytes of one model: the largest integer that the API server stores."""


class RemoteFile(NamedTuple):
    """A file of a model at its source."""

    name: str
    """Path of the file relative to the model's directory, with slashes."""
    size: int
    hash: Hash
    unpack: bool = False
    """Whether the file is a tar archive whose members become files of the model."""


class Listing(NamedTuple):
    """All files of a model at one revision."""

    revision: str
    """Commit of a hub, or a digest of the listing if the source has no revisions."""
    files: tuple[RemoteFile, ...]
    shared_directory: bool = False
    """Whether the name of a directory that contains all files of the model (including the files of archives) is removed
    from their paths. This is necessary for artifacts of registries, because the tools that create them pack a directory
    under its name."""

    @property
    def size(self) -> int:
        """Total bytes of all files."""
        return sum(file.size for file in self.files)


class SourceError(OmeError):
    """Base class of the errors of a source. The text is a message for users.

    SourceError
    ├── RequestRefused    a retry will not help, for example because the model does not exist or access is denied
    └── SourceUnreachable a retry may help, for example after status 429, status 5xx or a closed connection
        └── RangeIgnored  the source does not support ranges, so the complete file must be requested
    """

    retry_after: float = 0.0
    """Seconds for which the source asked the client to wait before the next attempt; 0 if it asked for no wait."""


class RequestRefused(SourceError):
    """Error: the source rejects the request. A retry will not help until a user or an administrator changes a setting."""


class SourceUnreachable(SourceError):
    """Error: the source did not respond, or failed temporarily. A retry may help."""

    def __init__(self, text: str, retry_after: float = 0.0) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class RangeIgnored(SourceUnreachable):
    """Error: the client requested a part of a file, but the source sends the complete file."""


class Source(Protocol):
    """The interface that all sources of files implement."""

    async def listing(self, revision: str) -> Listing:
        """Return all files at the given revision, or at the newest revision if `revision` is "". Raises SourceError if the
        source cannot be listed.
        """

    def read(self, listing: Listing, file: RemoteFile, start: int, end: int) -> AsyncIterator[bytes]:
        """Iterate over the file's bytes from `start` up to, and excluding, `end`. The iteration may end before `end`.
        Raises SourceError if the bytes cannot be read.
        """

    def report_wrong_hash(self, file: RemoteFile) -> None:
        """Receive the report that a file arrived with a wrong hash."""

    async def close(self) -> None:
        """Close all connections."""


def is_inside(name: str) -> bool:
    """Return whether a relative path stays below its base directory."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and bool(path.parts) and "\0" not in name


def is_plain(path: str) -> bool:
    """Return whether a path has no empty component and no component `.` or `..`. Clients and servers rewrite other paths,
    so that another path would be requested.
    """
    return not {"", ".", ".."} & set(unquote(path).replace("\\", "/").split("/"))


def make_listing(files: Iterable[RemoteFile], revision: str = "") -> Listing:
    """Return a listing with the files in sorted order. `revision` is the revision of the source; "" if the source has no
    revisions, so that a digest of the listing is used.

    Raises RequestRefused for a path outside the model's directory, for duplicate names, for an empty list, for more than
    MAX_FILES files, for names of more than MAX_NAME_BYTES, and for a total size above MAX_SIZE.
    """
    ordered = tuple(sorted(islice(files, MAX_FILES + 1), key=lambda file: file.name))
    if len(ordered) > MAX_FILES:
        raise RequestRefused(
            f"the source lists more than {MAX_FILES} files, which no model has: check spec.storage.storageUri"
        )
    if not ordered:
        raise RequestRefused("the source lists no files: check spec.storage.storageUri")
    if sum(len(file.name.encode("utf-8", "surrogatepass")) for file in ordered) > MAX_NAME_BYTES:
        raise RequestRefused(
            f"the file names that the source lists are together longer than {MAX_NAME_BYTES >> 20} MiB: "
            "check spec.storage.storageUri"
        )
    if sum(max(0, file.size) for file in ordered) > MAX_SIZE:
        raise RequestRefused("the source lists more bytes than any disk has: check spec.storage.storageUri")
    for file in ordered:
        if not is_inside(file.name) or file.size < 0:
            raise RequestRefused(f"the source lists the file {file.name!r}, which would be outside the model's directory")
    for file, next_file in pairwise(ordered):
        if file.name == next_file.name:
            raise RequestRefused(f"the source lists the file {file.name!r} twice")
    return Listing(revision or digest([(file.name, file.size, str(file.hash)) for file in ordered], 40), ordered)
