"""Taking the files out of a tar archive whose hash was right. Whoever packed it is taken for hostile."""

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

from ome_operator.agent.room import enough
from ome_operator.agent.store import CHUNK, Proven
from ome_operator.agent.turns import Over, TurnOver
from ome_operator.storage.hashes import SIZE_ONLY, Checker, Hash
from ome_operator.storage.listing import MOST, Refused, inside

_GZIP = b"\x1f\x8b"
HEADERS = 64 * 1024
"""Bytes before a member's own, extended headers among them, which are read into each other."""
NAMES = 32 * 1024 * 1024
"""Bytes of all names together."""


def unpack(archive: Path, into: Path, leading: str, room: int, over: Over = lambda: False) -> list[Proven]:
    """Write the members of a tar or tar+gzip archive below a directory, on the disk when this returns, and prove them.

    The directory `leading` is taken away from the names if they begin with it. Raises Refused for what is no archive, for
    members that are no plain files (weights need no links), and for more than `room` bytes of them; TurnOver when it is
    `over`, which is looked at with each read. Then nothing is left.
    """
    written: list[Path] = []
    try:
        with _opened(archive, over) as opened:
            wanted = _fitting(opened, leading, room)
        with _opened(archive, over) as opened:
            found = [_write(opened, item, into, name, written) for item, name in _files(opened, leading)]
    except BaseException as error:
        for place in written:
            place.unlink(missing_ok=True)
        raise _ours(error, into) from error
    if not wanted:
        raise Refused("the archive holds no files")
    return found


def _ours(error: BaseException, into: Path) -> BaseException:
    """A refusal for what an archive may be; every other error as it is."""
    if isinstance(error, FileExistsError):
        return Refused(f"two layers have a file {str(Path(error.filename).relative_to(into))!r}: push it once")
    if isinstance(error, (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError)):
        return Refused(f"it is no tar archive that can be read ({type(error).__name__})")
    return error


def _fitting(archive: tarfile.TarFile, leading: str, room: int) -> int:
    """How many files there are; Refused, before the first byte of one is written, when they need too much.

    The header of a member comes before its bytes, so the sum is known before they are read, compressed or not.
    """
    size = files = 0
    for item, _ in _files(archive, leading):
        files, size = files + 1, size + item.size
        enough(size, room, "the archive")
    return files


def _files(archive: tarfile.TarFile, leading: str) -> Iterator[tuple[tarfile.TarInfo, str]]:
    """Every file and what it is to be called."""
    names: set[str] = set()
    below, long = "", 0
    for item in _members(archive):
        if item.isdir():
            continue
        name = str(PurePosixPath(item.name))
        if not names and leading and name.startswith(f"{leading}/"):
            below = f"{leading}/"
        # A sparse member says that it is as long as it likes, and the archive does not hold these bytes.
        plain = item.isreg() and not item.issparse() and item.size >= 0
        if not plain or not inside(name) or name in names or not name.startswith(below):
            raise Refused(
                f"the archive holds {item.name[:200]!r}, which is no plain file of its own below the model's directory"
            )
        names.add(name)
        if (long := long + len(name)) > NAMES:
            raise Refused("the names in the archive are longer than those of any model")
        yield item, name.removeprefix(below)


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """All members, directories too, and no more of them than a model may have files. None is kept, nor what global headers
    say: tarfile would hold all of it.
    """
    reader, kept = cast(_Bounded, archive.fileobj), cast(Any, archive)
    for number in count(1):
        reader.left = HEADERS
        if (item := archive.next()) is None:
            return
        if number > MOST:
            raise Refused(f"the archive holds more than {MOST} files and directories, which no model has")
        kept.members.clear()
        kept.pax_headers.clear()
        reader.left = math.inf
        yield item


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, into: Path, name: str, written: list[Path]) -> Proven:
    place, source = into / name, archive.extractfile(member)
    assert source is not None  # it is a plain file
    place.parent.mkdir(parents=True, exist_ok=True)
    sha, checker = hashlib.sha256(), Checker(SIZE_ONLY, member.size)
    with place.open("xb") as out:  # never over a file that is proven already
        written.append(place)
        while data := source.read(CHUNK):
            out.write(data)
            sha.update(data)
            checker.update(data)
        out.flush()
        os.fsync(out.fileno())
    place.chmod(0o644)
    return Proven(name, member.size, Hash("sha256", sha.hexdigest()), checker.blocks)


@contextmanager
def _opened(archive: Path, over: Over) -> Iterator[tarfile.TarFile]:
    with archive.open("rb") as file:
        zipped = file.read(2) == _GZIP
        file.seek(0)
        inner = cast(io.BufferedIOBase, gzip.GzipFile(fileobj=file)) if zipped else file
        with tarfile.open(fileobj=cast(Any, _Bounded(inner, over)), mode="r:") as opened:
            yield opened


class _Bounded:
    """A file that is read in pieces, of which only so much may be `left`: tarfile reads an extended header at once, however
    long it says that it is, and follows headers to headers.
    """

    def __init__(self, inner: io.BufferedIOBase, over: Over) -> None:
        self._inner, self._over = inner, over
        self.tell, self.close = inner.tell, inner.close
        self.mode, self.name = "rb", ""
        self.left: float = HEADERS

    def read(self, size: int = -1) -> bytes:
        self._look()
        if size < 0 or size > min(CHUNK, self.left):
            raise Refused(f"the archive has a header of {size} bytes or more, and no file has so long a name")
        self.left -= size
        return self._inner.read(size)

    def seek(self, where: int) -> int:
        """What is compressed is read up to there."""
        for there in range(self.tell() + CHUNK, where, CHUNK):
            self._look()
            self._inner.seek(there)
        return self._inner.seek(where)

    def _look(self) -> None:
        if self._over():
            raise TurnOver
