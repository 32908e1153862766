"""Tests of the process that writes recordings."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

from ome_operator.recorder import writer

HEAD = b'{"version": 1}\n'


def line(service: str, text: str) -> bytes:
    """Return the input line about a service whose passes are this JSON text, as the operator sends it to the process."""
    return f'{{"service": "{service}", "names": [], "passes": {text}}}\n'.encode()


def read(path: Path) -> list[str]:
    return list(json.loads(gzip.decompress(path.read_bytes()))["services"])


def test_deeply_nested_service_is_omitted_from_the_file(tmp_path: Path) -> None:
    lines = [HEAD, line("a/first", "[]"), line("b/deep", "[" * 10**5 + "]" * 10**5), line("c/last", "[]")]
    assert writer.write(tmp_path / "file", lines) == 2
    assert read(tmp_path / "file") == ["a/first", "c/last"]


def test_service_that_exceeds_the_writer_memory_is_omitted(tmp_path: Path) -> None:
    """If the recording of a service needs more memory than the writing process has, only this recording is lost. The values
    in 3 MB of JSON need more than the 128 MiB that the process has here.
    """
    lines = [HEAD, line("a/first", "[]"), line("b/large", f"[{'{},' * 1_000_000}0]"), line("c/last", "[]")]
    program = "from ome_operator.recorder import writer; writer.MEMORY = 2**27; writer.main()"
    command = [sys.executable, "-c", program, str(tmp_path / "file"), str(writer.LARGEST)]
    done = subprocess.run(command, input=b"".join(lines), capture_output=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, b"2"), done.stderr
    assert read(tmp_path / "file") == ["a/first", "c/last"]
