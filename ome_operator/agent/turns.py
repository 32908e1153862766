"""Which model is worked on next: namespaces take turns, and nobody keeps a turn for ever (docs/tenancy.md)."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ome_operator.storage.listing import SourceError

Over = Callable[[], bool]
"""Whether a turn is over: it was long enough, and somebody of another namespace waits."""


class TurnOver(SourceError):
    """Others wait: what came so far is kept, and the rest comes with the next turn."""


class Turns:
    """So many turns at a time. A namespace has all but one of them at most; cluster-wide models ("") may have all."""

    def __init__(self, places: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._places, self._seconds, self._clock = places, seconds, clock
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._given = 0
        self._last: Counter[str] = Counter()
        """Namespace -> the number of its last turn; 0: it had none."""

    @asynccontextmanager
    async def turn(self, namespace: str) -> AsyncIterator[Over]:
        """Wait for a turn, and have it until the block ends."""
        await self._wait(namespace)
        began = self._clock()
        try:
            yield lambda: self._clock() - began >= self._seconds and bool(self._waiting.keys() - {namespace})
        finally:
            self._running[namespace] -= 1
            self._next()

    async def _wait(self, namespace: str) -> None:
        mine = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(mine)
        self._next()
        try:
            await mine
        except asyncio.CancelledError:
            if mine.cancelled():
                self._drop(namespace, mine)
            else:  # it was given a turn in the same moment
                self._running[namespace] -= 1
            self._next()
            raise

    def _next(self) -> None:
        """Give away what is free: to the namespace whose last turn began longest ago."""
        while self._running.total() < self._places:
            found = min(filter(self._may, self._waiting), key=self._last.__getitem__, default=None)
            if found is None:
                return
            first = self._waiting[found].popleft()
            if not self._waiting[found]:
                del self._waiting[found]
            if not first.done():
                self._running[found] += 1
                self._given += 1
                self._last[found] = self._given
                first.set_result(None)

    def _may(self, namespace: str) -> bool:
        return not namespace or self._running[namespace] < max(1, self._places - 1)

    def _drop(self, namespace: str, mine: asyncio.Future[None]) -> None:
        if mine in (waiting := self._waiting.get(namespace, deque())):
            waiting.remove(mine)
            if not waiting:
                del self._waiting[namespace]
