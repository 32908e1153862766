"""Tests of OCI layouts: blobs by digest, and images of several platforms as a single image."""

import hashlib
import json
from pathlib import Path

import pytest

from ome_operator.errors import UserError
from release.layout import INDEX, Layout
from tests.support import oci


def test_images_of_two_platforms_are_joined(tmp_path: Path) -> None:
    """Images of two platforms become one image, whose digest does not depend on the order in which they were built."""
    arm = oci.image(tmp_path / "arm", {"a": b"1"}, "arm64")
    amd = oci.image(tmp_path / "amd", {"a": b"1"}, "amd64")
    both, turned = Layout.new(tmp_path / "both"), Layout.new(tmp_path / "turned")
    digest = both.join([arm, amd], "x-1")
    assert digest == turned.join([amd, arm], "x-1")
    index = both.document(digest)
    assert index["mediaType"] == INDEX
    assert [one["platform"]["architecture"] for one in index["manifests"]] == ["amd64", "arm64"]
    for blob in (both.folder / "blobs/sha256").iterdir():
        assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name
    assert [one["annotations"]["org.opencontainers.image.ref.name"] for one in both.entries()] == ["x-1"]
    assert {json.loads(both.blob(one["digest"]).read_text())["schemaVersion"] for one in index["manifests"]} == {2}


def test_package_lists_are_read_from_the_image_layers(tmp_path: Path) -> None:
    files = {"var/lib/dpkg/status": b"Package: a\n", "usr/x.dist-info/METADATA": b"Name: x\n", "etc/passwd": b"root"}
    made = oci.image(tmp_path / "i", files, "amd64")
    assert dict(made.files(made.only()["digest"])) == {name: text for name, text in files.items() if name != "etc/passwd"}


def test_layout_with_two_images_gives_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds 0 images instead of a single image"):
        Layout.new(tmp_path / "i").only()
