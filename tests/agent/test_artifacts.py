"""Tests of downloading artifacts that the program oras pushed to a real registry."""

import asyncio
import base64
import io
import json
import random
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ome_operator.agent.download import Download, DownloadFailed, Limits
from ome_operator.agent.manifest import VerifiedFile
from ome_operator.agent.progress import Progress
from ome_operator.agent.store import Manifest, Store
from ome_operator.storage.hashes import Hash
from ome_operator.storage.listing import Listing, RemoteFile, RequestRefused
from ome_operator.storage.sources import Access, open_source
from tests.support.hub import Answer, model, served
from tests.support.registry import Front, programs, push, running

FILES = model(7, [2_000_000, 300_000])
WEIGHTS = "model-00001-of-00002.safetensors"
TAR = "application/vnd.cncf.model.weight.v1.tar"


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with running(programs()["registry"]) as one:
        yield one


@pytest.fixture
def front(registry: str) -> Iterator[Front]:
    with served(Front(registry)) as one:
        yield one


class Node:
    """A node's disk, and a directory with the files to push."""

    def __init__(self, folder: Path, front: Front) -> None:
        self.front, self.progress, self.store = front, Progress(), Store(folder / "models" / "m", "0123abcd")
        self.made = folder / "made"
        self.write(FILES)

    def write(self, files: dict[str, bytes], below: str = "") -> None:
        """Write files to push."""
        for name, data in files.items():
            place = self.made / below / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)

    def push(self, name: str, *files: str) -> str:
        """Push the files as the artifact with this name, and return the digest of its manifest."""
        return push(programs()["oras"], self.made, f"{self.front.registry}/{name}", *files)

    def fetch(self, name: str, revision: str = "", *, files: int = 8, **secret: str) -> Manifest:
        """Download the complete artifact."""

        async def run() -> Manifest:
            given = {".dockerconfigjson" if key == "docker" else key: text for key, text in secret.items()}
            uri = f"oci://{self.front.host}/{name}"
            found = open_source(uri, Access({"endpoint": self.front.url}, given))
            try:
                limits = Limits(files=files, first=0.001, last=0.01)
                return await Download(uri, found, self.store, limits, self.progress).run(revision)
            finally:
                await found.close()

        return asyncio.run(run())

    @property
    def files(self) -> dict[str, bytes]:
        """Return the content of the model's visible files, by path."""
        root = self.store.root
        return {str(one.relative_to(root)): one.read_bytes() for one in root.rglob("*") if one.is_file()}


@pytest.fixture
def node(tmp_path: Path, front: Front) -> Node:
    return Node(tmp_path, front)


def packed(folder: Path, files: dict[str, bytes], *, kind: bytes = tarfile.REGTYPE) -> None:
    """Write an archive `weights.tar` whose members all have one type."""
    with tarfile.open(folder / "weights.tar", "w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.type, member.size, member.linkname = kind, len(data), "/etc/passwd"
            archive.addfile(member, io.BytesIO(data))


def test_every_artifact_layer_becomes_a_file(node: Node) -> None:
    digest = node.push("m/files:1", *FILES)
    made = node.fetch("m/files:1")
    assert node.files == FILES and made.revision == digest
    assert all(one.hash.algorithm == "sha256" for one in made.files)
    assert node.front.sent_bytes == sum(map(len, FILES.values())), "every byte was downloaded once"


def test_pinned_revision_is_kept_when_the_tag_moves(node: Node) -> None:
    first = node.push("m/moving:1", *FILES)
    node.write({"config.json": b"{}"})
    second = node.push("m/moving:1", "config.json")
    assert node.fetch("m/moving:1", first).revision == first and node.files == FILES
    node.store = Store(node.store.path, "ffff0000")
    assert node.fetch(f"m/moving@{second}").revision == second and node.files == {"config.json": b"{}"}


@pytest.mark.parametrize("pushed", ["tiny", "."])
def test_pushed_directory_becomes_the_model_directory(node: Node, pushed: str) -> None:
    if pushed == "tiny":
        node.write(FILES, "tiny")
    node.push("m/directory:1", pushed)
    made = node.fetch("m/directory:1")
    wanted = {name: data for name, data in node.files.items() if not name.startswith("tiny/")}
    assert wanted == FILES and len(made.files) == len(FILES)
    assert sorted(one.name for one in node.store.home.iterdir()) == ["0123abcd", "0123abcd.json"]
    node.progress.fetched = 0
    node.fetch("m/directory:1")
    assert node.files == FILES, "an existing directory is repaired in place"


@pytest.mark.parametrize("beside", [False, True])
def test_common_directory_of_all_files_becomes_the_model_directory(node: Node, beside: bool) -> None:
    """An artifact whose files are all below one directory, as KitOps and olot pack them (weights/ or models/), has the model
    in that directory. Reported: config.json was not found there.
    """
    halves = [dict(list(FILES.items())[at::2]) for at in (0, 1)]
    for number, half in enumerate(halves):
        packed(node.made, {f"./weights/sub/{name}": data for name, data in half.items()})
        (node.made / "weights.tar").rename(node.made / f"{number}.tar")
    archives = [f"{number}.tar:{TAR}" for number in range(2)]
    node.push("m/shared:1", *archives, *(["config.json"] if beside else []))
    made = node.fetch("m/shared:1")
    below = "weights/sub/" if beside else ""
    wanted = {f"{below}{name}": data for name, data in FILES.items()} | (
        {"config.json": FILES["config.json"]} if beside else {}
    )
    assert node.files == wanted
    assert {one.name for one in made.files} == wanted.keys()
    (node.store.root / f"{below}{WEIGHTS}").unlink()
    node.store.mark_damaged()
    node.fetch("m/shared:1")
    assert node.files == wanted, "the directory is repaired in place"


def test_common_directory_of_plain_file_layers_becomes_the_model_directory(node: Node) -> None:
    node.write(FILES, "weights")
    node.push("m/raw:1", *(f"weights/{name}" for name in FILES))
    node.fetch("m/raw:1")
    assert node.files == FILES
    (node.store.root / WEIGHTS).unlink()
    node.store.mark_damaged()
    before = node.front.sent_bytes
    node.fetch("m/raw:1")
    assert node.files == FILES
    assert node.front.sent_bytes - before == len(FILES[WEIGHTS]), "the other files are still on the disk"


def test_fetch_unpacks_archives_next_to_plain_files(node: Node) -> None:
    node.write(FILES, "one")
    packed(node.made, {"two/a.safetensors": b"a", "b": b"bb"})
    node.push("m/both:1", "config.json", "one", f"weights.tar:{TAR}")
    node.fetch("m/both:1")
    below = {f"one/{name}": data for name, data in FILES.items()}
    assert node.files == {"config.json": FILES["config.json"], **below, "two/a.safetensors": b"a", "b": b"bb"}


@pytest.mark.parametrize(
    ("names", "kind", "said"),
    [
        (["../out"], tarfile.REGTYPE, "which is outside the model.s directory, occurs twice or is not a regular file"),
        (["/out"], tarfile.REGTYPE, "which is outside the model.s directory, occurs twice or is not a regular file"),
        (["x"], tarfile.SYMTYPE, "which is outside the model.s directory, occurs twice or is not a regular file"),
        ([], tarfile.REGTYPE, "contains no files"),
        (["config.json"], tarfile.REGTYPE, "two layers contain a file"),
    ],
)
def test_unusable_archive_is_reported(node: Node, names: list[str], kind: bytes, said: str) -> None:
    packed(node.made, dict.fromkeys(names, b""), kind=kind)
    node.push("m/bad:1", "config.json", f"weights.tar:{TAR}")
    with pytest.raises(DownloadFailed, match=said):
        node.fetch("m/bad:1")
    assert node.store.manifest() is None and not (node.store.home / "out").exists()


@pytest.mark.parametrize("last", ["file", "archive"])
def test_duplicate_file_in_two_layers_is_reported_in_either_order(tmp_path: Path, last: str) -> None:
    """If two layers of an artifact contain the same file, one as a file and one in an archive, publishing fails with a
    message, whichever of them is finished first. Reported: in one of the orders, the status of the model contained a
    traceback.
    """
    store = Store(tmp_path / "models" / "m", "0123abcd")
    file, archive = (RemoteFile(name, 1, Hash("sha256", name), unpack) for name, unpack in (("a", False), ("a.tar", True)))
    listing = Listing("r", (file, archive))
    store.prepare(listing)

    def accept() -> None:
        store.partial_path(file).write_bytes(b"x")
        store.store_verified(file, (0,))

    def unpack() -> None:
        store.partial_path(archive).write_bytes(b"x")
        (store.files / "a").write_bytes(b"y")
        store.unpacked(archive, [VerifiedFile("a", 1, Hash("sha256", "other"), (0,))])

    for step in (unpack, accept) if last == "file" else (accept, unpack):
        step()
    with pytest.raises(RequestRefused, match="two layers contain a file"):
        store.publish("oci://x/y", listing, "now")


def test_unpacked_archive_is_not_downloaded_again(node: Node) -> None:
    node.write(FILES, "tiny")
    node.push("m/late:1", WEIGHTS, "tiny")
    node.front.fault = lambda number, name: Answer(status=404 if number == 1 else 0)
    with pytest.raises(DownloadFailed, match="404"):
        node.fetch("m/late:1", files=1)
    first = node.front.sent[0].name
    node.front.fault = lambda number, name: Answer()
    node.fetch("m/late:1", files=1)
    assert [one.name for one in node.front.sent].count(first) == 1
    assert node.files == {WEIGHTS: FILES[WEIGHTS], **{f"tiny/{name}": data for name, data in FILES.items()}}


def docker(host: str, user: str = "puller:s3cret") -> str:
    """Return the content of an image pull Secret."""
    return json.dumps({"auths": {f"https://{host}/v1/": {"auth": base64.b64encode(user.encode()).decode()}}})


@pytest.mark.parametrize("scheme", ["basic", "bearer"])
def test_private_registry_is_accessed_with_the_secret(node: Node, scheme: str, caplog: pytest.LogCaptureFixture) -> None:
    node.push("m/closed:1", *FILES)
    node.front.scheme = scheme
    with pytest.raises(DownloadFailed, match=r"spec\.storage\.key contains none"):
        node.fetch("m/closed:1")
    with pytest.raises(DownloadFailed, match="give no access") as told:
        node.fetch("m/closed:1", docker=docker(node.front.host, "puller:wr0ng"))
    node.fetch("m/closed:1", docker=docker(node.front.host))
    assert node.files == FILES
    assert not {"s3cret", "wr0ng"} & set((str(told.value) + caplog.text).split())


def test_expired_token_is_renewed(node: Node) -> None:
    node.push("m/tokens:1", *FILES)
    node.front.scheme, node.front.uses = "bearer", 2
    node.fetch("m/tokens:1", username="puller", password="s3cret", files=1)
    assert node.files == FILES and node.front.refused > 1
    assert node.front.sent_bytes == sum(map(len, FILES.values()))


@pytest.mark.parametrize("every", [2, 3])
def test_corrupted_artifact_bytes_are_never_published(node: Node, every: int) -> None:
    node.push("m/wrong:1", *FILES)
    node.front.fault = lambda number, name: Answer(wrong=number % every == 0)
    node.fetch("m/wrong:1")
    assert node.files == FILES


def test_bytes_received_before_a_cut_connection_are_kept(node: Node) -> None:
    node.write(FILES, "tiny")
    node.push("m/cut:1", *FILES, "tiny")
    chance = random.Random(3)
    node.front.fault = lambda number, name: Answer(cut=chance.randrange(100, 500_000) if number < 12 else None)
    made = node.fetch("m/cut:1")
    assert {one.name: one.size for one in made.files} == {name: len(data) for name, data in node.files.items()}
    sizes = {one.name: 0 for one in node.front.sent}
    for one in node.front.sent:
        assert one.start >= sizes[one.name]
        sizes[one.name] = one.start
    assert node.progress.fetched == node.progress.total, "what arrived was kept, and nothing arrived twice"


def test_missing_artifact_is_reported(node: Node) -> None:
    with pytest.raises(DownloadFailed, match=r"has no .*/m/nothing:1, or denies access"):
        node.fetch("m/nothing:1")
