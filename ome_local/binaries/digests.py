"""The SHA-256 of each release file that may be used, from `checksums.txt` in this repository.

A host that serves both a program and its digest could change both. A reviewed and committed digest is the same for all users
and all mirrors.
"""

import re
from collections.abc import Mapping
from pathlib import Path

FILE = Path(__file__).with_name("checksums.txt")
LINE = re.compile(r"([0-9a-f]{64})  (\S+)")
"""Pattern of a line, as `sha256sum` writes it. The name is the file's path below the base address of its releases
(`Tool.archive`)."""


def read_digests() -> dict[str, str]:
    """Return a map from the path of a release file to its digest."""
    lines = (LINE.fullmatch(line) for line in FILE.read_text(encoding="utf-8").splitlines())
    return {found[2]: found[1] for found in lines if found}


def write(known: Mapping[str, str]) -> None:
    """Write the digests as lines, sorted by path."""
    FILE.write_text("".join(f"{known[path]}  {path}\n" for path in sorted(known)), encoding="utf-8")
