"""Lines of a watch, as whoever decodes them can bear them."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from ome_operator.util.json_limits import shallow


async def lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Whole lines of a stream; a line that was cut is none. Large objects are longer than `readline` can read."""
    rest = b""
    async for chunk in content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line


class Shallow:
    """The content of an answer, without what lies too deep: kopf decodes by itself, and ends at what it cannot decode."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def read(self, n: int = -1) -> bytes:
        """A list, whole."""
        return shallow(await self._content.read(n))

    async def iter_chunked(self, n: int) -> AsyncIterator[bytes]:
        """The lines of a watch."""
        async for line in lines(self._content):
            yield shallow(line) + b"\n"
