"""`make checksums`: lines for release files that have none in `checksums.txt`, from the hosts. A line that is there stays.

For whoever changes a version and reaches the hosts. What it writes is a first sight: compare it with what others have
written down, then commit it.
"""

import sys
from collections.abc import Iterator

from ome_local.binaries import digests, releases
from ome_local.binaries.versions import CLIENTS, KUBERNETES, OTHERS, Target, Tool, tools

LINUX, MACOS = ([Target(system, arch) for arch in ("amd64", "arm64")] for system in ("linux", "darwin"))


def files() -> Iterator[tuple[str, Tool, Target]]:
    """Each release file that `ome local` may fetch: its path, what it is of, and for which machine."""
    for tool in {tool for version in (KUBERNETES, *OTHERS) for tool in tools(version).values() if tool.archive}:
        for target in (*LINUX, *(MACOS if tool.name in CLIENTS else ())):
            yield tool.fill(tool.archive, target), tool, target


def main() -> int:
    """Ask for all, say what came, and add what was missing. 1: a host gives another digest than the line says."""
    known, contradicted = digests.read(), False
    expected = {path: (tool, target) for path, tool, target in files()}
    for path, (tool, target) in sorted(expected.items()):
        try:
            given = releases.published(tool, target)
        except releases.Unavailable as reason:
            if path not in known:
                _say(f"{path}: no line, and it stays so: {reason}")
            continue
        if path not in known:
            known[path] = given
            _say(f"{path}: added")
        elif known[path] != given:
            contradicted = True
            _say(f"{path}: {tool.address()} gives {given}, and the line, which stays, says {known[path]}")
    for path in sorted(known.keys() - expected.keys()):
        _say(f"{path}: no program of ome_local/binaries/versions.py has this file, remove its line")
    digests.write(known)
    return int(contradicted)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
