"""Tests of archives from untrusted sources: nothing is written outside the requested files, and memory and disk space are
limited (S9 of the review).
"""

import gzip
import io
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from ome_operator.agent.fair_queue import TurnExpired
from ome_operator.agent.unpack import unpack
from ome_operator.storage.listing import RequestRefused

MB = 1024 * 1024


def member(name: str = "model.bin", size: int = 3, **more: object) -> tarfile.TarInfo:
    """Return the header of a regular file."""
    made = tarfile.TarInfo(name)
    made.size = size
    for key, value in more.items():
        setattr(made, key, value)
    return made


def tar(*members: tarfile.TarInfo, zipped: bool = False) -> bytes:
    """Return an archive of these members, whose content consists of zeros."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for item in members:
            archive.addfile(item, io.BytesIO(bytes(item.size)) if item.isreg() else None)
    return gzip.compress(out.getvalue()) if zipped else out.getvalue()


def gnu_sparse(size: int) -> bytes:
    """Return an archive with a sparse member of the old GNU format. The member declares this size and contains 512 bytes."""
    header = bytearray(member("model.bin", 512).tobuf(tarfile.GNU_FORMAT))
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[386:398], header[398:410] = b"00000000000\0", b"00000001000\0"
    header[483:495] = b"%011o\0" % size
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(512) + bytes(1024)


def pax_sparse(size: int) -> bytes:
    """Return an archive with a sparse member of the PAX format, as GNU tar writes it (1.0). It declares this size and
    contains 512 bytes.
    """
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
    """Return an archive with a header that contains a name of this size. tarfile reads such a name as a whole."""
    header = member("././@LongLink", size, type=tarfile.GNUTYPE_LONGNAME).tobuf(tarfile.GNU_FORMAT)
    return gzip.compress(header + bytes(size))


def take(folder: Path, data: bytes, room: int = 64 * MB) -> list[str]:
    """Unpack the archive, and return the names of the files."""
    (folder / "archive").write_bytes(data)
    into = folder / "files"
    into.mkdir(exist_ok=True)
    return [item.name for item in unpack(folder / "archive", into, room)]


@pytest.mark.parametrize("made", [gnu_sparse, pax_sparse])
def test_sparse_archive_member_is_refused(made: Callable[[int], bytes], tmp_path: Path) -> None:
    """A sparse member of an archive is refused, and nothing is written. Otherwise an archive of 10 kB would write 3 GiB on
    the disk of every node.
    """
    data = made(3 * 1024 * MB)
    assert len(data) < 12_000
    with pytest.raises(
        RequestRefused, match=r"which is outside the model.s directory, occurs twice or is not a regular file"
    ):
        take(tmp_path, data)
    assert used(tmp_path / "files") == 0


@pytest.mark.parametrize("zipped", [False, True])
def test_archive_larger_than_free_space_writes_nothing(zipped: bool, tmp_path: Path) -> None:
    data = tar(*(member(f"part-{number}", 8 * MB) for number in range(8)), zipped=zipped)
    with pytest.raises(RequestRefused, match=r"the archive contains 40\.0 MiB, but only 32\.0 MiB are available"):
        take(tmp_path, data, 32 * MB)
    assert used(tmp_path / "files") == 0
    assert len(take(tmp_path, data)) == 8


def test_long_archive_header_is_refused_without_reading_it_completely(tmp_path: Path) -> None:
    """A header of any length is refused without being read completely. Here, 65 kB of compressed data contain a header with
    a name of 64 MiB; with several gigabytes, the agent would run out of memory.
    """
    data = long_header(64 * MB)
    assert len(data) < 100_000
    with pytest.raises(RequestRefused, match="header of"):
        take(tmp_path, data)


def directories(count: int) -> bytes:
    """Return a tar.gz archive of one file and this number of directories, of which each takes 3 compressed bytes."""
    made = [member(f"d{number}", 0, type=tarfile.DIRTYPE).tobuf() for number in range(count)]
    return gzip.compress(b"".join([*made, tar(member())]), 1)


def test_directories_count_toward_file_limit_of_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories count like files towards the limit of an archive. Reported: an archive of 1.08 MB with 400,000 directories
    took 150 MiB and 14 s.
    """
    monkeypatch.setattr("ome_operator.agent.unpack.MAX_FILES", 1000)
    assert take(tmp_path, directories(999)) == ["model.bin"]
    with pytest.raises(RequestRefused, match="more than 1000 files and directories"):
        take(tmp_path, directories(1000))


def test_unpacking_keeps_no_global_headers_in_memory(tmp_path: Path) -> None:
    """Unpacking keeps no header in memory. The list of members that tarfile keeps, with the contents of all global headers,
    would take 41 MiB for the thousand headers of this test.
    """
    said = [tarfile.TarInfo.create_pax_global_header({f"key{number}": "v" * 20_000}) for number in range(500)]
    made = [member(f"m{number}", pax_headers={"comment": "c" * 20_000}).tobuf(tarfile.PAX_FORMAT) for number in range(500)]
    data = b"".join(header + item + bytes(512) for header, item in zip(said, made, strict=True)) + bytes(1024)
    tracemalloc.start()
    try:
        assert len(take(tmp_path, data)) == 500
        assert tracemalloc.get_traced_memory()[1] < 10 * MB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["extended", "global", "long name"])
def test_nested_archive_headers_are_limited(kind: str, tmp_path: Path) -> None:
    """A chain of headers about headers is limited. Each header is kept in memory while the next one is read, so 4 MB of
    compressed headers would take gigabytes.
    """
    info = member()
    header = {
        "extended": member(pax_headers={"comment": "c" * 3000}).tobuf(tarfile.PAX_FORMAT)[:-512],
        "global": info.create_pax_global_header({"comment": "c" * 3000}),
        "long name": member("././@LongLink", 3000, type=tarfile.GNUTYPE_LONGNAME).tobuf(tarfile.GNU_FORMAT) + b"n" * 3072,
    }[kind]
    with pytest.raises(RequestRefused, match="header of"):
        take(tmp_path, member("first.bin", 0).tobuf() + header * 30 + tar(info))


def test_total_length_of_archive_names_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ome_operator.agent.unpack.NAMES", 2000)
    with pytest.raises(RequestRefused, match="file names in the archive take more than 2000 bytes"):
        take(tmp_path, tar(*(member(f"{number}/" + "n" * 200) for number in range(10))))


def test_negative_member_size_is_refused(tmp_path: Path) -> None:
    """A member with a negative size is refused. A header of the PAX format can declare such a size, with which tarfile would
    continue to read inside the previous member.
    """
    odd = member("odd.bin", 0, pax_headers={"size": str(-2 * MB)}).tobuf(tarfile.PAX_FORMAT)
    data = member("first.bin", 4 * MB).tobuf() + bytes(4 * MB) + odd + bytes(1024)
    with pytest.raises(
        RequestRefused, match=r"'odd\.bin', which is outside the model.s directory, occurs twice or is not a regular file"
    ):
        take(tmp_path, data)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("looks", [3, 9, 30])
def test_unpacking_stops_when_its_turn_expires(looks: int, zipped: bool, tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(tar(*(member(f"m{number}", 20 * MB) for number in range(3)), zipped=zipped))
    (tmp_path / "files").mkdir()
    left = iter(range(looks))
    with pytest.raises(TurnExpired):
        unpack(tmp_path / "archive", tmp_path / "files", 64 * MB, lambda: next(left, None) is None)
    assert used(tmp_path / "files") == 0


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
def test_link_or_path_outside_the_directory_is_refused_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        RequestRefused, match=r"which is outside the model.s directory, occurs twice or is not a regular file"
    ):
        take(tmp_path, tar(member("first.bin"), LINKS[name]))
    assert [item.name for item in (tmp_path / "files").iterdir()] == []


def test_failed_unpacking_removes_what_it_wrote(tmp_path: Path) -> None:
    """If unpacking fails, everything that was written is removed. The archive ends inside its second member; the first
    member is complete, and is removed, too.
    """
    whole = tar(member("first.bin", MB), member("second.bin", MB))
    with pytest.raises(RequestRefused, match="not a readable tar archive"):
        take(tmp_path, whole[: MB + 4096])
    assert used(tmp_path / "files") == 0


def test_file_modes_of_archive_members_are_ignored(tmp_path: Path) -> None:
    take(tmp_path, tar(member("run.sh", mode=0o6777)))
    assert (tmp_path / "files" / "run.sh").stat().st_mode & 0o7777 == 0o644


def used(folder: Path) -> int:
    """Return the number of bytes in all files below the folder."""
    return sum(item.stat().st_size for item in folder.rglob("*") if item.is_file())
