"""Sources that answer, but too slowly to ever be done."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import NamedTuple

from ome_operator.storage.listing import SourceError


class TooSlow(SourceError):
    """Fewer bytes came than a source has to give: asking again at once would only take a turn from others."""


class Pace(NamedTuple):
    """The least that a source has to give for one file."""

    bytes_per_s: float = 16 * 1024
    over_s: float = 300.0
    """Seconds of waiting for the source; what our own disk and limits take does not count."""
    clock: Callable[[], float] = time.monotonic

    async def held(self, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The same bytes; raises TooSlow."""
        waited, came = 0.0, 0
        async with aclosing(stream) as open_stream:  # type: ignore[type-var]  # every source's is a generator
            while True:
                asked = self.clock()
                try:
                    data = await anext(open_stream)
                except StopAsyncIteration:
                    return
                waited += self.clock() - asked
                came += len(data)
                yield data
                if waited >= self.over_s:
                    if came < self.bytes_per_s * waited:
                        raise TooSlow(f"the source gives {came / waited / 1024:.1f} KiB/s, less than it has to")
                    waited, came = 0.0, 0
