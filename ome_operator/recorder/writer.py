"""A child process that redacts recordings and writes them to a file, so that a text that takes long, or needs much memory,
does not affect the operator (docs/recorder.md).

The process reads lines of JSON from its standard input: the first fields of the file, and then a line for each service, as
`recording.passes_as_json` returns it. It prints the number of services in the file.
"""

import gzip
import json
import os
import resource
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ome_operator.recorder.redaction import redact_passes
from ome_operator.util.wording import error_text

LARGEST = 12 * 2**20
"""Size of a file in bytes from which no further service is written to it. The chart's volume (64 MiB) has space for the
four files of this size that the operator keeps."""
MEMORY = 512 * 2**20
"""Bytes of address space that the process may use, because the memory limit of the operator's container includes this
process. A service whose passes are 16 MB of JSON needed 200 MiB."""
SECONDS = 600
"""Seconds of processor time that the process may use."""


def write(path: Path, lines: Iterable[bytes], largest: int = LARGEST) -> int:
    """Write a file that only this user can read. Return the number of services in the file. Raises OSError if the file
    cannot be written.

    A service that needs more memory or deeper nesting than the limits permit is left out, so that a tenant cannot prevent
    the recording of all other services.
    """
    where = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    count, rest = 0, iter(lines)
    with os.fdopen(where, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6, mtime=0) as file:
        file.write(next(rest).rstrip()[:-1] + b', "services": {')
        for line in rest:
            if raw.tell() > largest:
                break
            try:
                entry = _entry(line)
            except (MemoryError, RecursionError):
                continue
            file.write((",\n" if count else "\n").encode() + entry.encode())
            count += 1
        file.write(b"}}\n")
    return count


def _entry(line: bytes) -> str:
    """Return a service's entry of the file: its name and its redacted recording, as JSON without the outer braces."""
    service: dict[str, Any] = json.loads(line)
    return json.dumps({service["service"]: redact_passes(service)})[1:-1]


def main() -> None:
    """Write the file that the first argument of the command line names. The second argument is the largest size of the file
    in bytes.
    """
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    path, largest = sys.argv[1:]
    try:
        print(write(Path(path), sys.stdin.buffer, int(largest)))
    except (OSError, MemoryError) as error:
        sys.exit(error_text(error))


if __name__ == "__main__":
    main()
