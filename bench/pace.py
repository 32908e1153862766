"""Measures the speed of the machine's cores during a measurement.

The speed of shared machines changes by a third from one minute to the next, and so does the duration of a ramp that uses all
cores. For example, the durations of two ramps of the same side differed by 20 %; divided by the speeds that were measured
during the ramps, they differed by only 5 %.
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
    """Samples of the CPU time that a fixed amount of work takes. They are taken in a separate process, because a thread
    would wait for the interpreter lock.
    """

    def __init__(self, samples: int) -> None:
        self._samples = samples

    def mean_ms(self, began: float, ended: float) -> float:
        """Return the mean CPU milliseconds of the work between two monotonic times; 0.0 if there is no sample."""
        lines = os.pread(self._samples, os.fstat(self._samples).st_size, 0).decode().splitlines()
        taken = [(float(at), float(ms)) for at, ms in (line.split() for line in lines)]
        inside = [ms for at, ms in taken if began <= at <= ended]
        return sum(inside) / len(inside) if inside else 0.0


@contextmanager
def pace() -> Iterator[Pace]:
    """Take samples until the end of the `with` block."""
    words = [sys.executable, "-m", __name__, str(os.getpid())]
    with tempfile.TemporaryFile() as samples, subprocess.Popen(words, stdout=samples) as process:
        try:
            yield Pace(samples.fileno())
        finally:
            process.kill()


def _work() -> int:
    return sum(len(WORDS[turn % len(WORDS)]) for turn in range(TURNS))


def _sample(parent: int) -> None:
    while os.getppid() == parent:  # a benchmark that was killed cannot end this process
        before = time.thread_time()
        _work()
        os.write(1, f"{time.monotonic():.3f} {1000 * (time.thread_time() - before):.4f}\n".encode())
        time.sleep(EVERY_S)


if __name__ == "__main__":
    _sample(int(sys.argv[1]))
