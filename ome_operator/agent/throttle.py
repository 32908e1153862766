"""A limit in bytes per second that all transfers of a node share."""

import asyncio
import time
from collections.abc import Callable


class Throttle:
    """A limit of `rate` bytes per second on transfers; 0 means no limit. A caller that takes more bytes than are
    available waits until the rate permits them.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self._clock = rate, clock
        self._free_at = 0.0

    def seconds_until_allowed(self, count: int) -> float:
        """Take `count` bytes, and return the seconds that the caller must wait before it takes more bytes."""
        if self.rate <= 0:
            return 0.0
        now = self._clock()
        self._free_at = max(self._free_at, now) + count / self.rate
        return max(0.0, self._free_at - now)

    async def take(self, count: int) -> None:
        """Take `count` bytes, and wait as long as the rate requires."""
        if (seconds := self.seconds_until_allowed(count)) > 0.01:
            await asyncio.sleep(seconds)
