"""Looking again at files that were proven: sizes always, and the check sums of some blocks; and repairing what is wrong."""

import random
import zlib
from pathlib import Path
from typing import NamedTuple

from ome_operator.agent.store import CHUNK, Manifest, Proven
from ome_operator.storage.hashes import BLOCK


class Damage(NamedTuple):
    """A file that is not what it was."""

    name: str
    why: str


def verify(root: Path, manifest: Manifest, *, sample: float, chance: random.Random) -> list[Damage]:
    """Every file's size, and `sample` (0 to 1) of all blocks, at least one. 1 reads everything."""
    found, blocks = [], []
    for one in manifest.files:
        try:
            size = (root / one.name).stat().st_size
        except OSError as error:
            found.append(Damage(one.name, error.strerror or "gone"))
            continue
        if size != one.size:
            found.append(Damage(one.name, f"{size} bytes instead of {one.size}"))
            continue
        blocks += [(one, number) for number in range(len(one.blocks))]
    count = min(len(blocks), max(1, round(len(blocks) * sample)))
    for one, number in chance.sample(blocks, count):
        if block(root / one.name, number) != one.blocks[number]:
            found.append(Damage(one.name, f"bytes from {number * BLOCK} on changed"))
    return found


def block(path: Path, number: int) -> int:
    """CRC-32 of one block of a file."""
    crc, left = 0, BLOCK
    with path.open("rb") as stream:
        stream.seek(number * BLOCK)
        while left and (data := stream.read(min(CHUNK, left))):
            crc = zlib.crc32(data, crc)
            left -= len(data)
    return crc


def intact(root: Path, one: Proven) -> bool:
    """Whether a whole file is as it was."""
    path = root / one.name
    try:
        if path.stat().st_size != one.size:
            return False
        return all(block(path, number) == crc for number, crc in enumerate(one.blocks))
    except OSError:
        return False
