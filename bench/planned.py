"""Measures the duration of `ome plan`, and its error for deployments that were left out of its fit."""

import subprocess
import sys
import time
from pathlib import Path

from bench.figures import median
from bench.results import Planned
from ome_operator.sizing.error_bars import DEPLOYMENT, held_out_predictions, left_out

WORDS = ("plan", "--model", "Kimi-K2-Instruct", "--hardware", "h200", "--nodes", "16", "--workload", "2000/100")


def measure(repeat: int) -> Planned:
    """Return the median of `repeat` runs, each in its own process."""
    seconds = []
    for _ in range(repeat):
        began = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "ome_operator", *WORDS], check=True, capture_output=True, cwd=Path(__file__).parent.parent
        )
        seconds.append(time.monotonic() - began)
    bars = left_out(DEPLOYMENT)
    rows = sum(each.left_out == DEPLOYMENT for each in held_out_predictions())
    return Planned(median(seconds), rows, bars["tokens"].median, bars["tpot"].median, bars["ttft"].median)
