"""Tests that a source which sends a byte now and then does not block a model forever (S8 of the review)."""

from collections.abc import AsyncIterator

import pytest

from ome_operator.agent.minimum_speed import MinimumSpeed, TooSlow


class Slow:
    """A source that sends chunks of `count` bytes with pauses, and a clock that it moves."""

    def __init__(self, seconds: float, count: int) -> None:
        self.now, self._seconds, self._count, self.closed = 0.0, seconds, count, False

    async def bytes(self, answers: int) -> AsyncIterator[bytes]:
        """Yield this number of chunks, each after a pause."""
        try:
            for _ in range(answers):
                self.now += self._seconds
                yield b"x" * self._count
        finally:
            self.closed = True

    async def read(self, answers: int, ours: float = 0.0) -> int:
        """Read the slow source to its end, and return the number of bytes. `ours` is the time in seconds that the reader
        itself takes for each chunk.
        """
        found = 0
        async for data in MinimumSpeed(clock=lambda: self.now).enforce(self.bytes(answers)):
            found += len(data)
            self.now += ours
        return found


async def test_one_byte_every_twenty_seconds_is_too_slow() -> None:
    source = Slow(20.0, 1)
    with pytest.raises(TooSlow, match=r"sends 0\.0 KiB/s"):
        await source.read(1000)
    assert source.now == 300.0 and source.closed


async def test_slow_but_steady_download_is_fast_enough() -> None:
    assert await Slow(20.0, 20 * 16 * 1024).read(100) == 100 * 20 * 16 * 1024


async def test_time_spent_by_the_reader_does_not_count_for_the_minimum_speed() -> None:
    """Only the time that the source takes counts for the minimum speed. The reader may be slow itself, because its node has
    a slow disk or its own limit `agent.bandwidthMBps`.
    """
    assert await Slow(0.001, 1024).read(1000, ours=100.0) == 1_024_000
