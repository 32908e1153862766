"""Tests of models in buckets with a file SHA256SUMS, in simulated S3 and Google XML interfaces that have faults."""

import asyncio
import hashlib
import random

import pytest

from ome_operator.agent import verify
from ome_operator.agent.download import DownloadFailed
from ome_operator.storage import sha256sums
from ome_operator.storage.sources import Access, open_bucket
from tests.agent.conftest import Node
from tests.support.hub import Answer
from tests.support.sha256sums import sums_file

BIG = "model-00001-of-00003.safetensors"
ENCRYPTED = "a" * 32
"""An ETag that looks like an MD5 hash but is not one."""
GENERATION = "CPjq7_DvtoYDEAE="
"""An ETag of Google for an object that was composed of other objects."""


@pytest.fixture
def summed(node: Node) -> Node:
    """Return the node with a bucket that has SHA256SUMS, and whose ETags are no hashes of the content."""
    node.hub.files[sha256sums.NAME] = sums_file(node.hub.files)
    node.hub.etag = lambda data: GENERATION
    return node


def fetch(node: Node, scheme: str = "s3", **parameters: str) -> set[str]:
    """Download the complete model, and return the algorithms by which its files were verified."""
    made = node.fetch(f"{scheme}://bucket/", endpoint=node.hub.url, anonymous="true", **parameters)
    return {one.hash.algorithm for one in made.files}


def asked(node: Node) -> int:
    """Return the number of requests for SHA256SUMS."""
    return [one.name for one in node.hub.sent].count(sha256sums.NAME)


def spoil(node: Node) -> None:
    """Change a byte in the store without changing the size."""
    data = bytearray(node.hub.files[BIG])
    data[1_234_567] ^= 1
    node.hub.files[BIG] = bytes(data)


@pytest.mark.parametrize("scheme", ["s3", "gs"])
@pytest.mark.parametrize("given", [{}, {"verify": "size"}])
def test_every_file_is_verified_by_sha256_whatever_its_etag(summed: Node, scheme: str, given: dict[str, str]) -> None:
    assert fetch(summed, scheme, **given) == {"sha256"}
    assert summed.wrong() == [] and summed.hub.total == summed.hub.size and asked(summed) == 1


@pytest.mark.parametrize("scheme", ["s3", "gs"])
@pytest.mark.parametrize("etag", [GENERATION, ENCRYPTED, "md5"])
def test_changed_byte_in_the_store_is_never_published(summed: Node, scheme: str, etag: str) -> None:
    summed.hub.etag = lambda data: hashlib.md5(data).hexdigest() if etag == "md5" else etag
    spoil(summed)
    with pytest.raises(DownloadFailed, match=f"{BIG} was downloaded 5 times, and each time its SHA-256 differed"):
        fetch(summed, scheme, verify="size")
    assert summed.store.manifest() is None and not summed.store.root.exists()


def test_changed_byte_is_not_detected_without_sha256sums(node: Node) -> None:
    node.hub.etag = lambda data: GENERATION
    spoil(node)
    assert fetch(node) == {"size"}, "only SHA256SUMS detects the changed byte"


def test_google_files_are_verified_by_md5_if_the_etag_is_one(node: Node) -> None:
    assert fetch(node, "gs") == {"md5"} and node.wrong() == []


def test_wrong_bytes_from_google_are_detected_by_an_md5_etag(node: Node) -> None:
    node.hub.fault = lambda number, name: Answer(wrong=name == BIG)
    with pytest.raises(DownloadFailed, match=f"{BIG} was downloaded 5 times, and each time its MD5 differed"):
        fetch(node, "gs")


def test_bucket_with_customer_managed_keys_is_verified_without_a_setting(summed: Node) -> None:
    summed.hub.etag = lambda data: ENCRYPTED
    assert fetch(summed) == {"sha256"}
    assert asked(summed) == 2, "the file is read again, because its ETag differs"


def test_corrupted_sha256sums_file_is_read_again(summed: Node) -> None:
    summed.hub.etag = lambda data: hashlib.md5(data).hexdigest()
    summed.hub.fault = lambda number, name: Answer(wrong=number == 0)
    assert fetch(summed) == {"sha256"} and summed.wrong() == []
    assert asked(summed) == 2


@pytest.mark.parametrize("fault", [Answer(status=503), Answer(status=429), Answer(cut=10)])
def test_store_is_retried_after_one_failure(summed: Node, fault: Answer) -> None:
    summed.hub.fault = lambda number, name: fault if number == 0 else Answer()
    assert fetch(summed) == {"sha256"} and asked(summed) == 2


def test_forbidden_sha256sums_file_is_reported_immediately(summed: Node) -> None:
    summed.hub.fault = lambda number, name: Answer(status=403 if name == sha256sums.NAME else 0)
    with pytest.raises(DownloadFailed, match="SHA256SUMS: the object store returned status 403: check"):
        fetch(summed)
    assert asked(summed) == 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"<html>\n", "line 1 of SHA256SUMS is not"),
        (b"", "SHA256SUMS lists no file"),
        (b"\n" * (sha256sums.LIMIT + 1), "SHA256SUMS has 4194305 bytes"),
        (b"0" * 64 + b"  lost.bin\n", "lists 'lost.bin', which is not in the object store"),
    ],
)
def test_unusable_sha256sums_file_is_reported(summed: Node, data: bytes, said: str) -> None:
    summed.hub.files[sha256sums.NAME] = data
    with pytest.raises(DownloadFailed, match=said):
        fetch(summed)
    assert {one.name for one in summed.hub.sent} <= {sha256sums.NAME} and summed.progress.revision == ""


def test_only_damaged_files_are_downloaded_again(summed: Node) -> None:
    fetch(summed)
    broken = summed.store.root / BIG
    broken.write_bytes(b"!" + broken.read_bytes()[1:])
    made = summed.store.manifest()
    assert made is not None
    assert [one.name for one in verify.find_damaged_files(summed.store.root, made, sample=1, chance=random.Random(1))] == [
        BIG
    ]
    summed.store.mark_damaged()
    summed.hub.sent.clear()
    fetch(summed)
    assert summed.wrong() == [] and {one.name for one in summed.hub.sent} == {sha256sums.NAME, BIG}


def test_changed_bytes_and_sums_are_another_revision(summed: Node) -> None:
    fetch(summed)
    made = summed.store.manifest()
    assert made is not None
    spoil(summed)
    del summed.hub.files[sha256sums.NAME]
    summed.hub.files[sha256sums.NAME] = sums_file(summed.hub.files)
    summed.store.mark_damaged()
    with pytest.raises(DownloadFailed, match="differ from revision"):
        summed.fetch("s3://bucket/", made.revision, endpoint=summed.hub.url)


def test_nodes_compute_the_same_revision_although_etags_change(summed: Node) -> None:
    async def revision() -> str:
        found = open_bucket("s3://bucket/", Access({"endpoint": summed.hub.url, "anonymous": "true"}, {}))
        return (await found.listing("")).revision

    before = asyncio.run(revision())
    summed.hub.etag = lambda data: hashlib.md5(data).hexdigest()
    assert asyncio.run(revision()) == before
