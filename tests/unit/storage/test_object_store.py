"""Tests of the requests to a client of object stores."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ome_operator.storage.listing import MAX_FILES, RequestRefused
from ome_operator.storage.object_store import ObjectStore


class Endless:
    """A bucket with a practically endless listing."""

    batches = 0

    async def list(self, prefix: str | None) -> AsyncIterator[list[dict[str, Any]]]:
        """Yield batches of a thousand objects."""
        while self.batches < 200:
            self.batches += 1
            yield [{"path": f"m/{self.batches}-{number}", "size": 1, "e_tag": None} for number in range(1000)]


def test_listing_with_too_many_objects_is_refused_early() -> None:
    """A listing with too many objects is refused before it is read to its end (S23)."""
    store = Endless()
    with pytest.raises(RequestRefused, match=f"more than {MAX_FILES} files"):
        asyncio.run(ObjectStore(lambda proxy: store, "m").listing(""))
    assert store.batches == MAX_FILES // 1000 + 1
