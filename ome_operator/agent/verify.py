"""Verify files again after their download: the sizes of all files, and the checksums of a sample of the blocks."""

import random
import zlib
from pathlib import Path
from typing import NamedTuple

from ome_operator.agent.disk_files import CHUNK
from ome_operator.agent.store import Manifest, VerifiedFile
from ome_operator.storage.hashes import BLOCK


class DamagedFile(NamedTuple):
    """A file that differs from its manifest."""

    name: str
    why: str


def find_damaged_files(root: Path, manifest: Manifest, *, sample: float, chance: random.Random) -> list[DamagedFile]:
    """Check every file's size and the checksums of a random share `sample` (0 to 1) of all blocks, at least of one block.
    Return the damaged files. With `sample` 1, all bytes are read.
    """
    damages, blocks = [], []
    for file in manifest.files:
        try:
            size = (root / file.name).stat().st_size
        except OSError as error:
            damages.append(DamagedFile(file.name, error.strerror or "gone"))
            continue
        if size != file.size:
            damages.append(DamagedFile(file.name, f"{size} bytes instead of {file.size}"))
            continue
        blocks += [(file, number) for number in range(len(file.blocks))]
    sampled = min(len(blocks), max(1, round(len(blocks) * sample)))
    for file, number in chance.sample(blocks, sampled):
        if block_crc(root / file.name, number) != file.blocks[number]:
            damages.append(
                DamagedFile(file.name, f"the bytes from offset {number * BLOCK} differ from the downloaded bytes")
            )
    return damages


def block_crc(path: Path, number: int) -> int:
    """Return the CRC-32 of a block of a file. `number` is the index of the block, from 0; a block has `hashes.BLOCK`
    bytes.
    """
    crc, left = 0, BLOCK
    with path.open("rb") as stream:
        stream.seek(number * BLOCK)
        while left and (data := stream.read(min(CHUNK, left))):
            crc = zlib.crc32(data, crc)
            left -= len(data)
    return crc


def is_intact(root: Path, file: VerifiedFile) -> bool:
    """Return whether all blocks of a file are unchanged."""
    path = root / file.name
    try:
        if path.stat().st_size != file.size:
            return False
        return all(block_crc(path, number) == crc for number, crc in enumerate(file.blocks))
    except OSError:
        return False
