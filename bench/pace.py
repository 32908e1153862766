"""How fast the machine's cores are while something is measured.

Shared machines change by a third from one minute to the next, and a ramp that fills all cores changes with them: between two
ramps of the same side the seconds differed by 20 %, and by 5 % when each was divided by its pace.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

EVERY_S = 0.15
TURNS = 12_000
WORDS = {number: str(number) for number in range(2000)}


class Pace:
    """Samples of a fixed piece of work, taken by a process of their own: a thread would wait for the interpreter."""

    def __init__(self, samples: int) -> None:
        self._samples = samples

    def mean_ms(self, began: float, ended: float) -> float:
        """CPU milliseconds of the piece of work between two monotonic times; 0.0 when there is no sample."""
        lines = os.pread(self._samples, os.fstat(self._samples).st_size, 0).decode().splitlines()
        taken = [(float(at), float(ms)) for at, ms in (line.split() for line in lines)]
        inside = [ms for at, ms in taken if began <= at <= ended]
        return sum(inside) / len(inside) if inside else 0.0


@contextmanager
def pace() -> Iterator[Pace]:
    """Take samples until the end of the block."""
    words = [sys.executable, "-m", __name__, str(os.getpid())]
    with tempfile.TemporaryFile() as samples, subprocess.Popen(words, stdout=samples) as process:
        try:
            yield Pace(samples.fileno())
        finally:
            process.kill()


def _work() -> int:
    return sum(len(WORDS[turn % len(WORDS)]) for turn in range(TURNS))


def _sample(parent: int) -> None:
    while os.getppid() == parent:  # a benchmark that was killed leaves nobody to end us
        before = time.thread_time()
        _work()
        os.write(1, f"{time.monotonic():.3f} {1000 * (time.thread_time() - before):.4f}\n".encode())
        time.sleep(EVERY_S)


if __name__ == "__main__":
    _sample(int(sys.argv[1]))
