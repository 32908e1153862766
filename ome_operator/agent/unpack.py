"""Unpack a tar archive after its hash was verified. The archive is untrusted, because its author may be malicious."""

import gzip
import hashlib
import io
import math
import os
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any, cast

from ome_operator.agent.disk_files import CHUNK
from ome_operator.agent.fair_queue import TurnCheck, TurnExpired
from ome_operator.agent.free_space import require_space
from ome_operator.agent.store import VerifiedFile
from ome_operator.storage.hashes import SIZE_ONLY, Checker, Hash
from ome_operator.storage.listing import MAX_FILES, RequestRefused, is_inside

_GZIP = b"\x1f\x8b"
HEADERS = 64 * 1024
"""Maximum bytes that tarfile may read before the contents of a member, for the header and extended headers of the member."""
NAMES = 32 * 1024 * 1024
"""Maximum bytes of all names in the archive together."""


def unpack(archive: Path, into: Path, available: int, is_over: TurnCheck = lambda: False) -> list[VerifiedFile]:
    """Write the members of a tar or tar+gzip archive below `into`, flush them to the disk, and return them with their
    checksums.

    Raises RequestRefused if the file is not an archive, if a member is not a regular file (weights need no links), or if
    the members need more than `available` bytes. Raises TurnExpired when `is_over`, which is called with each read, returns
    True. After an error, all written files are deleted.
    """
    written: list[Path] = []
    try:
        with _opened(archive, is_over) as opened:
            count = _count_files(opened, available)
        with _opened(archive, is_over) as opened:
            unpacked = [_write(opened, item, into, name, written) for item, name in _files(opened)]
    except BaseException as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise _as_refusal(error, into) from error
    if not count:
        raise RequestRefused("the archive contains no files")
    return unpacked


def _as_refusal(error: BaseException, into: Path) -> BaseException:
    """Return RequestRefused for errors that a malformed archive causes, and every other error unchanged."""
    if isinstance(error, FileExistsError):
        return RequestRefused(
            f"two layers contain a file {str(Path(error.filename).relative_to(into))!r}: push this file in one layer only"
        )
    if isinstance(error, (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError)):
        return RequestRefused(f"the file is not a readable tar archive ({type(error).__name__})")
    return error


def _count_files(archive: tarfile.TarFile, available: int) -> int:
    """Return the number of files. Raises RequestRefused, before any file is written, if the files need more than `available`
    bytes.

    Headers precede contents, so the sum is known before any contents are read, whether the archive is compressed or not.
    """
    total = files = 0
    for item, _ in _files(archive):
        files, total = files + 1, total + item.size
        require_space(total, available, "the archive")
    return files


def _files(archive: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, str]]:
    """Yield each file and its name below the model's directory. Raises RequestRefused for a member that is not a regular
    file.
    """
    names: set[str] = set()
    name_bytes = 0
    for item in _members(archive):
        if item.isdir():
            continue
        name = str(PurePosixPath(item.name))
        # A sparse member can declare any length, and the archive does not contain these bytes.
        plain = item.isreg() and not item.issparse() and item.size >= 0
        if not plain or not is_inside(name) or name in names:
            raise RequestRefused(
                f"the archive contains {item.name[:200]!r}, which is outside the model's directory, occurs twice or is "
                "not a regular file"
            )
        names.add(name)
        if (name_bytes := name_bytes + len(name)) > NAMES:
            raise RequestRefused(
                f"the file names in the archive take more than {NAMES} bytes, which is more than any model needs"
            )
        yield item, name


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield all members, including directories. Raises RequestRefused for more members than a model may have files.

    Returned members and global headers are removed from tarfile's own lists, which would hold all of them in memory.
    """
    reader, kept = cast(_Bounded, archive.fileobj), cast(Any, archive)
    for number in count(1):
        reader.left = HEADERS
        if (item := archive.next()) is None:
            return
        if number > MAX_FILES:
            raise RequestRefused(f"the archive contains more than {MAX_FILES} files and directories")
        kept.members.clear()
        kept.pax_headers.clear()
        reader.left = math.inf
        yield item


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, into: Path, name: str, written: list[Path]) -> VerifiedFile:
    target, source = into / name, archive.extractfile(member)
    assert source is not None  # unreachable for a regular file, and this member is one
    target.parent.mkdir(parents=True, exist_ok=True)
    sha, checker = hashlib.sha256(), Checker(SIZE_ONLY, member.size)
    with target.open("xb") as out:  # fails instead of overwriting a file that is already verified
        written.append(target)
        while data := source.read(CHUNK):
            out.write(data)
            sha.update(data)
            checker.update(data)
        out.flush()
        os.fsync(out.fileno())
    target.chmod(0o644)
    return VerifiedFile(name, member.size, Hash("sha256", sha.hexdigest()), checker.blocks)


@contextmanager
def _opened(archive: Path, over: TurnCheck) -> Iterator[tarfile.TarFile]:
    with archive.open("rb") as file:
        zipped = file.read(2) == _GZIP
        file.seek(0)
        inner = cast(io.BufferedIOBase, gzip.GzipFile(fileobj=file)) if zipped else file
        with tarfile.open(fileobj=cast(Any, _Bounded(inner, over)), mode="r:") as opened:
            yield opened


class _Bounded:
    """A file object that permits reads of at most `left` bytes. The limit is necessary because tarfile reads an extended
    header of any declared length in a single read, and follows chains of headers.
    """

    def __init__(self, inner: io.BufferedIOBase, over: TurnCheck) -> None:
        self._inner, self._over = inner, over
        self.tell, self.close = inner.tell, inner.close
        self.mode, self.name = "rb", ""
        self.left: float = HEADERS

    def read(self, size: int = -1) -> bytes:
        self._check_turn()
        if size < 0 or size > min(CHUNK, self.left):
            raise RequestRefused(f"the archive has a header of {size} bytes or more, which is longer than any file name")
        self.left -= size
        return self._inner.read(size)

    def seek(self, where: int) -> int:
        """Seek to the position `where` in steps, because seeking in a compressed file reads all bytes up to the new
        position. After each step, check whether the model's turn is over.
        """
        for there in range(self.tell() + CHUNK, where, CHUNK):
            self._check_turn()
            self._inner.seek(there)
        return self._inner.seek(where)

    def _check_turn(self) -> None:
        if self._over():
            raise TurnExpired
