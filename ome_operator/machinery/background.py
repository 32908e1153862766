"""Background work: periodic work that survives unexpected errors, and long work that yields to the event loop."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import NoReturn

logger = logging.getLogger(__name__)


async def repeat(name: str, work: Callable[[], Awaitable[None]], pause: Callable[[], float]) -> NoReturn:
    """Run `work` forever. After each run, wait for the number of seconds that `pause` returns.

    An error does not end the loop. The same error is logged only once until a run succeeds.
    """
    logged = ""
    while True:
        try:
            await work()
            logged = ""
        except Exception as error:
            if repr(error) != logged:
                logger.exception("%s failed and will be repeated", name)
            logged = repr(error)
        await asyncio.sleep(pause())


SHARE = 0.01
"""Seconds for which long work may run before it yields to the event loop."""


class Pacer:
    """Interrupts long work regularly, so that other tasks can run in between: probes, renewals of the Lease,
    reconciliations.

    All work that shares a Pacer runs for at most `share` seconds before the event loop can run other tasks.
    """

    def __init__(self, share: float = SHARE, clock: Callable[[], float] = time.monotonic) -> None:
        self._share, self._clock, self._until = share, clock, 0.0

    async def yield_if_due(self) -> None:
        """Yield to the event loop if work has run for `share` seconds since the last yield. Call this method after each
        piece of work.
        """
        if self._clock() >= self._until:
            await asyncio.sleep(0)
            self._until = self._clock() + self._share


PACER = Pacer()
"""The Pacer that all long work of the process shares."""
