"""Looks at the cluster for all pages together, and only while somebody looks at them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from ome_operator.cli.live.board import Board
from ome_operator.kube.errors import KubeError

logger = logging.getLogger(__name__)

PAUSE = 2.0
"""Seconds between two looks at the least."""
SHARE = 4.0
"""How many times longer than a look the pause after it is: a large cluster is asked less often."""


class Feed:
    """The newest board, and what is wrong with the newest look."""

    def __init__(self, look: Callable[[], Awaitable[Board]], pause: float = PAUSE) -> None:
        self._look, self._pause = look, pause
        self._asked, self._news = asyncio.Event(), asyncio.Condition()
        self.board: Board | None = None
        self.problem = ""
        """Why the cluster could not be looked at, "" where it could: the last board stays."""
        self.failed: datetime | None = None
        """Since when it cannot."""
        self.number = 0
        """How many looks there were."""
        self.viewers = 0

    async def run(self) -> None:
        """Look, pause, look; for ever."""
        while True:
            self._asked.clear()
            started = asyncio.get_running_loop().time()
            await self.once()
            spent = asyncio.get_running_loop().time() - started
            await asyncio.sleep(max(self._pause, spent * SHARE))
            if not self.viewers:
                await self._asked.wait()

    async def once(self) -> None:
        """A single look. Whatever goes wrong is told, and the next look is as good as any."""
        try:
            self.board, self.problem, self.failed = await self._look(), "", None
        except KubeError as error:
            self._went_wrong(str(error))
        except Exception as error:  # a body that nobody expected must not end the page
            logger.exception("a look at the cluster failed")
            self._went_wrong(f"{type(error).__name__}: {error}")
        self.number += 1
        async with self._news:
            self._news.notify_all()

    def _went_wrong(self, why: str) -> None:
        self.problem, self.failed = why, self.failed or datetime.now(UTC)

    def ask(self) -> None:
        """Somebody looks at a page: do not wait for a viewer."""
        self._asked.set()

    async def after(self, number: int) -> int:
        """Wait for a look that is newer than this; its number."""
        async with self._news:
            await self._news.wait_for(lambda: self.number > number)
        return self.number
