"""Hashes that sources publish for their files, and a checker that verifies a hash while the bytes are received.

A file is verified by the strongest hash that its source publishes: SHA-256 (LFS and Xet objects, layers, files in
SHA256SUMS), git's blob id (SHA-1 over a header and the bytes), MD5, or the MD5 of the parts' MD5s that S3 publishes for
multipart uploads. If none of these is published, only the size is verified, and the manifest records this.
"""

import hashlib
import zlib
from typing import Any, NamedTuple

from ome_operator import quantity

BLOCK = 64 * 1024 * 1024
"""Number of bytes per block. The manifest contains a checksum of each block. A periodic verification of a file reads at
least one block."""


class Hash(NamedTuple):
    """The expected hash of a file."""

    algorithm: str
    """Name of the algorithm: sha256, git, md5, s3-parts:<bytes per part>[,…] (an MD5 of the parts' MD5s; the part size is
    one of the listed values), or size (only the size is known)."""
    value: str
    """Expected hash in hexadecimal digits; "" for the algorithm `size`."""

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.value}"

    @property
    def algorithm_name(self) -> str:
        """The name of the algorithm in messages."""
        return _CALLED[self.algorithm.partition(":")[0]]

    @classmethod
    def parse(cls, text: str) -> "Hash":
        """Parse a hash from the text that `str` returns."""
        algorithm, _, value = text.rpartition(":")
        return cls(algorithm, value)


SIZE_ONLY = Hash("size", "")
_CALLED = {"sha256": "SHA-256", "git": "git blob id", "md5": "MD5", "s3-parts": "MD5 of its parts", "size": "size"}


class Checker:
    """Verifies the bytes of a file, which are passed in order, and calculates the checksums of its blocks."""

    def __init__(self, wanted: Hash, size: int) -> None:
        self._wanted, self._size = wanted, size
        self._hashes = _digests(wanted.algorithm, size)
        self.count = 0
        self._blocks: list[int] = []
        self._crc = 0

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Process the next bytes of the file."""
        for hasher in self._hashes:
            hasher.update(data)
        view = memoryview(data)
        while view:
            missing = BLOCK - self.count % BLOCK
            part, view = view[:missing], view[missing:]
            self._crc = zlib.crc32(part, self._crc)
            self.count += len(part)
            if self.count % BLOCK == 0:
                self._blocks.append(self._crc)
                self._crc = 0

    @property
    def is_complete(self) -> bool:
        """Whether all bytes were received and have the expected hash. Read this property only when no more bytes will
        follow.
        """
        right = not self._hashes or any(hasher.hexdigest() == self._wanted.value for hasher in self._hashes)
        return self.count == self._size and right

    @property
    def blocks(self) -> tuple[int, ...]:
        """CRC-32 of every block, for later verifications of the file on the disk."""
        return (*self._blocks, self._crc) if self.count % BLOCK else tuple(self._blocks)


class _Parts:
    """A calculation of the ETag of a multipart upload to S3: the MD5 of the parts' MD5s, a dash, and the number of parts."""

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
        return [_Parts(int(part_size)) for part_size in algorithm.partition(":")[2].split(",")]
    if algorithm == "size":
        return []
    raise ValueError(f"unknown hash algorithm: {algorithm}")


MIB = 1024 * 1024
_USUAL = (5, 8, 10, 15, 16, 20, 25, 32, 50, 64, 100, 128, 256, 512, 1024)
"""Part sizes in MiB that common upload tools use."""


def from_etag(etag: str | None, size: int) -> Hash:
    """Return the hash in an object store's ETag: an MD5, or an MD5 of the parts' MD5s with the possible part sizes. `size`
    is the size of the object in bytes. If the ETag is missing (None) or is no MD5, the result is `SIZE_ONLY`, with which
    only the size is verified.
    """
    etag_text = (etag or "").strip('"').lower()
    value, _, count = etag_text.partition("-")
    if len(value) != 32 or set(value) - set("0123456789abcdef"):
        return SIZE_ONLY
    if not count:
        return Hash("md5", etag_text)
    parts = quantity.whole_number(count)
    if not parts:
        return SIZE_ONLY
    if parts == 1:
        return Hash(f"s3-parts:{max(size, 1)}", etag_text)
    part_sizes = range(-(-size // parts), -(-size // (parts - 1)))  # bytes per part that result in this number of parts
    sizes = [mib * MIB for mib in _USUAL if mib * MIB in part_sizes]
    if not sizes:
        sizes = list(range(-(-part_sizes.start // MIB) * MIB, part_sizes.stop, MIB))
    return Hash("s3-parts:" + ",".join(map(str, sizes)), etag_text) if 0 < len(sizes) <= 4 else SIZE_ONLY
