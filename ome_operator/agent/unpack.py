"""Taking the files out of a tar archive whose hash was right."""

import hashlib
import os
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from ome_operator.agent.store import CHUNK, Proven
from ome_operator.storage.hashes import SIZE_ONLY, Checker, Hash
from ome_operator.storage.listing import Refused, inside


def unpack(archive: Path, into: Path, leading: str) -> list[Proven]:
    """Write the members of a tar or tar+gzip archive below a directory, on the disk when this returns, and prove them.

    The directory `leading` is taken away from the names if they begin with it. Raises Refused for what is no archive, and
    for members that are no plain files: weights need no links.
    """
    try:
        with tarfile.open(archive, "r:*") as opened:
            found = [_write(opened, one, into, name) for one, name in _files(opened, leading)]
    except FileExistsError as error:
        raise Refused(f"two layers have a file {str(Path(error.filename).relative_to(into))!r}: push it once") from error
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise Refused(f"it is no tar archive that can be read ({type(error).__name__})") from error
    if not found:
        raise Refused("the archive holds no files")
    return found


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
        if not one.isreg() or not inside(name) or name in names or not name.startswith(below):
            raise Refused(f"the archive holds {one.name!r}, which is no plain file of its own below the model's directory")
        names.add(name)
        yield one, name.removeprefix(below)


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, into: Path, name: str) -> Proven:
    place, source = into / name, archive.extractfile(member)
    assert source is not None  # it is a plain file
    place.parent.mkdir(parents=True, exist_ok=True)
    sha, checker = hashlib.sha256(), Checker(SIZE_ONLY, member.size)
    with place.open("xb") as out:  # never over a file that is proven already
        while data := source.read(CHUNK):
            out.write(data)
            sha.update(data)
            checker.update(data)
        out.flush()
        os.fsync(out.fileno())
    place.chmod(0o644)
    return Proven(name, member.size, Hash("sha256", sha.hexdigest()), checker.blocks)
