"""Archives of strangers: nothing is written that was not asked for, and nothing without bounds (S9 of the review)."""

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ome_operator.agent.unpack import unpack
from ome_operator.storage.listing import Refused

MB = 1024 * 1024


def member(name: str = "model.bin", size: int = 3, **more: object) -> tarfile.TarInfo:
    """A plain file's header."""
    made = tarfile.TarInfo(name)
    made.size = size
    for key, value in more.items():
        setattr(made, key, value)
    return made


def tar(*members: tarfile.TarInfo, zipped: bool = False) -> bytes:
    """An archive of these members, their bytes being zeros."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for item in members:
            archive.addfile(item, io.BytesIO(bytes(item.size)) if item.isreg() else None)
    return gzip.compress(out.getvalue()) if zipped else out.getvalue()


def gnu_sparse(size: int) -> bytes:
    """One member of the old GNU form that says to be so long and holds 512 bytes."""
    header = bytearray(member("model.bin", 512).tobuf(tarfile.GNU_FORMAT))
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[386:398], header[398:410] = b"00000000000\0", b"00000001000\0"
    header[483:495] = b"%011o\0" % size
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(512) + bytes(1024)


def pax_sparse(size: int) -> bytes:
    """The same in a header of the PAX form, as GNU tar writes it (1.0)."""
    said = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "model.bin",
        "GNU.sparse.realsize": str(size),
    }
    body = b"1\n0\n512\n".ljust(512, b"\0") + bytes(512)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(member("GNUSparseFile.0/model.bin", len(body), pax_headers=said), io.BytesIO(body))
    return out.getvalue()


def long_header(size: int) -> bytes:
    """A name of so many bytes: tarfile reads it at once."""
    header = member("././@LongLink", size, type=tarfile.GNUTYPE_LONGNAME).tobuf(tarfile.GNU_FORMAT)
    return gzip.compress(header + bytes(size))


def take(folder: Path, data: bytes, room: int = 64 * MB) -> list[str]:
    """Unpack it; the names that came out."""
    (folder / "archive").write_bytes(data)
    into = folder / "files"
    into.mkdir(exist_ok=True)
    return [item.name for item in unpack(folder / "archive", into, "", room)]


@pytest.mark.parametrize("made", [gnu_sparse, pax_sparse])
def test_a_sparse_member_writes_nothing(made: Callable[[int], bytes], tmp_path: Path) -> None:
    """10 kB of archive, 3 GiB on the disk of every node."""
    data = made(3 * 1024 * MB)
    assert len(data) < 12_000
    with pytest.raises(Refused, match="no plain file"):
        take(tmp_path, data)
    assert used(tmp_path / "files") == 0


@pytest.mark.parametrize("zipped", [False, True])
def test_an_archive_that_needs_more_than_there_is_writes_nothing(zipped: bool, tmp_path: Path) -> None:
    data = tar(*(member(f"part-{number}", 8 * MB) for number in range(8)), zipped=zipped)
    with pytest.raises(Refused, match=r"the archive holds 40\.0 MiB, and there is room for 32\.0 MiB"):
        take(tmp_path, data, 32 * MB)
    assert used(tmp_path / "files") == 0
    assert len(take(tmp_path, data)) == 8


def test_a_header_is_not_read_whole_however_long_it_is(tmp_path: Path) -> None:
    """64 MiB of a name in 65 kB; with gigabytes the agent would end."""
    data = long_header(64 * MB)
    assert len(data) < 100_000
    with pytest.raises(Refused, match="header of"):
        take(tmp_path, data)


LINKS = {
    "a symbolic link": member(type=tarfile.SYMTYPE, linkname="/etc/passwd", size=0),
    "a hard link": member(type=tarfile.LNKTYPE, linkname="/etc/passwd", size=0),
    "a character device": member(type=tarfile.CHRTYPE, size=0),
    "a block device": member(type=tarfile.BLKTYPE, size=0),
    "a fifo": member(type=tarfile.FIFOTYPE, size=0),
    "a way up": member("../model.bin"),
    "a way up in between": member("a/../../model.bin"),
    "a place of its own": member("/etc/model.bin"),
}


@pytest.mark.parametrize("name", LINKS)
def test_what_is_no_plain_file_below_is_refused_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no plain file"):
        take(tmp_path, tar(member("first.bin"), LINKS[name]))
    assert [item.name for item in (tmp_path / "files").iterdir()] == []


def test_what_a_failed_unpacking_wrote_is_gone(tmp_path: Path) -> None:
    """The second member's bytes are missing; the first is whole."""
    whole = tar(member("first.bin", MB), member("second.bin", MB))
    with pytest.raises(Refused, match="no tar archive that can be read"):
        take(tmp_path, whole[: MB + 4096])
    assert used(tmp_path / "files") == 0


def test_rights_of_a_member_do_not_count(tmp_path: Path) -> None:
    take(tmp_path, tar(member("run.sh", mode=0o6777)))
    assert (tmp_path / "files" / "run.sh").stat().st_mode & 0o7777 == 0o644


def used(folder: Path) -> int:
    """Bytes of all files below."""
    return sum(item.stat().st_size for item in folder.rglob("*") if item.is_file())
