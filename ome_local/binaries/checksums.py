"""`make checksums`: add missing lines for release files to `checksums.txt`, with digests from the release hosts. Existing
lines stay.

The command is for developers who change a version and can reach the hosts. New lines are not verified: compare them with
published digests before you commit them.
"""

import sys
from collections.abc import Iterator

from ome_local.binaries import digests, releases
from ome_local.binaries.versions import CLIENTS, KUBERNETES, OTHERS, Target, Tool, tools

LINUX, MACOS = ([Target(system, arch) for arch in ("amd64", "arm64")] for system in ("linux", "darwin"))


def files() -> Iterator[tuple[str, Tool, Target]]:
    """Yield (path, program, platform) for each release file that `ome local` may download."""
    for tool in {tool for version in (KUBERNETES, *OTHERS) for tool in tools(version).values() if tool.archive}:
        for target in (*LINUX, *(MACOS if tool.name in CLIENTS else ())):
            yield tool.fill(tool.archive, target), tool, target


def main() -> int:
    """Request all digests, print the results, and add missing lines. Return exit code 1 if the digest from a host
    contradicts an existing line, otherwise 0.
    """
    known, contradicted = digests.read_digests(), False
    expected = {path: (tool, target) for path, tool, target in files()}
    for path, (tool, target) in sorted(expected.items()):
        try:
            given = releases.published_digest(tool, target)
        except releases.Unavailable as reason:
            if path not in known:
                _say(f"{path}: no digest was found: {reason}")
            continue
        if path not in known:
            known[path] = given
            _say(f"{path}: added")
        elif known[path] != given:
            contradicted = True
            _say(
                f"{path}: {tool.address()} has the digest {given}, but the existing line has {known[path]}; the existing "
                "line is kept"
            )
    for path in sorted(known.keys() - expected.keys()):
        _say(f"{path}: no program in ome_local/binaries/versions.py downloads this file: remove its line from checksums.txt")
    digests.write(known)
    return int(contradicted)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
