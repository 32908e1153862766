"""A minimum speed for sources. The download from a slower source is stopped, because it might never finish."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import NamedTuple

from ome_operator.storage.listing import SourceError


class TooSlow(SourceError):
    """Error: the source sent fewer bytes than the minimum speed requires. The download is not retried at once, because a
    retry would take time from other models.
    """


class MinimumSpeed(NamedTuple):
    """The minimum speed at which a source must send one file."""

    bytes_per_s: float = 16 * 1024
    over_s: float = 300.0
    """Length in seconds of the interval over which the speed is measured. Only time in which the agent waits for the source
    counts, not time that the local disk or the agent's own limits take."""
    clock: Callable[[], float] = time.monotonic

    async def enforce(self, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Iterate over the bytes of `stream` unchanged. Raises TooSlow if the source is slower than the minimum speed."""
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
