"""What a disk says of its files: the manifest of a whole directory, and the journal of what is on its way."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ome_operator.storage.hashes import Hash
from ome_operator.util.unread import UNREAD, numbers, text, texts


class Proven(NamedTuple):
    """A file whose bytes were right."""

    name: str
    size: int
    hash: Hash
    blocks: tuple[int, ...]
    """CRC-32 of every `hashes.BLOCK` bytes."""
    members: tuple[str, ...] = ()
    """Of an archive: the files that came out of it. It is gone, and counts as proven while they are there."""


class Manifest(NamedTuple):
    """What a directory holds."""

    uri: str
    revision: str
    files: tuple[Proven, ...]
    verified_at: str
    """When all of it was proven, or looked at last; RFC 3339."""
    models: tuple[str, ...] = ()
    """Labels of the models that these files were fetched for."""
    paths: tuple[str, ...] = ()
    """Paths of these models: symlinks to here once, and a pod that mounted such a path then sees these files still."""
    identity: Mapping[str, str] = MappingProxyType({})
    """Storage identity of the model: what decides the bytes, and whose they are."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def dump(self) -> dict[str, Any]:
        """As it stands on the disk."""
        return {
            "identity": dict(self.identity),
            "uri": self.uri,
            "revision": self.revision,
            "verifiedAt": self.verified_at,
            "models": list(self.models),
            "paths": list(self.paths),
            "files": [dump(file) for file in self.files],
        }


def dump(file: Proven) -> dict[str, Any]:
    """As a line of the journal, or a file of a manifest."""
    said = {"name": file.name, "size": file.size, "hash": str(file.hash), "blocks": list(file.blocks)}
    return {**said, "members": list(file.members)} if file.members else said


def _load(file: Any) -> Proven:
    """Raises one of UNREAD: whoever may write beside the weights may have written anything here."""
    name, size, proof = text(file["name"]), int(file["size"]), Hash.read(text(file["hash"]))
    return Proven(name, size, proof, numbers(file["blocks"]), texts(file.get("members")))


def read(path: Path) -> Manifest | None:
    """A manifest; None when it is absent or broken, which is the same: not proven."""
    try:
        body = json.loads(path.read_bytes())
        files = tuple(_load(file) for file in body["files"])
        models, paths = (texts(body.get(name)) for name in ("models", "paths"))
        uri, revision, verified = (text(body[name]) for name in ("uri", "revision", "verifiedAt"))
        identity = {str(name): str(value) for name, value in (body.get("identity") or {}).items()}
        return Manifest(uri, revision, files, verified, models, paths, identity)
    except (OSError, *UNREAD):
        return None


def lines(path: Path) -> Iterable[Proven]:
    """What a journal says was proven."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return
    for line in raw.splitlines():
        try:
            yield _load(json.loads(line))
        except UNREAD:  # cut off by a crash
            continue
