"""Tests of manifests and journals, whose length depends on the source of a model."""

import json
from pathlib import Path

import pytest

from ome_operator.agent import manifest, store
from ome_operator.agent.manifest import MEMORY, Manifest, VerifiedFile, dump_file, read_journal, read_manifest
from ome_operator.agent.store import Store
from ome_operator.storage.hashes import BLOCK, Hash
from ome_operator.storage.listing import MAX_FILES, MAX_NAME_BYTES, Listing, RemoteFile, RequestRefused
from ome_operator.util.json_limits import MIB, estimate_memory

PROOF = Hash("sha256", "a" * 64)


def test_largest_possible_manifest_can_be_read_back(tmp_path: Path) -> None:
    """The manifest of a model with 30 TB in 50,000 files with long Chinese names can be read after it was written. If it
    were too large to be read, the agent would download the model again and again.
    """
    length = MAX_NAME_BYTES // MAX_FILES // 3 - 2
    blocks = 30 * 10**12 // BLOCK // MAX_FILES
    files = tuple(
        VerifiedFile(f"{number:06}" + "\u597d" * length, blocks * BLOCK, PROOF, (2**32 - 1,) * blocks)
        for number in range(MAX_FILES)
    )
    largest = Manifest("hf://org/model", "c" * 40, files, "2026-01-01T00:00:00Z")
    path = tmp_path / "m.json"
    path.write_bytes(store._text(largest))
    assert sum(len(file.name.encode()) for file in files) > MAX_NAME_BYTES * 0.95
    assert estimate_memory(path.read_bytes()) < MEMORY
    assert read_manifest(path) == largest


def test_manifest_too_large_to_be_read_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest that is too large to be read again is not written, and the model fails. The members of an archive may have
    names of any length.
    """
    monkeypatch.setattr(store, "MEMORY", 2000)
    made = Store(tmp_path / "m", "0123abcd")
    file = RemoteFile("a", 1, Hash("sha256", "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"))
    listing = Listing("r", (file,))
    made.prepare(listing)
    made.partial_path(file).write_bytes(b"a")
    made.store_verified(file, (0,))
    with pytest.raises(RequestRefused, match="the names of its files are too long for the manifest"):
        made.publish("hf://org/model", listing, "2026-01-01T00:00:00Z")
    assert made.manifest() is None and made.verified_files().keys() == {"a"}, "the downloaded file is kept"


def test_manifest_that_needs_too_much_memory_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "MEMORY", MIB)
    (tmp_path / "m.json").write_bytes(b'{"files":[' + b"[]," * 10_000 + b"[]]}")
    assert read_manifest(tmp_path / "m.json") is None
    good = VerifiedFile("a", 1, PROOF, (1,))
    lines = [b'{"name":[' + b"[]," * 10_000 + b"[]]}", json.dumps(dump_file(good)).encode(), b'{"name":"']
    (tmp_path / "journal").write_bytes(b"\n".join(lines))
    assert list(read_journal(tmp_path / "journal")) == [good]
    assert list(read_journal(tmp_path / "missing")) == []
