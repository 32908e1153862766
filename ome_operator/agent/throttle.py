"""A limit on bytes per second, shared by everything that a node fetches."""

import asyncio
import time
from collections.abc import Callable


class Throttle:
    """Lets `rate` bytes per second by; 0 is no limit. Who takes more than there is waits until it has been earned."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._free_at = 0.0

    def wait(self, count: int) -> float:
        """Take `count` bytes; seconds to wait before the next ones."""
        if self._rate <= 0:
            return 0.0
        now = self._clock()
        self._free_at = max(self._free_at, now) + count / self._rate
        return max(0.0, self._free_at - now)

    async def take(self, count: int) -> None:
        """Take `count` bytes, and wait."""
        if (seconds := self.wait(count)) > 0.01:
            await asyncio.sleep(seconds)
