"""Creates small images as OCI layouts, without a tool that builds images."""

import gzip
import io
import json
import tarfile
from pathlib import Path

from release.layout import Layout


def image(folder: Path, files: dict[str, bytes], architecture: str) -> Layout:
    """Return an image for a platform, with a layer that contains these files."""
    made, packed = Layout.new(folder), io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as stream, tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    layer = made.put(packed.getvalue(), "application/vnd.oci.image.layer.v1.tar+gzip")
    config = json.dumps({"os": "linux", "architecture": architecture}).encode()
    kind = "application/vnd.oci.image.manifest.v1+json"
    manifest = {"schemaVersion": 2, "mediaType": kind, "layers": [layer]}
    manifest["config"] = made.put(config, "application/vnd.oci.image.config.v1+json")
    made.name(made.put(json.dumps(manifest).encode(), kind), "image")
    return made
