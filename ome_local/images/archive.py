"""Images without a registry: a docker-archive made from layer tars, which `ome local load`, containerd and Docker import.

The same layers and the same configuration give the same bytes, and so the same image id.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ome_local.binaries.versions import this_machine
from ome_operator.errors import UserError

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BLOCK = 1 << 20
_MAGIC = slice(257, 262)
_LONG_AGO = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, kw_only=True)
class ImageConfig:
    """What a container of the image runs unless its pod says otherwise."""

    entrypoint: Sequence[str] = ()
    cmd: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """PATH is added when it is not named."""
    user: str = ""
    """`uid` or `uid:gid`; empty for root."""
    workdir: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    architecture: str = field(default_factory=lambda: this_machine(clients_only=True).arch)

    def document(self, diff_ids: Sequence[str]) -> bytes:
        """The configuration as images carry it, over layers with these digests."""
        words = {
            "Entrypoint": list(self.entrypoint),
            "Cmd": list(self.cmd),
            "Env": [f"{key}={value}" for key, value in {"PATH": PATH, **self.env}.items()],
            "User": self.user,
            "WorkingDir": self.workdir,
            "Labels": dict(self.labels),
        }
        return json.dumps({
            "architecture": self.architecture,
            "os": "linux",
            "created": _LONG_AGO,
            "config": {key: value for key, value in words.items() if value},
            "rootfs": {"type": "layers", "diff_ids": list(diff_ids)},
            "history": [{"created": _LONG_AGO, "created_by": "ome"} for _ in diff_ids],
        }).encode()  # fmt: skip


def write(out: Path, reference: str, layers: Sequence[Path], config: ImageConfig) -> None:
    """Write the archive of an image called `reference` (`name:tag`) to `out`, replacing it in one step.

    Layers are uncompressed tars, the lowest first. They are read in blocks: twice each, never held in memory.
    """
    digests = [_digest(layer) for layer in layers]
    files = dict(zip(digests, layers, strict=True))  # a layer that comes twice is stored once
    document = config.document([f"sha256:{digest}" for digest in digests])
    name = f"{hashlib.sha256(document).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [reference], "Layers": [f"{digest}.tar" for digest in digests]}]
    beside = out.with_name(f".{out.name}.new")
    try:
        with tarfile.open(beside, "w") as archive:
            _add(archive, "manifest.json", json.dumps(manifest).encode())
            _add(archive, name, document)
            for digest, layer in files.items():
                with layer.open("rb") as file:
                    archive.addfile(_entry(f"{digest}.tar", layer.stat().st_size), file)
        beside.replace(out)
    finally:
        beside.unlink(missing_ok=True)


def _digest(layer: Path) -> str:
    """SHA-256 of the layer's bytes, which must be a tar's: a compressed layer would get a digest that nothing accepts."""
    with layer.open("rb") as file:
        block = file.read(_BLOCK)
        if block[_MAGIC] != b"ustar":
            raise UserError(f"{layer} is no uncompressed tar: unpack it first (layers are named by their plain bytes).")
        digest = hashlib.sha256()
        while block:
            digest.update(block)
            block = file.read(_BLOCK)
    return digest.hexdigest()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    archive.addfile(_entry(name, len(content)), io.BytesIO(content))


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o644
    return entry
