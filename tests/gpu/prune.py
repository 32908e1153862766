"""Removes machine code for other GPUs from shared libraries, so that they are small enough for a machine without network.

    python tests/gpu/prune.py 90 LIBRARY...        # compute capability 9.0: H100 and H200

The sizes of the files stay the same: removed code becomes zeros, which compress well. If a library has several parts, each
part keeps the code for that GPU or, if it has none, the PTX that the driver can compile. Needs readelf.
"""

import mmap
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MAGIC = 0xBA55ED50
"""Format of the beginning of a part: magic, version, size of this header, and size of the data behind the header."""
PTX, ELF = 1, 2
Entry = tuple[int, int, int, int]
"""Kind, compute capability, offset of the code, and its size in bytes."""


def sections(path: str) -> list[tuple[int, int]]:
    """Return the offset and size of each section that holds GPU code."""
    told = subprocess.run(["readelf", "-SW", path], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"\] (?:\.nv_fatbin|__nv_relfatbin)\s+\S+\s+\S+\s+([0-9a-f]+)\s+([0-9a-f]+)", told)
    return [(int(offset, 16), int(size, 16)) for offset, size in found]


def parts(data: mmap.mmap, begin: int, size: int) -> Iterator[list[Entry]]:
    """Yield the entries of each part of a section."""
    at, end = begin, begin + size
    while at + 16 <= end:
        magic, _, header, length = struct.unpack_from("<IHHQ", data, at)
        if magic != MAGIC:
            at += 8
            continue
        one, stop, entries = at + header, at + header + length, []
        while one + 32 <= stop:
            kind, _, head, code = struct.unpack_from("<HHIQ", data, one)
            (capability,) = struct.unpack_from("<I", data, one + 28)
            if kind not in (PTX, ELF) or not 32 <= head <= 4096:
                raise SystemExit(f"{one:#x} is no entry that is known here")
            entries.append((kind, capability, one + head, code))
            one += head + code
        yield entries
        at = stop


def prune(path: str, wanted: int) -> tuple[int, int]:
    """Replace code that is not wanted by zeros. Return the numbers of bytes that were kept and replaced."""
    kept = cut = 0
    with Path(path).open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        for section in sections(path):
            for entries in parts(data, *section):
                has = any(kind == ELF and capability == wanted for kind, capability, _, _ in entries)
                for kind, capability, at, size in entries:
                    if (kind == ELF and capability == wanted) if has else (kind == PTX and capability <= wanted):
                        kept += size
                    else:
                        data[at : at + size] = bytes(size)
                        cut += size
    return kept, cut


def main(wanted: int, paths: list[str]) -> None:
    """Prune each library, and print the result."""
    for path in paths:
        kept, cut = prune(path, wanted)
        print(f"{path}: {kept >> 20} MiB kept, {cut >> 20} MiB cut")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
