"""An OCI layout: a folder with blobs, named by digest, and an index. A release is pushed from an OCI layout."""

import gzip
import hashlib
import json
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ome_operator.errors import UserError

INDEX = "application/vnd.oci.image.index.v1+json"
_NAME = "org.opencontainers.image.ref.name"


@dataclass(frozen=True)
class Layout:
    """An OCI layout in a folder. `Layout.new` creates an empty one."""

    folder: Path

    @classmethod
    def new(cls, folder: Path) -> "Layout":
        """Create an empty layout in a new folder."""
        (folder / "blobs" / "sha256").mkdir(parents=True)
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": []}))
        return cls(folder)

    def blob(self, digest: str) -> Path:
        """Return the path of the blob with this digest."""
        return self.folder / "blobs" / digest.replace(":", "/")

    def document(self, digest: str) -> dict[str, Any]:
        """Return the content of the JSON blob with this digest."""
        found: dict[str, Any] = json.loads(self.blob(digest).read_bytes())
        return found

    def entries(self) -> list[dict[str, Any]]:
        """Return the descriptors of the index."""
        found: list[dict[str, Any]] = json.loads((self.folder / "index.json").read_text())["manifests"]
        return found

    def only(self) -> dict[str, Any]:
        """Return the descriptor of the image. Raises UserError unless the layout holds exactly one image."""
        found = self.entries()
        if len(found) != 1:
            raise UserError(
                f"{self.folder} holds {len(found)} images instead of a single image: remove the folder and build it again."
            )
        return found[0]

    def put(self, content: bytes, kind: str) -> dict[str, Any]:
        """Store a blob with media type `kind`, and return its descriptor."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.blob(digest).write_bytes(content)
        return {"mediaType": kind, "digest": digest, "size": len(content)}

    def name(self, descriptor: dict[str, Any], name: str) -> str:
        """Add a manifest to the index with the given name, and return the manifest's digest."""
        listed = [*self.entries(), {**descriptor, "annotations": {_NAME: name}}]
        text = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": listed})
        (self.folder / "index.json").write_text(text)
        return str(descriptor["digest"])

    def join(self, images: list["Layout"], name: str) -> str:
        """Join the images of several platforms into a multi-platform image, and return the digest of its index."""
        manifests = []
        for image in images:
            shutil.copytree(image.folder / "blobs", self.folder / "blobs", dirs_exist_ok=True)
            found = image.only()
            config = self.document(self.document(found["digest"])["config"]["digest"])
            platform = {"os": config["os"], "architecture": config["architecture"]}
            manifests.append({key: found[key] for key in ("mediaType", "digest", "size")} | {"platform": platform})
        manifests.sort(key=lambda item: item["platform"]["architecture"])
        text = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}).encode()
        return self.name(self.put(text, INDEX), name)

    def files(self, digest: str) -> Iterator[tuple[str, bytes]]:
        """Yield the names and contents of the package databases in an image. The layers are read from the lowest to the
        highest.
        """
        for layer in self.document(digest)["layers"]:
            with gzip.open(self.blob(layer["digest"])) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
                for entry in tar:
                    if entry.isfile() and entry.name.endswith(("var/lib/dpkg/status", ".dist-info/METADATA")):
                        content = tar.extractfile(entry)
                        yield entry.name, content.read() if content else b""
