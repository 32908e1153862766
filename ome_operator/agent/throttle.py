"""A limit on bytes per second, shared by everything that a node fetches."""

import asyncio
import time
from collections.abc import Callable


class Throttle:
    """Limits transfers to `rate` bytes per second; 0 means no limit. A caller that takes more than the available amount
    waits until the rate has caught up.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._free_at = 0.0

    def wait(self, count: int) -> float:
        """Take `count` bytes, and return the seconds to wait before taking more."""
        if self._rate <= 0:
            return 0.0
        now = self._clock()
        self._free_at = max(self._free_at, now) + count / self._rate
        return max(0.0, self._free_at - now)

    async def take(self, count: int) -> None:
        """Take `count` bytes, and wait."""
        if (seconds := self.wait(count)) > 0.01:
            await asyncio.sleep(seconds)
