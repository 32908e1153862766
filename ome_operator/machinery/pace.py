"""Long work on the event loop gives way to what else there is: probes, renewals, passes."""

import asyncio
import time
from collections.abc import Callable

SHARE = 0.01
"""Seconds that work may go on for without a turn of the loop."""


class Pace:
    """The time since the loop had a turn; all who share it take no more than a share together."""

    def __init__(self, share: float = SHARE, clock: Callable[[], float] = time.monotonic) -> None:
        self._share, self._clock, self._until = share, clock, 0.0

    async def breathe(self) -> None:
        """Give the loop a turn where the share is used up. Call it after each piece of work."""
        if self._clock() >= self._until:
            await asyncio.sleep(0)
            self._until = self._clock() + self._share


PACE = Pace()
"""Of the process."""
