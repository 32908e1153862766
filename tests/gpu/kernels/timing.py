"""Measure how long GPU kernels take: CUDA graphs of several calls, timed with CUDA events."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
SECONDS = 0.25
"""Time for which one measurement is repeated."""
FEWEST, MOST = 5, 200
"""Bounds for the number of repetitions of one measurement."""


@dataclass(frozen=True)
class Timing:
    """The duration of one call, in seconds: median, and the 10th and 90th percentile of the repetitions."""

    seconds: float
    low: float
    high: float
    repeats: int
    graph: bool
    """Whether the calls were replayed from a CUDA graph, so that no launch by the CPU is included."""

    def facts(self) -> dict[str, object]:
        """Return the fields of a result."""
        return {
            "seconds": round(self.seconds, 9),
            "low": round(self.low, 9),
            "high": round(self.high, 9),
            "repeats": self.repeats,
            "graph": self.graph,
        }


def measure(calls: Sequence[Callable[[], object]], seconds: float = SECONDS) -> Timing:
    """Return the duration of one call, averaged over `calls`, which do the same work on different data.

    The calls should together read more data than the L2 cache holds, or else the cache is measured. Each call runs once
    before, for compilation. On a CPU each call is timed once, which only shows that the code runs.
    """
    for call in calls:
        call()
    if not ON_GPU:
        started = time.perf_counter()
        for call in calls:
            call()
        passed = (time.perf_counter() - started) / len(calls)
        return Timing(passed, passed, passed, 1, False)
    torch.cuda.synchronize()
    replay, graph = _graph(calls)
    first = _timed(replay)
    repeats = int(min(MOST, max(FEWEST, seconds / max(first, 1e-6))))
    times = sorted(_timed(replay) / len(calls) for _ in range(repeats))
    return Timing(statistics.median(times), times[len(times) // 10], times[-1 - len(times) // 10], repeats, graph)


def _graph(calls: Sequence[Callable[[], object]]) -> tuple[Callable[[], None], bool]:
    """Return a function that does all calls, and whether the function replays a CUDA graph."""

    def each() -> None:
        for call in calls:
            call()

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        each()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            each()
    except RuntimeError as error:  # an operation that cannot be captured
        print(f"no CUDA graph: {str(error).splitlines()[0]}", flush=True)
        torch.cuda.synchronize()
        each()
        return each, False
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay, True


def _timed(call: Callable[[], None]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000


def relative_error(result: torch.Tensor, reference: torch.Tensor) -> float:
    """Return the norm of the difference, divided by the norm of the reference. NaN if the result contains NaN."""
    difference = (result.float() - reference.float()).norm()
    return round(float(difference / reference.float().norm()), 6)
