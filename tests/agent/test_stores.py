"""Tests of each kind of object store against a server that implements its protocol and checks signatures where possible."""

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ome_operator.agent.download import Download, DownloadFailed, Limits
from ome_operator.agent.progress import Progress
from ome_operator.agent.store import Manifest, Store
from ome_operator.storage import sha256sums
from ome_operator.storage.sources import Access, open_bucket
from tests.support import stores
from tests.support.hub import model
from tests.support.sha256sums import sums_file
from tests.support.stores import BucketPlace

FILES = {**model(11, [12_000_000, 300_000]), "a name with + and ü.txt": b"text"}
BIG = "model-00001-of-00002.safetensors"
PREFIX, SUMMED = "org/k2", "org/k2-summed"
SUMS = sums_file(FILES)


@pytest.fixture(scope="module", params=["s3", "oci", "gs", "az"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BucketPlace]:
    folder = tmp_path_factory.mktemp("store")
    servers = {"gs": lambda: stores.google(folder), "az": lambda: stores.azure(folder)}
    with servers.get(request.param, lambda: stores.s3(folder, request.param))() as one:
        fill(one)
        yield one


def fill(place: BucketPlace) -> None:
    """Write into the bucket the model, another model whose name has the same prefix, and the model with SHA256SUMS."""
    stores.upload_objects(place, PREFIX, FILES)
    stores.upload_objects(place, f"{PREFIX}-base", {"config.json": b"other"})
    stores.upload_objects(place, SUMMED, FILES | {sha256sums.NAME: SUMS})


def fetch(place: BucketPlace, store: Store, progress: Progress, prefix: str = PREFIX, **secret: str) -> Manifest:
    """Download the complete model."""
    uri = f"{place.uri}/{prefix}"
    found = open_bucket(uri, Access(place.parameters, {**place.secret, **secret}))
    return asyncio.run(Download(uri, found, store, Limits(first=0.001, last=0.01, tries=2), progress).run())


def test_every_file_of_a_store_is_downloaded_and_verified(place: BucketPlace, tmp_path: Path) -> None:
    store, progress = Store(tmp_path / "m", "0123abcd"), Progress()
    made = fetch(place, store, progress)
    files = {str(one.relative_to(store.root)): one.read_bytes() for one in store.root.rglob("*") if one.is_file()}
    assert files == FILES and progress.fetched == sum(map(len, FILES.values()))
    proofs = {one.name: one.hash.algorithm.partition(":")[0] for one in made.files}
    assert proofs["config.json"] == place.proof
    assert proofs[BIG] == ("s3-parts" if place.uri.startswith(("s3", "oci")) else place.proof)


def test_partial_file_is_continued_at_its_end(place: BucketPlace, tmp_path: Path) -> None:
    store, progress = Store(tmp_path / "m", "0123abcd"), Progress()
    listing = asyncio.run(open_bucket(f"{place.uri}/{PREFIX}", Access(place.parameters, place.secret)).listing(""))
    store.prepare(listing)
    have = 7_000_001
    store.partial_path(next(one for one in listing.files if one.name == BIG)).write_bytes(FILES[BIG][:have])
    fetch(place, store, progress)
    assert (store.root / BIG).read_bytes() == FILES[BIG]
    assert progress.fetched == sum(map(len, FILES.values())) - have


def test_missing_bucket_is_reported_immediately(place: BucketPlace, tmp_path: Path) -> None:
    if place.uri.startswith("gs://"):
        pytest.skip("fake-gcs-server answers 500 for a bucket that is not there")
    with pytest.raises(DownloadFailed, match=r"answers 404: look at spec\.storage\.storageUri"):
        fetch(place._replace(uri=place.uri.replace(stores.BUCKET, "nothing")), Store(tmp_path / "m", "0123abcd"), Progress())


def test_wrong_key_is_reported_immediately_and_not_shown(place: BucketPlace, tmp_path: Path) -> None:
    if "serviceAccountKey" in place.secret:
        pytest.skip("fake-gcs-server looks at no credentials")
    wrong = {key: "AAAA" + text[4:] for key, text in place.secret.items() if key in ("secretAccessKey", "accountKey")}
    with pytest.raises(DownloadFailed, match=r"look at .* what the Secret of spec\.storage\.key opens") as told:
        fetch(place, Store(tmp_path / "m", "0123abcd"), Progress(), **wrong)
    assert not any(text in str(told.value) for text in wrong.values())


def test_every_file_is_verified_with_sha256sums(place: BucketPlace, tmp_path: Path) -> None:
    store, progress = Store(tmp_path / "m", "0123abcd"), Progress()
    made = fetch(place, store, progress, SUMMED)
    files = {str(one.relative_to(store.root)): one.read_bytes() for one in store.root.rglob("*") if one.is_file()}
    assert files == FILES | {sha256sums.NAME: SUMS}
    assert {str(one.hash) for one in made.files} == {f"sha256:{hashlib.sha256(one).hexdigest()}" for one in files.values()}


def test_changed_byte_in_the_store_is_never_published(place: BucketPlace, tmp_path: Path) -> None:
    changed = bytearray(FILES[BIG])
    changed[5_000_000] ^= 1
    stores.upload_objects(place, "org/spoilt", FILES | {BIG: bytes(changed), sha256sums.NAME: SUMS})
    store = Store(tmp_path / "m", "0123abcd")
    with pytest.raises(DownloadFailed, match=f"{BIG} was downloaded 5 times, and each time its SHA-256 differed"):
        fetch(place, store, Progress(), "org/spoilt")
    assert store.manifest() is None and not store.root.exists()


def test_incomplete_upload_is_not_taken_for_a_model(place: BucketPlace, tmp_path: Path) -> None:
    half = {name: data for name, data in FILES.items() if name != BIG}
    stores.upload_objects(place, "org/half", half | {sha256sums.NAME: SUMS})
    store, progress = Store(tmp_path / "m", "0123abcd"), Progress()
    with pytest.raises(
        DownloadFailed,
        match=f"SHA256SUMS names '{BIG}', which is not in the object store: check that the upload is complete",
    ):
        fetch(place, store, progress, "org/half")
    assert (progress.fetched, progress.revision) == (0, ""), "a node must not be pinned to an incomplete model"
    stores.upload_objects(place, "org/half", {BIG: FILES[BIG]})
    fetch(place, store, progress, "org/half")
    assert (store.root / BIG).read_bytes() == FILES[BIG]
