"""Tests of the archive of a compile cache: it keeps what build tools compare, contains regular files only, and anything else
than a complete archive is refused.
"""

import hashlib
import io
import json
import os
from pathlib import Path

import pytest

from ome_operator.compile_cache import archive
from ome_operator.compile_cache.archive import HASH, MAGIC, ChangedError, NoCache, pack, unpack

LIMIT = 1 << 20


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Return a folder as an engine leaves it."""
    folder = tmp_path / "cache"
    for name, text in {"triton/ab/k.cubin": b"\x7fELF", "inductor/x.so": b"code" * 1000, ".ninja_deps": b""}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text)
    (folder / "inductor/x.so").chmod(0o755)
    os.utime(folder / "inductor/x.so", ns=(1, 1_700_000_000_123_456_789))
    return folder


def packed(folder: Path, limit: int = LIMIT) -> bytes:
    """Return the archive of a folder."""
    out = io.BytesIO()
    pack(folder, out, limit)
    return out.getvalue()


def sealed(index: object, contents: bytes = b"") -> bytes:
    """Return an archive with any index, and with the right hash."""
    text = json.dumps(index).encode()
    whole = MAGIC + len(text).to_bytes(8, "big") + text + contents
    return whole + hashlib.sha256(whole).digest()


def test_archive_keeps_contents_modes_and_times(cache: Path, tmp_path: Path) -> None:
    data = packed(cache)
    assert unpack(io.BytesIO(data), len(data), tmp_path / "copy") == (3, 4004)
    for path in (each for each in cache.rglob("*") if each.is_file()):
        copy = tmp_path / "copy" / path.relative_to(cache)
        assert copy.read_bytes() == path.read_bytes()
        assert copy.stat().st_mtime_ns == path.stat().st_mtime_ns
    assert (tmp_path / "copy/inductor/x.so").stat().st_mode & 0o777 == 0o755


def test_an_archive_of_another_format_is_refused(cache: Path, tmp_path: Path) -> None:
    """An archive of another format is refused, because a later version of this program may have sealed it."""
    body = packed(cache)[:-HASH].replace(MAGIC, MAGIC.replace(b"1", b"2"))
    data = body + hashlib.sha256(body).digest()
    with pytest.raises(NoCache, match="another format"):
        unpack(io.BytesIO(data), len(data), tmp_path / "copy")


def test_lock_files_and_model_data_are_omitted(cache: Path, tmp_path: Path) -> None:
    """Lock files are omitted, because torch waits forever for a file named `lock` in the folder of an extension."""
    for name in ("torch_extensions/a/lock", "deep_gemm/locks/k.lock", "ple/table", "model_streamer/x", "jit/ple/kept"):
        (cache / name).parent.mkdir(parents=True, exist_ok=True)
        (cache / name).write_bytes(b"x")
    data = packed(cache)
    unpack(io.BytesIO(data), len(data), tmp_path / "copy")
    found = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*") if path.is_file()}
    assert found == {"triton/ab/k.cubin", "inductor/x.so", ".ninja_deps", "jit/ple/kept"}


def test_link_pipe_or_invalid_name_prevents_the_archive(cache: Path) -> None:
    for make in (lambda path: path.symlink_to("/etc/passwd"), lambda path: path.symlink_to("."), os.mkfifo):
        make(cache / "odd")
        with pytest.raises(NoCache, match="neither a folder nor a regular file"):
            packed(cache)
        (cache / "odd").unlink()
    Path(os.fsdecode(os.fsencode(cache) + b"/\xff")).touch()
    with pytest.raises(NoCache, match="not UTF-8"):
        packed(cache)


def test_size_and_number_of_archived_files_are_limited(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = len(packed(cache))
    assert len(packed(cache, exact)) == exact, "the limit counts the index and the hash, too"
    with pytest.raises(NoCache, match="more than"):
        packed(cache, exact - 1)
    monkeypatch.setattr(archive, "MAX_FILES", 3)
    with pytest.raises(NoCache, match="more than 3 files"):
        packed(cache)


def test_empty_folder_gives_no_archive(tmp_path: Path) -> None:
    with pytest.raises(NoCache, match="compiled nothing"):
        packed(tmp_path)


def test_file_changed_during_archiving_is_detected(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for change in (lambda path: path.write_bytes(b"other code"), lambda path: path.unlink(), lambda path: path.touch()):
        files = archive.entries(cache, LIMIT)
        change(cache / "inductor/x.so")
        with monkeypatch.context() as patch, pytest.raises(ChangedError):
            patch.setattr(archive, "entries", lambda *_, files=files: files)
            packed(cache)
        (cache / "inductor/x.so").write_bytes(b"code")


def test_changed_or_truncated_archive_is_refused(cache: Path, tmp_path: Path) -> None:
    data = packed(cache)
    for at in range(0, len(data), 7):
        changed = bytearray(data)
        changed[at] ^= 1
        with pytest.raises(NoCache):
            unpack(io.BytesIO(bytes(changed)), len(changed), tmp_path / str(at))
    for size in (0, 1, HASH, 40, len(data) // 2, len(data) - 1):
        for stated in (size, len(data)):
            with pytest.raises(NoCache):
                unpack(io.BytesIO(data[:size]), stated, tmp_path / f"{size}-{stated}")


ROW = [0, 0o644, 1]
BAD = {
    "above": [["../x", *ROW]],
    "absolute": [["/x", *ROW]],
    "no name": [["", *ROW]],
    "a dot": [["a/./x", *ROW]],
    "an empty part": [["a//x", *ROW]],
    "zero byte": [["a\0", *ROW]],
    "long": [["x" * 1025, *ROW]],
    "twice": [["x", *ROW], ["x", *ROW]],
    "number": [[1, *ROW]],
    "negative": [["x", -1, 0, 0]],
    "huge": [["x", 1 << 62, 0, 0]],
    "a text": [["x", "0", 0, 0]],
    "true": [["x", False, 0, 0]],
    "short": [["x"]],
    "no list": {"x": 1},
    "a null": None,
    "nothing": [],
    "bytes that are missing": [["x", 1, 0, 0]],
}


@pytest.mark.parametrize("index", BAD.values(), ids=list(BAD))
def test_invalid_index_with_a_valid_hash_is_refused(index: object, tmp_path: Path) -> None:
    data = sealed(index)
    with pytest.raises(NoCache):
        unpack(io.BytesIO(data), len(data), tmp_path / "copy")
    assert [path.name for path in tmp_path.rglob("*")] in ([], ["copy"])


def test_path_that_is_both_file_and_folder_is_refused(tmp_path: Path) -> None:
    data = sealed([["a", *ROW], ["a/b", *ROW]])
    with pytest.raises((NoCache, OSError)):
        unpack(io.BytesIO(data), len(data), tmp_path / "copy")


def test_trailing_bytes_are_refused(cache: Path, tmp_path: Path) -> None:
    data = sealed([["x", *ROW]], b"more")
    with pytest.raises(NoCache, match="size"):
        unpack(io.BytesIO(data), len(data), tmp_path / "copy")
