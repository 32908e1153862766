"""Tests that an image is loaded into kind's nodes once."""

import json
import tarfile
from pathlib import Path

import pytest

from ome_local.kind import images
from ome_local.layout import Layout
from ome_operator.errors import UserError
from tests.unit.ome_local.kind.fakes import Fakes


@pytest.fixture
def file(tmp_path: Path, fakes: Fakes) -> Path:
    """Return an archive of one image, and let nodes list the image after a load."""
    (tmp_path / "manifest.json").write_text(json.dumps([{"RepoTags": ["local/web:1"]}]))
    with tarfile.open(tmp_path / "web.tar", "w") as tar:
        tar.add(tmp_path / "manifest.json", "manifest.json")
    (fakes.here / "archive").write_text("docker.io/local/web:1 type sha256:aa 1\nother type sha256:bb 1\n")
    return tmp_path / "web.tar"


def loads(fakes: Fakes) -> list[str]:
    """Return the nodes of each load."""
    return [line.split()[-1] for line in fakes.asked() if line.startswith("kind load image-archive")]


def test_image_is_loaded_into_each_kind_node_once(at: Layout, fakes: Fakes, file: Path) -> None:
    """An image is loaded into each node only once. Previously, the second demo spent 80 of its 105 s on images that the
    nodes already had. Another file counts as another image.
    """
    images.load(at, ["a", "b"], file)
    assert loads(fakes) == ["a,b"]
    images.load(at, ["a", "b"], file)
    assert loads(fakes) == []
    file.rename(file.with_name("new.tar"))
    images.load(at, ["a", "b"], file.with_name("new.tar"))
    assert loads(fakes) == ["a,b"]


def test_image_is_loaded_again_into_a_node_that_lost_it(at: Layout, fakes: Fakes, file: Path) -> None:
    """A node that does not have the image any more gets it again. The kubelet may have removed the image, or another image
    may have its name.
    """
    images.load(at, ["a", "b"], file)
    (fakes.here / "images-b").write_text("docker.io/local/web:1 type sha256:cc 1\n")
    loads(fakes)
    images.load(at, ["a", "b"], file)
    assert loads(fakes) == ["b"]


def test_unrecognized_archive_format_is_loaded_every_time(at: Layout, fakes: Fakes, file: Path) -> None:
    file.write_text("no tar")
    for _ in range(2):
        images.load(at, ["a"], file)
    assert loads(fakes) == ["a", "a"]


def test_missing_image_archive_is_reported(at: Layout, fakes: Fakes, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"There is no image archive .*/x\.tar"):
        images.load(at, ["a"], tmp_path / "x.tar")


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("web:1", "docker.io/library/web:1"),
        ("local/web:1", "docker.io/local/web:1"),
        ("localhost:1/web:1", "localhost:1/web:1"),
        ("quay.io/a/b:1", "quay.io/a/b:1"),
        ("localhost/web:1", "localhost/web:1"),
    ],
)
def test_image_names_are_expanded_like_in_containerd(name: str, full: str) -> None:
    assert images.full(name) == full
