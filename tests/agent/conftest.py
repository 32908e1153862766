"""Fixtures: a model that is downloaded from a model hub on loopback."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ome_operator.agent.download import Download, Limits
from ome_operator.agent.progress import Progress
from ome_operator.agent.store import Manifest, Store
from ome_operator.storage.sources import Access, open_source
from tests.support.hub import Hub, model, served

URI = "hf://org/model"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with served(Hub(model(1, [3_000_000, 200_000, 5_000]))) as one:
        yield one


class Node:
    """A node's disk, and the work of an agent on it."""

    def __init__(self, folder: Path, hub: Hub) -> None:
        self.hub, self.store, self.progress = hub, Store(folder / "models" / "m", "0123abcd"), Progress()
        self.limits = Limits(first=0.001, last=0.01)

    def fetch(self, uri: str = URI, revision: str = "", *, secret: str = "", **parameters: str) -> Manifest:
        """Download the complete model."""

        async def run() -> Manifest:
            keys = {"token": secret, "accessKeyId": "id", "secretAccessKey": "key"}
            found = open_source(uri, Access(parameters, keys, self.hub.url))
            try:
                return await Download(uri, found, self.store, self.limits, self.progress).run(revision)
            finally:
                await found.close()

        return asyncio.run(run())

    def wrong(self) -> list[str]:
        """Return the files that are missing or differ from those of the hub."""
        files = self.hub.files.items()
        return [name for name, data in files if not same(self.store.root / name, data)]


def same(path: Path, data: bytes) -> bool:
    """Return whether the file exists with this content."""
    return path.is_file() and path.read_bytes() == data


@pytest.fixture
def node(tmp_path: Path, hub: Hub) -> Node:
    return Node(tmp_path, hub)
