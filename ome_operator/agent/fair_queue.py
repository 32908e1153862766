"""A fair queue that decides which model is downloaded or verified next (docs/tenancy.md).

A turn is the permission to work on one model. A turn ends when the work is finished, or when the turn has reached its
minimum length and another namespace is waiting.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ome_operator.storage.listing import SourceError

TurnCheck = Callable[[], bool]
"""A function that returns whether a turn is over. A turn is over when its minimum length has passed and another namespace
is waiting."""


class TurnExpired(SourceError):
    """Error: the turn is over because another namespace is waiting. Received bytes are kept; the next turn downloads the
    rest.
    """


class FairQueue:
    """A queue that limits the number of turns at the same time to `slots`. A turn that has lasted `seconds` ends if another
    namespace is waiting.

    A namespace may hold all turns except one; cluster-scoped models (namespace "") may hold all turns.
    """

    def __init__(self, slots: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._slots, self._seconds, self._clock = slots, seconds, clock
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._given = 0
        self._last: Counter[str] = Counter()
        """Maps a namespace to the sequence number of its last turn; 0 if the namespace has had no turn yet."""

    @asynccontextmanager
    async def turn(self, namespace: str) -> AsyncIterator[TurnCheck]:
        """Wait for a turn, and hold the turn until the `async with` block ends."""
        await self._wait(namespace)
        began = self._clock()
        try:
            yield lambda: self._clock() - began >= self._seconds and bool(self._waiting.keys() - {namespace})
        finally:
            self._running[namespace] -= 1
            self._next()

    async def _wait(self, namespace: str) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(future)
        self._next()
        try:
            await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._drop(namespace, future)
            else:  # the turn was granted at the moment of the cancellation
                self._running[namespace] -= 1
            self._next()
            raise

    def _next(self) -> None:
        """Grant the free turns, each to the namespace whose last turn started longest ago."""
        while self._running.total() < self._slots:
            namespace = min(filter(self._may, self._waiting), key=self._last.__getitem__, default=None)
            if namespace is None:
                return
            future = self._waiting[namespace].popleft()
            if not self._waiting[namespace]:
                del self._waiting[namespace]
            if not future.done():
                self._running[namespace] += 1
                self._given += 1
                self._last[namespace] = self._given
                future.set_result(None)

    def _may(self, namespace: str) -> bool:
        return not namespace or self._running[namespace] < max(1, self._slots - 1)

    def _drop(self, namespace: str, future: asyncio.Future[None]) -> None:
        if future in (waiting := self._waiting.get(namespace, deque())):
            waiting.remove(future)
            if not waiting:
                del self._waiting[namespace]
