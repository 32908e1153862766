"""Tests of the samples of the machine's speed."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.pace import Pace, pace

ROOT = Path(__file__).parents[3]


def test_mean_uses_only_samples_of_the_given_interval() -> None:
    with tempfile.TemporaryFile() as samples:
        samples.write(b"10.0 2.0\n11.0 3.0\n12.0 4.0\n13.0 99.0\n")
        samples.flush()
        taken = Pace(samples.fileno())
        assert (taken.mean_ms(10.0, 12.5), taken.mean_ms(20.0, 30.0)) == (3.0, 0.0)


def test_samples_are_taken_until_the_end_of_the_block() -> None:
    began = time.monotonic()
    with pace() as taken:
        until = time.monotonic() + 20.0
        while not taken.mean_ms(began, time.monotonic()) and time.monotonic() < until:
            time.sleep(0.05)
        assert taken.mean_ms(began, time.monotonic()) > 0.0


def test_samples_end_with_the_benchmark() -> None:
    """The process that samples the machine's speed ends with the benchmark, even if the benchmark was killed. The process
    stops when it has another parent than the process that started it.
    """
    words = [sys.executable, "-m", "bench.pace", str(os.getppid())]
    done = subprocess.run(words, cwd=ROOT, check=True, timeout=20, stdout=subprocess.PIPE)
    assert done.stdout == b""
