"""The SHA-256 of each release file that may be used: lines of `checksums.txt`, which is a file of this repository.

A host that gives a program and its digest decides both. A digest that was written down before, by whoever reviewed it, is
the same for everybody and for every mirror.
"""

import re
from collections.abc import Mapping
from pathlib import Path

FILE = Path(__file__).with_name("checksums.txt")
LINE = re.compile(r"([0-9a-f]{64})  (\S+)")
"""As `sha256sum` prints it; the name is the file's path below the address of its releases (`Tool.archive`)."""


def read() -> dict[str, str]:
    """Path of a release file -> its digest."""
    lines = (LINE.fullmatch(line) for line in FILE.read_text(encoding="utf-8").splitlines())
    return {found[2]: found[1] for found in lines if found}


def write(known: Mapping[str, str]) -> None:
    """All lines, by path."""
    FILE.write_text("".join(f"{known[path]}  {path}\n" for path in sorted(known)), encoding="utf-8")
