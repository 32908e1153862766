"""Tests of one large file that is downloaded in several pieces in parallel."""

import hashlib
import random
import time
from pathlib import Path

import pytest

from ome_operator.agent.download import DownloadFailed, Limits
from ome_operator.storage.hashes import Hash
from ome_operator.storage.listing import RemoteFile
from tests.agent.conftest import Node
from tests.support.hub import Answer, Hub, model, served

PIECE = 300_000
SIZE = 10 * PIECE + 12_345
NAME = "model-00001-of-00001.safetensors"


def node(folder: Path, hub: Hub, files: int = 4) -> Node:
    """Return a node that downloads this number of pieces in parallel."""
    made = Node(folder, hub)
    made.limits = Limits(files=files, piece=PIECE, first=0.001, last=0.01)
    return made


@pytest.mark.parametrize("files", [1, 2, 8])
def test_download_in_pieces_requests_each_byte_once(tmp_path: Path, files: int) -> None:
    with served(Hub(model(21, [SIZE]))) as hub:
        one = node(tmp_path, hub, files)
        one.fetch()
        assert one.wrong() == [] and hub.total == hub.size == one.progress.fetched == one.progress.bytes
        assert len(hub.sent) >= SIZE // PIECE
        assert not list(one.store.home.glob("*.partial"))


def test_slow_source_is_read_with_several_pieces_in_parallel(tmp_path: Path) -> None:
    with served(Hub(model(22, [SIZE]), rate=500_000)) as hub:
        began = time.monotonic()
        node(tmp_path / "wide", hub, 8).fetch()
        wide = time.monotonic() - began
        assert wide < SIZE / hub.rate * 0.7, "one connection gives 0.5 MB/s"


@pytest.mark.parametrize("seed", range(3))
def test_received_bytes_are_not_requested_again_after_a_failure(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with served(Hub(model(23 + seed, [SIZE]))) as hub:
        hub.fault = lambda number, name: Answer(cut=chance.randrange(1, PIECE) if chance.random() < 0.6 else None)
        one = node(tmp_path, hub)
        one.fetch()
        assert one.wrong() == []
        assert one.progress.fetched == hub.size, "what reached the disk was kept, and nothing reached it twice"


def test_new_process_continues_with_the_received_pieces(tmp_path: Path) -> None:
    with served(Hub(model(26, [SIZE]))) as hub:
        one = node(tmp_path, hub)
        hub.fault = lambda number, name: Answer(status=404) if number > 7 else Answer(cut=200_001)
        with pytest.raises(DownloadFailed):
            one.fetch()
        proof = Hash("sha256", hashlib.sha256(hub.files[NAME]).hexdigest())
        have = one.store.partial_bytes(RemoteFile(NAME, SIZE, proof))
        assert have > PIECE, "more than one piece has grown"
        hub.fault = lambda number, name: Answer()
        hub.sent.clear()
        again = node(tmp_path, hub)
        again.fetch()
        assert again.wrong() == [] and again.progress.fetched == hub.total
        assert sum(sent.count for sent in hub.sent if sent.name == NAME) == SIZE - have


def test_corrupted_piece_is_downloaded_again(tmp_path: Path) -> None:
    with served(Hub(model(27, [SIZE]))) as hub:
        hub.fault = lambda number, name: Answer(wrong=number == 5)
        one = node(tmp_path, hub)
        one.fetch()
        assert one.wrong() == []


def test_server_without_range_support_sends_the_complete_file(tmp_path: Path) -> None:
    with served(Hub(model(28, [SIZE]))) as hub:
        hub.fault = lambda number, name: Answer(whole=True)
        one = node(tmp_path, hub)
        one.fetch()
        assert one.wrong() == []
