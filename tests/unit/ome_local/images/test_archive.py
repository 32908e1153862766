"""Images made from layers, as containerd and Docker read them."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ome_local.images import archive
from ome_local.images.archive import ImageConfig
from ome_operator.errors import UserError


def layer(path: Path, **files: str) -> Path:
    """An uncompressed tar with these files."""
    with tarfile.open(path, "w") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return path


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, bytes]]:
    """The manifest's only image, its configuration, and every file."""
    with tarfile.open(path) as tar:
        files = {name: tar.extractfile(name).read() for name in tar.getnames()}  # type: ignore[union-attr]
    [image] = json.loads(files["manifest.json"])
    return image, json.loads(files[image["Config"]]), files


def test_an_image_of_two_layers(tmp_path: Path) -> None:
    """Digests are those of the layers' bytes, in order; the configuration is named by its own digest."""
    low, high = layer(tmp_path / "low.tar", a="1"), layer(tmp_path / "high.tar", b="2")
    config = ImageConfig(entrypoint=["/a"], cmd=["-v"], env={"X": "1"}, user="65532:65532", architecture="arm64")
    archive.write(tmp_path / "out.tar", "local/a:1", [low, high], config)
    image, told, files = read(tmp_path / "out.tar")
    assert image["RepoTags"] == ["local/a:1"]
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (low, high)]
    assert told["rootfs"]["diff_ids"] == [f"sha256:{digest}" for digest in digests]
    assert [files[name] for name in image["Layers"]] == [low.read_bytes(), high.read_bytes()]
    assert image["Config"] == hashlib.sha256(files[image["Config"]]).hexdigest() + ".json"
    assert told["architecture"] == "arm64"
    assert told["config"] == {
        "Entrypoint": ["/a"], "Cmd": ["-v"], "Env": [f"PATH={archive.PATH}", "X=1"], "User": "65532:65532",
    }  # fmt: skip


def test_the_same_image_twice_is_the_same_bytes(tmp_path: Path) -> None:
    """So a pod of an image that was made again keeps its image id. A repeated layer is stored once."""
    one = layer(tmp_path / "one.tar", a="1")
    for out in ("x.tar", "y.tar"):
        archive.write(tmp_path / out, "local/a:1", [one, one], ImageConfig())
    assert (tmp_path / "x.tar").read_bytes() == (tmp_path / "y.tar").read_bytes()
    image, told, files = read(tmp_path / "x.tar")
    assert len(image["Layers"]) == len(told["rootfs"]["diff_ids"]) == 2
    assert len(files) == 3


def test_a_compressed_layer_is_refused(tmp_path: Path) -> None:
    """And nothing is left behind."""
    packed = tmp_path / "one.tar.gz"
    packed.write_bytes(gzip.compress(layer(tmp_path / "one.tar", a="1").read_bytes()))
    with pytest.raises(UserError, match=r"one\.tar\.gz is no uncompressed tar"):
        archive.write(tmp_path / "out.tar", "local/a:1", [packed], ImageConfig())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.tar", "one.tar.gz"]
