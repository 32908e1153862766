"""Taking the files out of a tar archive whose hash was right. Whoever packed it is taken for hostile."""

import gzip
import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, cast

from ome_operator.agent.room import enough
from ome_operator.agent.store import CHUNK, Proven
from ome_operator.storage.hashes import SIZE_ONLY, Checker, Hash
from ome_operator.storage.listing import MOST, Refused, inside

_GZIP = b"\x1f\x8b"


def unpack(archive: Path, into: Path, leading: str, room: int) -> list[Proven]:
    """Write the members of a tar or tar+gzip archive below a directory, on the disk when this returns, and prove them.

    The directory `leading` is taken away from the names if they begin with it. Raises Refused for what is no archive, for
    members that are no plain files (weights need no links), and for more than `room` bytes of them; then nothing is left.
    """
    written: list[Path] = []
    try:
        with _opened(archive) as opened:
            wanted = _fitting(opened, leading, room)
        with _opened(archive) as opened:
            found = [_write(opened, one, into, name, written) for one, name in _files(opened, leading)]
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
    size = count = 0
    for count, (one, _) in enumerate(_files(archive, leading), 1):
        size += one.size
        enough(size, room, "the archive")
        if count > MOST:
            raise Refused(f"the archive holds more than {MOST} files, which no model has")
    return count


def _files(archive: tarfile.TarFile, leading: str) -> Iterator[tuple[tarfile.TarInfo, str]]:
    """Every file and what it is to be called."""
    names: set[str] = set()
    below = ""
    for one in archive:
        if one.isdir():
            continue
        name = str(PurePosixPath(one.name))
        if not names and leading and name.startswith(f"{leading}/"):
            below = f"{leading}/"
        # A sparse member says that it is as long as it likes, and the archive does not hold these bytes.
        if not one.isreg() or one.issparse() or not inside(name) or name in names or not name.startswith(below):
            raise Refused(
                f"the archive holds {one.name[:200]!r}, which is no plain file of its own below the model's directory"
            )
        names.add(name)
        yield one, name.removeprefix(below)


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
def _opened(archive: Path) -> Iterator[tarfile.TarFile]:
    with archive.open("rb") as file:
        zipped = file.read(2) == _GZIP
        file.seek(0)
        inner = cast(io.BufferedIOBase, gzip.GzipFile(fileobj=file)) if zipped else file
        with tarfile.open(fileobj=cast(Any, _Bounded(inner)), mode="r:") as opened:
            yield opened


class _Bounded:
    """A file that is read in pieces: tarfile reads an extended header at once, however long it says that it is."""

    def __init__(self, inner: io.BufferedIOBase) -> None:
        self._inner = inner
        self.seek, self.tell, self.close = inner.seek, inner.tell, inner.close
        self.mode, self.name = "rb", ""

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > CHUNK:
            raise Refused(f"the archive has a header of {size} bytes, and no file has so long a name")
        return self._inner.read(size)
