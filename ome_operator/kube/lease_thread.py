"""The Lease is held in a thread of its own: an event loop that stands still costs no Lease (decisions 31)."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from ome_operator.kube.leader_election import Election, Lost

T = TypeVar("T")

CHECK = 1.0
"""Seconds between two looks of the other loop."""
PATIENCE = 5.0
"""Seconds for each step of the end."""


class LeaseThread:
    """An election that lives on a loop of its own; everything but `leads` has to be asked for there."""

    def __init__(self) -> None:
        self.stack = AsyncExitStack()
        """What is closed at the end, there."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lease", daemon=True)
        self._thread.start()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of what is done there. Whoever is cancelled here is cancelled there."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def hold(self, election: Election, grace: float) -> None:
        """Renew for ever; raises Lost. Also where the thread has died or hangs and nobody renews: when we have not led for
        `grace` seconds.
        """
        holding = asyncio.ensure_future(self.run(election.hold()))
        late = 0.0
        try:
            while late <= grace:
                done, _ = await asyncio.wait({holding}, timeout=CHECK)
                if done:
                    return holding.result()
                late = 0.0 if election.leads() else late + CHECK
            raise Lost("the Lease was not renewed, and the thread that holds it does not say why")
        finally:
            holding.cancel()

    async def close(self) -> None:
        """End the thread, after what is in its stack; not where it hangs."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await self.run(self.stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join, PATIENCE)
        if not self._thread.is_alive():
            self._loop.close()
