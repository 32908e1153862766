"""Read responses whose sender is not trusted to keep them short."""

from collections.abc import AsyncIterable


async def content(chunks: AsyncIterable[bytes], most: int) -> bytes | None:
    """Return the joined chunks of a response. If they have more than `most` bytes, return None without reading further
    chunks.
    """
    received = bytearray()
    async for chunk in chunks:
        received += chunk
        if len(received) > most:
            return None
    return bytes(received)


PAGE_BYTES = 32 * 2**20
"""Maximum number of bytes of a page of a list. An object has at most 1.5 MiB, so a page of large objects may exceed the
limit, and is then requested again with fewer objects. A page of 500 pods of 60 kB fits."""


def smaller_page(objects: int) -> int:
    """Return the number of objects to request with the next page of a list. The previous page, for which `objects` objects
    were requested, was longer than `PAGE_BYTES`.
    """
    return max(1, objects // 4)
