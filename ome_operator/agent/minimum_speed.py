"""A minimum speed for sources, so that a source that answers too slowly to ever finish is given up."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import NamedTuple

from ome_operator.storage.listing import SourceError


class TooSlow(SourceError):
    """The source sent fewer bytes than the minimum. An immediate retry would only take time from other models."""


class MinimumSpeed(NamedTuple):
    """The minimum speed at which a source has to send one file."""

    bytes_per_s: float = 16 * 1024
    over_s: float = 300.0
    """Seconds of waiting for the source over which the speed is measured. Time for our own disk and limits is not counted.
    """
    clock: Callable[[], float] = time.monotonic

    async def enforce(self, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Iterate over the bytes of `stream` unchanged. Raises TooSlow."""
        waited, received = 0.0, 0
        async with aclosing(stream) as open_stream:  # type: ignore[type-var]  # the stream of every source is a generator
            while True:
                started = self.clock()
                try:
                    data = await anext(open_stream)
                except StopAsyncIteration:
                    return
                waited += self.clock() - started
                received += len(data)
                yield data
                if waited >= self.over_s:
                    if received < self.bytes_per_s * waited:
                        minimum = self.bytes_per_s / 1024
                        raise TooSlow(
                            f"the source sends {received / waited / 1024:.1f} KiB/s, less than the minimum of {minimum:.1f}"
                        )
                    waited, received = 0.0, 0
