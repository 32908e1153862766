"""Waits for a condition that can only be checked with a request."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.support.rig import PATIENCE


async def wait_until(holds: Callable[[], Awaitable[bool]], within: float) -> float:
    """Wait until the condition is true, and return the seconds that it took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not await holds():
        assert loop.time() - began < within * PATIENCE, f"not within {within} s"
        await asyncio.sleep(0.1)
    return loop.time() - began
