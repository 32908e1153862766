"""Work that comes again and again beside the passes: what nobody expected costs a round, and not the process."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

logger = logging.getLogger(__name__)


async def rounds(name: str, work: Callable[[], Awaitable[None]], pause: Callable[[], float]) -> NoReturn:
    """Do it for ever, with a pause in seconds after each round. The same failure is logged once until a round succeeds."""
    said = ""
    while True:
        try:
            await work()
            said = ""
        except Exception as error:
            if repr(error) != said:
                logger.exception("%s failed, and is tried again", name)
            said = repr(error)
        await asyncio.sleep(pause())
