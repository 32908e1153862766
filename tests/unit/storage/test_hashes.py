"""Tests of the hashes that sources state."""

import hashlib
import random
from pathlib import Path

import pytest

from ome_operator.storage.hashes import BLOCK, MIB, SIZE_ONLY, Checker, Hash, from_etag
from ome_operator.storage.listing import RemoteFile, RequestRefused, make_listing

DATA = random.Random(1).randbytes(20 * MIB + 17)


def parts(data: bytes, size: int) -> str:
    """Return the ETag that S3 computes for a multipart upload."""
    found = [hashlib.md5(data[at : at + size]).digest() for at in range(0, len(data), size)]
    return f"{hashlib.md5(b''.join(found)).hexdigest()}-{len(found)}"


def holds(data: bytes, wanted: Hash, size: int | None = None) -> bool:
    """Return whether a checker accepts these bytes, passed in pieces of an odd size."""
    checker = Checker(wanted, len(data) if size is None else size)
    for at in range(0, len(data), 999_983):
        checker.update(data[at : at + 999_983])
    return checker.is_complete


GOOD = [
    Hash("sha256", hashlib.sha256(DATA).hexdigest()),
    Hash("git", hashlib.sha1(b"blob %d\0" % len(DATA) + DATA).hexdigest()),
    Hash("md5", hashlib.md5(DATA).hexdigest()),
    from_etag(f'"{parts(DATA, 8 * MIB)}"', len(DATA)),
    from_etag(parts(DATA, 16 * MIB), len(DATA)),
    from_etag(parts(DATA, len(DATA)), len(DATA)),
]


@pytest.mark.parametrize("wanted", GOOD, ids=str)
def test_correct_bytes_pass_and_one_changed_bit_fails(wanted: Hash) -> None:
    assert holds(DATA, wanted)
    changed = bytearray(DATA)
    changed[12_345_678] ^= 4
    assert not holds(bytes(changed), wanted)
    assert Hash.parse(str(wanted)) == wanted


def test_size_is_verified_even_without_a_hash() -> None:
    assert holds(b"abc", SIZE_ONLY)
    assert not holds(b"abc", SIZE_ONLY, size=4)


def test_etag_that_is_no_md5_gives_no_hash() -> None:
    for etag in (None, "", "0x8DC0FFEE", "CPjq7_DvtoYDEAE=", "a" * 31, f"{'a' * 32}-x", f"{'a' * 32}-0"):
        assert from_etag(etag, 100) == SIZE_ONLY


def test_block_hashes_do_not_depend_on_chunk_sizes() -> None:
    data = bytes(BLOCK) + b"tail"
    one, many = Checker(SIZE_ONLY, len(data)), Checker(SIZE_ONLY, len(data))
    one.update(data)
    for at in range(0, len(data), 7 * MIB):
        many.update(data[at : at + 7 * MIB])
    assert one.blocks == many.blocks and len(one.blocks) == 2


UP = ["../evil", "a/../../b", "a/..", "..", "./../evil", "/etc/passwd", "//etc/passwd", "", ".", "a\0b"]
PLAIN = ["~/x", "..\\x", "x" * 5000]
"""Names that lead out of a directory on other systems and not here, and a name that no file system accepts."""


@pytest.mark.parametrize("name", UP)
def test_file_name_outside_the_directory_is_refused(name: str) -> None:
    with pytest.raises(RequestRefused, match="would be outside the model's directory"):
        make_listing([RemoteFile(name, 1, SIZE_ONLY)])


@pytest.mark.parametrize("name", PLAIN, ids=["home", "backslash", "long"])
def test_unusual_file_name_inside_the_directory_is_accepted(name: str) -> None:
    (found,) = make_listing([RemoteFile(name, 1, SIZE_ONLY)]).files
    assert Path("/models", found.name).resolve().is_relative_to("/models")
