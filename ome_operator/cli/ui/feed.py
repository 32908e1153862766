"""Polls the cluster once for all open pages, and only while at least one page is open."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime

from ome_operator.cli.live.board import ClusterState
from ome_operator.kube.errors import KubeError

logger = logging.getLogger(__name__)

PAUSE = 2.0
"""Minimum number of seconds between two polls."""
SHARE = 4.0
"""The pause after a poll is at least this many times the duration of the poll, so that a large cluster is polled less
often."""
PATIENCE = 2.0
"""Maximum seconds for which a page waits for the first poll after a pause. If the poll takes longer, the page shows the
last known state and its age."""


class Feed:
    """The newest board, and the error of the newest poll."""

    def __init__(self, look: Callable[[], Awaitable[ClusterState]], pause: float = PAUSE) -> None:
        self._look, self._pause = look, pause
        self._asked, self._news = asyncio.Event(), asyncio.Condition()
        self.board: ClusterState | None = None
        self.problem = ""
        """Why the last poll failed; "" if it succeeded. After a failure, `board` keeps the result of the last successful
        poll."""
        self.failed: datetime | None = None
        """Time of the first failure since the last success; None after a success."""
        self.number = 0
        """Number of polls so far."""
        self.viewers = 0
        self._paused = False
        """Whether polling has stopped, because no page is open."""

    async def run(self) -> None:
        """Poll and pause forever. Without a viewer, wait until `ask` is called."""
        while True:
            self._asked.clear()
            started = asyncio.get_running_loop().time()
            await self.poll_once()
            spent = asyncio.get_running_loop().time() - started
            await asyncio.sleep(max(self._pause, spent * SHARE))
            if not self.viewers:
                self._paused = True
                await self._asked.wait()
                self._paused = False

    async def poll_once(self) -> None:
        """Poll the cluster once. Every error is recorded in `problem` and does not end the feed."""
        try:
            self.board, self.problem, self.failed = await self._look(), "", None
        except KubeError as error:
            self._went_wrong(str(error))
        except Exception as error:  # an object in an unexpected form must not end the feed
            logger.exception("reading the cluster failed")
            self._went_wrong(f"{type(error).__name__}: {error}")
        self.number += 1
        async with self._news:
            self._news.notify_all()

    def _went_wrong(self, why: str) -> None:
        self.problem, self.failed = why, self.failed or datetime.now(UTC)

    def ask(self) -> None:
        """Start a poll although no viewer is registered, because a page was requested."""
        self._asked.set()

    async def ask_after_pause(self) -> None:
        """Start a poll as `ask` does. If polling had stopped, `board` may be hours old. In this case, wait until the poll is
        complete, but for at most PATIENCE seconds.
        """
        number, paused = self.number, self._paused
        self.ask()
        if paused:
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await self.wait_for_poll(number)

    async def wait_for_poll(self, number: int) -> int:
        """Wait until a poll newer than poll number `number` is complete, and return its number."""
        async with self._news:
            await self._news.wait_for(lambda: self.number > number)
        return self.number
