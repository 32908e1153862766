"""Hashes that sources name for their files, and the reader that checks one of them while bytes come by.

A file is checked by the strongest hash that its source gives: SHA-256 (LFS and Xet objects, layers, what SHA256SUMS names),
git's blob id (SHA-1 over a header and the bytes), MD5, or the MD5 of the parts' MD5s that S3 shows for uploads in parts.
Without any of these only the size can be checked, and the manifest says so.
"""

import hashlib
import zlib
from typing import Any, NamedTuple

BLOCK = 64 * 1024 * 1024
"""Bytes per block of a manifest: what a later look at the disk reads at least."""


class Hash(NamedTuple):
    """What the bytes of a file must come to."""

    algorithm: str
    """sha256, git, md5, s3-parts:<bytes per part>[,…] (one of these sizes), or size (no hash is known)."""
    value: str
    """Hexadecimal; "" for size."""

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.value}"

    @property
    def called(self) -> str:
        """The algorithm in the words of a sentence."""
        return _CALLED[self.algorithm.partition(":")[0]]

    @classmethod
    def read(cls, text: str) -> "Hash":
        """The inverse of `str`."""
        algorithm, _, value = text.rpartition(":")
        return cls(algorithm, value)


SIZE_ONLY = Hash("size", "")
_CALLED = {"sha256": "SHA-256", "git": "git blob id", "md5": "MD5", "s3-parts": "MD5 of its parts", "size": "size"}


class Checker:
    """Feed it a file's bytes in order; then it knows whether they are right, and the check sums of the blocks."""

    def __init__(self, wanted: Hash, size: int) -> None:
        self._wanted, self._size = wanted, size
        self._hashes = _digests(wanted.algorithm, size)
        self.count = 0
        self._blocks: list[int] = []
        self._crc = 0

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """More bytes."""
        for one in self._hashes:
            one.update(data)
        view = memoryview(data)
        while view:
            room = BLOCK - self.count % BLOCK
            part, view = view[:room], view[room:]
            self._crc = zlib.crc32(part, self._crc)
            self.count += len(part)
            if self.count % BLOCK == 0:
                self._blocks.append(self._crc)
                self._crc = 0

    @property
    def complete(self) -> bool:
        """Whether these are as many bytes as wanted, with the hash that was wanted. Ask at the end only."""
        right = not self._hashes or any(one.hexdigest() == self._wanted.value for one in self._hashes)
        return self.count == self._size and right

    @property
    def blocks(self) -> tuple[int, ...]:
        """CRC-32 of every block, for later looks at the disk."""
        return (*self._blocks, self._crc) if self.count % BLOCK else tuple(self._blocks)


class _Parts:
    """S3's ETag of an upload in parts: the MD5 of the parts' MD5s, a dash, and how many parts there are."""

    def __init__(self, size: int) -> None:
        self._size, self._done, self._count = size, hashlib.md5(usedforsecurity=False), 0
        self._part, self._have = hashlib.md5(usedforsecurity=False), 0

    def update(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        while view:
            piece, view = view[: self._size - self._have], view[self._size - self._have :]
            self._part.update(piece)
            self._have += len(piece)
            if self._have == self._size:
                self._close()

    def _close(self) -> None:
        self._done.update(self._part.digest())
        self._count += 1
        self._part, self._have = hashlib.md5(usedforsecurity=False), 0

    def hexdigest(self) -> str:
        if self._have:
            self._close()
        return f"{self._done.hexdigest()}-{self._count}"


def _digests(algorithm: str, size: int) -> list[Any]:
    if algorithm == "sha256":
        return [hashlib.sha256()]
    if algorithm == "git":
        return [hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)]
    if algorithm == "md5":
        return [hashlib.md5(usedforsecurity=False)]
    if algorithm.startswith("s3-parts:"):
        return [_Parts(int(one)) for one in algorithm.partition(":")[2].split(",")]
    if algorithm == "size":
        return []
    raise ValueError(f"no such hash: {algorithm}")


MIB = 1024 * 1024
_USUAL = (5, 8, 10, 15, 16, 20, 25, 32, 50, 64, 100, 128, 256, 512, 1024)
"""MiB per part that tools use."""


def from_etag(etag: str | None, size: int) -> Hash:
    """What an object store's ETag says about the bytes: MD5, or MD5 of the parts, whose size has to be found out."""
    text = (etag or "").strip('"').lower()
    value, _, count = text.partition("-")
    if len(value) != 32 or set(value) - set("0123456789abcdef"):
        return SIZE_ONLY
    if not count:
        return Hash("md5", text)
    if not count.isdigit() or int(count) < 1:
        return SIZE_ONLY
    if count == "1":
        return Hash(f"s3-parts:{max(size, 1)}", text)
    fitting = range(-(-size // int(count)), -(-size // (int(count) - 1)))  # bytes per part that make so many parts
    sizes = [one * MIB for one in _USUAL if one * MIB in fitting]
    if not sizes:
        sizes = list(range(-(-fitting.start // MIB) * MIB, fitting.stop, MIB))
    return Hash("s3-parts:" + ",".join(map(str, sizes)), text) if 0 < len(sizes) <= 4 else SIZE_ONLY
