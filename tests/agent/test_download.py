"""Tests of downloads from a faulty source."""

import os
import random
from pathlib import Path

import pytest

from ome_operator.agent import verify
from ome_operator.agent.download import DownloadFailed
from ome_operator.agent.store import Store
from ome_operator.storage.hashes import BLOCK
from ome_operator.storage.listing import RequestRefused
from ome_operator.storage.sources import Access, open_source
from tests.agent.conftest import URI, Node
from tests.support.hub import COMMIT, Answer, Hub, model, served

BIG = "model-00001-of-00003.safetensors"


def test_every_file_is_downloaded_once_and_correctly(node: Node) -> None:
    made = node.fetch()
    assert node.wrong() == []
    assert (made.revision, made.size, node.hub.total) == (COMMIT, node.hub.size, node.hub.size)
    assert node.store.point() == "" and (node.store.path / BIG).is_file()
    assert sorted(one.name for one in node.store.home.iterdir()) == ["0123abcd", "0123abcd.json"]


def test_second_download_requests_no_file_again(node: Node) -> None:
    node.fetch()
    Store(node.store.path, "0123abcd").mark_damaged()  # The manifest is lost, but the files are not.
    node.hub.sent.clear()
    node.fetch()
    assert node.hub.total == 0 and node.wrong() == []


def test_token_is_sent_only_to_the_hub(node: Node) -> None:
    node.hub.token = "hf_secret"
    node.fetch(secret="hf_secret\n")
    shown = {path.split("/")[1]: token for path, token in node.hub.tokens}
    assert shown == {"api": "Bearer hf_secret", "org": "Bearer hf_secret", "cdn": ""}


def test_missing_token_error_names_the_remedy_and_hides_the_token(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.hub.token = "hf_secret"
    with pytest.raises(DownloadFailed, match=r"has no model org/model.*spec\.storage\.key provides no token"):
        node.fetch()
    with pytest.raises(DownloadFailed) as told:
        node.fetch(secret="hf_wrong")
    assert "hf_" not in str(told.value) + caplog.text


def test_fetch_uses_pinned_revision_and_reports_missing_revision(node: Node) -> None:
    assert node.fetch(f"{URI}@v1").revision == COMMIT
    node.fetch(URI, COMMIT)
    assert node.hub.listings == ["v1", COMMIT]
    with pytest.raises(DownloadFailed, match="no revision nope"):
        node.fetch(f"{URI}@nope")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_busy_hub_is_retried(node: Node, status: int) -> None:
    node.hub.fault = lambda number, name: Answer(status=status if number % 3 else 0)
    node.fetch()
    assert node.wrong() == [] and node.hub.total == node.hub.size


@pytest.mark.parametrize("seed", range(3))
def test_bytes_received_before_a_cut_connection_are_kept(node: Node, seed: int) -> None:
    chance: random.Random = random.Random(seed)

    def fault(number: int, name: str) -> Answer:
        return Answer(cut=chance.randrange(100, 900_000) if number < 6 or chance.random() < 0.5 else None)

    node.hub.fault = fault
    node.fetch()
    assert node.wrong() == []
    assert node.progress.fetched == node.hub.size, "what arrived was kept, and nothing arrived twice"
    assert len(node.hub.sent) > 6, "some were cut"


def test_server_without_range_support_corrupts_no_file(node: Node) -> None:
    node.hub.fault = lambda number, name: Answer(cut=1_000_000 if number < 3 else None, whole=True)
    node.fetch()
    assert node.wrong() == []


@pytest.mark.parametrize("every", [2, 3, 5])
def test_corrupted_bytes_are_never_published(node: Node, every: int) -> None:
    node.hub.fault = lambda number, name: Answer(wrong=number % every == 0)
    node.fetch()
    assert node.wrong() == []


def test_source_that_always_sends_wrong_bytes_never_becomes_ready(node: Node) -> None:
    node.hub.fault = lambda number, name: Answer(wrong=name == BIG)
    with pytest.raises(DownloadFailed, match=f"{BIG} was downloaded 5 times, and each time its SHA-256 differed"):
        node.fetch()
    assert node.store.manifest() is None and not node.store.root.exists()
    node.hub.fault = lambda number, name: Answer()
    node.hub.sent.clear()
    node.fetch()
    assert {one.name for one in node.hub.sent} == {BIG}, "correct bytes were kept"


def test_files_are_downloaded_from_an_object_store(node: Node) -> None:
    node.fetch("s3://bucket/", endpoint=node.hub.url)
    assert node.wrong() == [] and node.hub.total == node.hub.size


def test_wrong_bytes_from_an_object_store_are_detected(node: Node) -> None:
    node.hub.fault = lambda number, name: Answer(wrong=number == 1)
    node.fetch("s3://bucket/", endpoint=node.hub.url)
    assert node.wrong() == []


def test_too_small_disk_is_reported(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "free_bytes", lambda self: 1024)
    with pytest.raises(DownloadFailed, match="delete files there"):
        node.fetch()
    assert node.hub.total == 0


@pytest.mark.parametrize("uri", ["vendor://x/y", "github://a/b", "oci://registry/a:1", "hf://org", "ftp://x"])
def test_unsupported_uri_scheme_is_refused_immediately(uri: str) -> None:
    with pytest.raises(RequestRefused, match=r"not supported|is not a valid model name of a hub|is not a valid oci:// URI"):
        open_source(uri, Access({}, {}))


def test_overlong_file_name_is_reported(node: Node) -> None:
    """A hub lists a file whose name has 5,000 letters, more than a disk accepts. The download fails with a message that says
    so. Unusual names that a disk accepts, such as `~/x`, are downloaded.
    """
    node.hub.files = {"~/x": b"home", "..\\x": b"up", **node.hub.files}
    node.fetch()
    assert node.wrong() == [] and (node.store.root / "~" / "x").is_file()
    node.hub.files = {**node.hub.files, "x" * 5000: b"long"}
    node.store = Store(node.store.path, "ffff0000")
    with pytest.raises(DownloadFailed, match=r"cannot write below .*: File name too long"):
        node.fetch()


def test_manually_filled_directory_needs_no_download(node: Node) -> None:
    for name, data in node.hub.files.items():
        place = node.store.path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data[:-1] + b"x" if name == BIG else data)
    node.fetch()
    assert {one.name for one in node.hub.sent} == {BIG} and node.wrong() == []
    assert "the agent keeps it" in node.store.point() and not node.store.path.is_symlink()


def test_second_revision_links_files_of_the_first(node: Node, tmp_path: Path) -> None:
    node.fetch()
    node.hub.sent.clear()
    other = Node(tmp_path, node.hub)
    other.store = Store(node.store.path, "ffff0000")
    other.fetch()
    assert node.hub.total == 0
    assert (other.store.root / BIG).stat().st_ino == (node.store.root / BIG).stat().st_ino


def test_damaged_files_are_repaired_without_replacing_the_mounted_directory(node: Node) -> None:
    made = node.fetch()
    chance = random.Random(1)
    assert verify.find_damaged_files(node.store.root, made, sample=1, chance=chance) == []
    inode = node.store.root.stat().st_ino
    broken = node.store.root / BIG
    with broken.open("r+b") as stream, (node.store.root / "config.json").open("rb") as mounted:
        stream.seek(77)
        stream.write(b"rot")
        stream.flush()
        assert [one.name for one in verify.find_damaged_files(node.store.root, made, sample=1, chance=chance)] == [BIG]
        (node.store.root / "empty.txt").unlink()
        assert "empty.txt" in [one.name for one in verify.find_damaged_files(node.store.root, made, sample=0, chance=chance)]
        node.hub.sent.clear()
        node.store.mark_damaged()
        node.fetch()
        assert mounted.read() == node.hub.files["config.json"]
    assert node.wrong() == [] and node.store.root.stat().st_ino == inode, "the directory that pods mount is the same"
    assert {one.name for one in node.hub.sent} <= {BIG, "empty.txt"}


def test_sampled_verification_detects_a_truncated_large_file(tmp_path: Path) -> None:
    with served(Hub(model(2, [2 * BLOCK + 5]))) as hub:
        node = Node(tmp_path, hub)
        made = node.fetch()
        name = next(one.name for one in made.files if one.size > BLOCK)
        os.truncate(node.store.root / name, 5)
        assert [
            one.name for one in verify.find_damaged_files(node.store.root, made, sample=0.01, chance=random.Random(1))
        ] == [name]
