"""Hold the Lease in a separate thread, so that a blocked event loop does not lose it at once (decisions 31)."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from ome_operator.kube.leader_election import Election, LeadershipLost

T = TypeVar("T")

CHECK = 1.0
"""Seconds between two checks of the lease thread by the operator's own event loop."""
PATIENCE = 5.0
"""Timeout of each step of the shutdown, in seconds."""


class LeaseThread:
    """A thread with an event loop for the election. All methods of the election except `is_leader` have to be called in that
    loop.
    """

    def __init__(self) -> None:
        self.stack = AsyncExitStack()
        """Resources that are closed when the thread ends, in the thread itself."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lease", daemon=True)
        self._thread.start()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread and return its result. Cancelling this call cancels the coroutine."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def hold_lease(self, election: Election, grace: float) -> None:
        """Renew the Lease without end. Raises LeadershipLost when this process has not led for `grace` seconds, even if the
        thread has died or hangs.
        """
        holding = asyncio.ensure_future(self.run(election.hold_lease()))
        late = 0.0
        try:
            while late <= grace:
                done, _ = await asyncio.wait({holding}, timeout=CHECK)
                if done:
                    return holding.result()
                late = 0.0 if election.is_leader() else late + CHECK
            raise LeadershipLost("the Lease was not renewed, although the thread that renews it reports no error")
        finally:
            holding.cancel()

    async def close(self) -> None:
        """Close the resources of `stack` and end the thread. A thread that hangs is abandoned."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await self.run(self.stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join, PATIENCE)
        if not self._thread.is_alive():
            self._loop.close()
