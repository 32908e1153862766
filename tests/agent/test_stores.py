"""Object stores, each from a server of its own that speaks its protocol and checks signatures as far as it can."""

import asyncio
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from ome_operator.agent.download import Download, Failed, Limits
from ome_operator.agent.progress import Progress
from ome_operator.agent.sources import Access, bucket
from ome_operator.agent.store import Manifest, Store
from tests.support import stores
from tests.support.hub import model
from tests.support.stores import Place

FILES = {**model(11, [12_000_000, 300_000]), "a name with + and ü.txt": b"text"}
BIG = "model-00001-of-00002.safetensors"
PREFIX = "org/k2"


@pytest.fixture(scope="module", params=["s3", "oci", "gs", "az"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("store")
    servers = {"gs": lambda: stores.google(folder), "az": lambda: stores.azure(folder)}
    with servers.get(request.param, lambda: stores.s3(folder, request.param))() as one:
        fill(one)
        yield one


def fill(place: Place) -> None:
    """Put the model into the bucket, large files in parts where there are parts, and a neighbour whose name begins alike."""
    for prefix, files in ((PREFIX, FILES), (f"{PREFIX}-base", {"config.json": b"other"})):
        target = bucket(f"{place.uri}/{prefix}", Access(place.parameters, place.secret))
        for name, data in files.items():
            if place.upload:
                urllib.request.urlopen(place.upload + quote(f"{prefix}/{name}", safe=""), data).close()
            else:
                asyncio.run(target.write(name, data))


def fetch(place: Place, store: Store, progress: Progress, **secret: str) -> Manifest:
    """Download all of it."""
    uri = f"{place.uri}/{PREFIX}"
    found = bucket(uri, Access(place.parameters, {**place.secret, **secret}))
    return asyncio.run(Download(uri, found, store, Limits(first=0.001, last=0.01, tries=2), progress).run())


def test_every_file_arrives_and_is_proven(place: Place, tmp_path: Path) -> None:
    store, progress = Store(tmp_path / "m", "0123abcd"), Progress()
    made = fetch(place, store, progress)
    files = {str(one.relative_to(store.root)): one.read_bytes() for one in store.root.rglob("*") if one.is_file()}
    assert files == FILES and progress.fetched == sum(map(len, FILES.values()))
    proofs = {one.name: one.hash.algorithm.partition(":")[0] for one in made.files}
    assert proofs["config.json"] == place.proof
    assert proofs[BIG] == ("s3-parts" if place.uri.startswith(("s3", "oci")) else place.proof)


def test_it_goes_on_where_the_disk_ends(place: Place, tmp_path: Path) -> None:
    store, progress = Store(tmp_path / "m", "0123abcd"), Progress()
    listing = asyncio.run(bucket(f"{place.uri}/{PREFIX}", Access(place.parameters, place.secret)).listing(""))
    store.prepare(listing)
    have = 7_000_001
    store.part(next(one for one in listing.files if one.name == BIG)).write_bytes(FILES[BIG][:have])
    fetch(place, store, progress)
    assert (store.root / BIG).read_bytes() == FILES[BIG]
    assert progress.fetched == sum(map(len, FILES.values())) - have


def test_a_bucket_that_is_not_there_is_said_at_once(place: Place, tmp_path: Path) -> None:
    if place.uri.startswith("gs://"):
        pytest.skip("fake-gcs-server answers 500 for a bucket that is not there")
    with pytest.raises(Failed, match=r"answers 404: look at spec\.storage\.storageUri"):
        fetch(place._replace(uri=place.uri.replace(stores.BUCKET, "nothing")), Store(tmp_path / "m", "0123abcd"), Progress())


def test_a_wrong_key_is_said_at_once_and_not_shown(place: Place, tmp_path: Path) -> None:
    if "serviceAccountKey" in place.secret:
        pytest.skip("fake-gcs-server looks at no credentials")
    wrong = {key: "AAAA" + text[4:] for key, text in place.secret.items() if key in ("secretAccessKey", "accountKey")}
    with pytest.raises(Failed, match=r"look at .* what the Secret of spec\.storage\.key opens") as told:
        fetch(place, Store(tmp_path / "m", "0123abcd"), Progress(), **wrong)
    assert not any(text in str(told.value) for text in wrong.values())
