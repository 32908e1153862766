"""Tests that the longest stall of the event loop is found, without the work of the benchmark itself."""

import asyncio
import contextlib
import gc
import time
from collections.abc import Callable

from bench.stalls import Longest, Stopwatch


def busy(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


async def watched(work: Callable[[Stopwatch], None]) -> Longest:
    watch = Stopwatch()
    beat = asyncio.create_task(watch.beat())
    await asyncio.sleep(0.01)
    work(watch)
    await asyncio.sleep(0.01)
    beat.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await beat
    return watch.longest


async def test_stall_is_found_with_its_function() -> None:
    found = await watched(lambda _: busy(0.2))
    assert 0.2 <= found.seconds < 0.3
    assert "busy" in found.where


async def test_work_of_the_benchmark_itself_is_no_stall() -> None:
    def work(watch: Stopwatch) -> None:
        with watch.besides():
            busy(0.2)
            gc.collect()

    found = await watched(work)
    assert found.seconds < 0.1
    assert found.garbage_s == 0.0


async def test_garbage_collection_time_is_reported_separately() -> None:
    kept = [[] for _ in range(500_000)]
    found = await watched(lambda _: [gc.collect() for _ in range(3)] and None)
    assert len(kept) and 0.01 < found.garbage_s <= found.seconds
