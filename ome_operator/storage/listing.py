"""What a source has: files with sizes and hashes, at one revision."""

from collections.abc import AsyncIterator, Iterable
from itertools import islice, pairwise
from pathlib import PurePosixPath
from typing import NamedTuple, Protocol

from ome_operator.errors import OmeError
from ome_operator.names import digest
from ome_operator.storage.hashes import Hash

MOST = 50_000
"""Files of one model. A listing costs memory before anybody has looked at it (0.6 KiB a file)."""


class RemoteFile(NamedTuple):
    """A file of a model."""

    name: str
    """Path below the model's directory, with slashes."""
    size: int
    hash: Hash
    unpack: str | None = None
    """None for a file of the model. Else this is a tar archive whose members become files, their names without this leading
    directory ("" takes nothing away).
    """


class Listing(NamedTuple):
    """All files of a model at one moment that has a name."""

    revision: str
    """Commit of a hub, or a digest of the listing where a source has no revisions."""
    files: tuple[RemoteFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(one.size for one in self.files)


class SourceError(OmeError):
    """The base: a sentence about a source.

    SourceError
    ├── Refused     asking again will not help: no such model, no right, a scheme that is not served
    └── Unreachable asking again may help: no answer, 429, 5xx, a connection that was cut
        └── Unranged it cannot give a part of a file: ask for all of it
    """

    retry_after: float = 0.0
    """Seconds that the source asked us to wait."""


class Refused(SourceError):
    """Asking again will not help until somebody changes something."""


class Unreachable(SourceError):
    """Asking again may help."""

    def __init__(self, text: str, retry_after: float = 0.0) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class Unranged(Unreachable):
    """The source was asked for the middle of a file, and sends all of it."""


class Source(Protocol):
    """Where files come from."""

    async def listing(self, revision: str) -> Listing:
        """All files, at this revision or ("") the newest; raises SourceError."""

    def read(self, listing: Listing, file: RemoteFile, start: int, end: int) -> AsyncIterator[bytes]:
        """The file's bytes from `start` up to, and without, `end`; raises SourceError, and may end early."""

    def suspect(self, file: RemoteFile) -> None:
        """A file came with a wrong hash."""

    async def close(self) -> None:
        """Close connections."""


def inside(name: str) -> bool:
    """Whether a name stays below the directory that it is relative to."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and bool(path.parts) and "\0" not in name


def listing(files: Iterable[RemoteFile], revision: str = "") -> Listing:
    """Files in order; Refused for names that lead out of the directory or come twice, an empty list, or one too long."""
    found = tuple(sorted(islice(files, MOST + 1), key=lambda one: one.name))
    if len(found) > MOST:
        raise Refused(f"the source names more than {MOST} files, which no model has: look at spec.storage.storageUri")
    if not found:
        raise Refused("there are no files there: look at spec.storage.storageUri")
    for one in found:
        if not inside(one.name) or one.size < 0:
            raise Refused(f"the source names a file {one.name!r}, which would not lie below the model's directory")
    for one, other in pairwise(found):
        if one.name == other.name:
            raise Refused(f"the source names two files {one.name!r}")
    return Listing(revision or digest([(one.name, one.size, str(one.hash)) for one in found], 40), found)
