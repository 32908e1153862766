"""Measures how much of an engine's time to read cold weights is hidden by the agent's prefetching during the pull of an
image.

The engine copies each file out of a memory map, in the order of their names and in a single thread, as each rank of SGLang
does. The image pull writes to the same disk meanwhile. Three sides run in turn: `cold` without prefetching, `prefetched`,
and `warm`, for which the weights are in the page cache from the beginning. So `warm` is the lower limit.
"""

import mmap
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench.results import Paged
from ome_operator.agent import page_cache
from ome_operator.agent.prefetch import prefetch
from ome_operator.agent.throttle import Throttle

SIDES = ("cold", "prefetched", "warm")
FILES = 8
CHUNK = 8 * 1024 * 1024
PULL_RATE = 50e6
"""Bytes per second that the image pull writes."""
_CALL = "import sys; from pathlib import Path; from bench.page_cache import {0}; {0}(Path(sys.argv[1]), float(sys.argv[2]))"


def measure(size: int, pull_s: float, repeat: int) -> list[Paged]:
    """Measure each side `repeat` times, for weights of `size` bytes and an image pull of `pull_s` seconds. Return all
    results.
    """
    with tempfile.TemporaryDirectory(prefix="ome-bench-") as folder:
        weights = Path(folder) / "weights"
        _write(weights, size)
        orders = (SIDES if number % 2 == 0 else SIDES[::-1] for number in range(repeat))
        return [_once(side, weights, size, pull_s) for order in orders for side in order]


def _write(folder: Path, size: int) -> None:
    folder.mkdir()
    for number in range(FILES):
        with (folder / f"model-{number:05}.safetensors").open("wb") as stream:
            for _ in range(size // FILES // CHUNK):
                stream.write(os.urandom(CHUNK))
            stream.flush()
            os.fsync(stream.fileno())


def _once(side: str, weights: Path, size: int, pull_s: float) -> Paged:
    """Measure one side (`cold`, `prefetched` or `warm`) once. Raises OSError if the weights cannot be dropped from the page
    cache, or if a process fails.
    """
    if left := _drop(weights):
        raise OSError(f"{left} bytes of the weights stay in the page cache")
    if side == "warm":
        _seconds(_process("engine", weights))
    pull = _process("pull", weights.parent / "image", pull_s)
    agent = _process("agent", weights) if side == "prefetched" else None
    pull.wait()
    before, seconds = sum(_resident(weights)), _seconds(_process("engine", weights))
    return Paged(side, size, pull_s, seconds, before, _seconds(agent) if agent else 0.0, os.getloadavg()[0])


def _process(name: str, folder: Path, seconds: float = 0.0) -> "subprocess.Popen[str]":
    """Start a function of this module in a separate process."""
    argv = [sys.executable, "-c", _CALL.format(name), str(folder), str(seconds)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def _seconds(process: "subprocess.Popen[str]") -> float:
    """Wait for a process, and return the seconds that it printed. Raises OSError if it failed."""
    output, _ = process.communicate()
    if process.returncode:
        raise OSError(f"{process.args!r} ended with exit code {process.returncode}")
    return float(output)


def _drop(weights: Path) -> int:
    """Drop the weight files from the page cache, and return how many of their bytes are still in it."""
    for path in weights.iterdir():
        with page_cache.open_for_reading(path) as descriptor:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return sum(_resident(weights))


def _resident(weights: Path) -> Iterator[int]:
    for path in weights.iterdir():
        with page_cache.open_for_reading(path) as descriptor:
            yield page_cache.cached_bytes(descriptor, path.stat().st_size)


def agent(weights: Path, _: float) -> None:
    """Read the weights as the agent does, and print the seconds."""
    began = time.monotonic()
    prefetch(weights, sys.maxsize, Throttle(0), threading.Event())
    print(time.monotonic() - began)


def engine(weights: Path, _: float) -> None:
    """Copy the weights as an engine does, and print the seconds."""
    target = bytearray(CHUNK)
    began = time.monotonic()
    for path in sorted(weights.iterdir()):
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as view:
            for start in range(0, len(view), CHUNK):
                with memoryview(view) as data, data[start : start + CHUNK] as part:
                    target[: len(part)] = part
    print(time.monotonic() - began)


def pull(image: Path, seconds: float) -> None:
    """Write to the disk as an image pull does, for that many seconds."""
    began, written = time.monotonic(), 0
    with image.open("wb") as stream:
        while (passed := time.monotonic() - began) < seconds:
            if written > passed * PULL_RATE:
                time.sleep(0.05)
                continue
            written += stream.write(os.urandom(CHUNK // 8))
        stream.flush()
        os.fsync(stream.fileno())
    image.unlink()
