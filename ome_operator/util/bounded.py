"""Read responses whose sender is not trusted to keep them short."""

from collections.abc import AsyncIterable


async def content(chunks: AsyncIterable[bytes], most: int) -> bytes | None:
    """Return the joined chunks of a response; None as soon as they are longer than `most` bytes together. No chunk is read
    after that.
    """
    received = bytearray()
    async for chunk in chunks:
        received += chunk
        if len(received) > most:
            return None
    return bytes(received)
