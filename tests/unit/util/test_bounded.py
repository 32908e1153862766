"""Tests of the limit on the length of a response."""

from collections.abc import AsyncIterator

import pytest

from ome_operator.util.bounded import content


class Chunks:
    """Chunks of three bytes, without end unless `count` is given."""

    def __init__(self, count: int = 10**9) -> None:
        self.count, self.sent = count, 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self.sent < self.count:
            self.sent += 1
            yield b"abc"


@pytest.mark.parametrize(("most", "found"), [(6, b"abcabc"), (7, b"abcabc"), (5, None), (0, None)])
async def test_response_up_to_the_limit_is_accepted(most: int, found: bytes | None) -> None:
    assert await content(Chunks(2), most) == found


async def test_endless_response_is_not_read_beyond_the_limit() -> None:
    chunks = Chunks()
    assert await content(chunks, 10) is None
    assert chunks.sent == 4
