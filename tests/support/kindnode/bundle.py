"""Writes archives with several images in one file, as kind's builder of node images needs them."""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LONG_AGO = "1970-01-01T00:00:00Z"


class Image(NamedTuple):
    """An image of one layer."""

    reference: str
    layer: Path
    """An uncompressed tar."""
    config: Mapping[str, Any] = {}
    """Configuration of the image: Entrypoint, Env, and other fields of the OCI image format."""


def write(out: Path, *images: Image) -> None:
    """Write a docker-archive with all images.

    Kind reads only the first image of manifest.json, but all names in the older file `repositories`. So further images that
    kind would pull by itself can be added to the archive of another image.
    """
    names: dict[str, dict[str, str]] = {}
    for image in images:
        name, _, tag = image.reference.rpartition(":")
        names.setdefault(name, {})[tag] = ""
    with tarfile.open(out, "w") as tar:
        _add(tar, "repositories", json.dumps(names).encode())
        _add(tar, "manifest.json", json.dumps(list(_stored(tar, images))).encode())


def _stored(tar: tarfile.TarFile, images: Iterable[Image]) -> Iterable[dict[str, Any]]:
    """Add configuration and layer of images to the archive, each only once, and yield the entries of manifest.json."""
    seen = set()
    for image in images:
        with image.layer.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        document = _document(image.config, digest)
        name = f"{hashlib.sha256(document).hexdigest()}.json"
        if name not in seen:
            _add(tar, name, document)
        if digest not in seen:
            with image.layer.open("rb") as file:
                entry = tarfile.TarInfo(f"{digest}.tar")
                entry.size = image.layer.stat().st_size
                tar.addfile(entry, file)
        seen |= {name, digest}
        yield {"Config": name, "RepoTags": [image.reference], "Layers": [f"{digest}.tar"]}


def _document(config: Mapping[str, Any], digest: str) -> bytes:
    return json.dumps({
        "architecture": "amd64",
        "os": "linux",
        "created": _LONG_AGO,
        "config": {**config, "Env": [*config.get("Env", ()), _PATH]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created": _LONG_AGO, "created_by": "ome"}],
    }).encode()  # fmt: skip


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
