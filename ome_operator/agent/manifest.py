"""The files that describe weights on a disk: the manifest of a complete directory, and the journal of a download."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ome_operator.storage.hashes import Hash
from ome_operator.util.untrusted_json import PARSE_ERRORS, numbers, text, texts


class Proven(NamedTuple):
    """A file whose contents were verified."""

    name: str
    size: int
    hash: Hash
    blocks: tuple[int, ...]
    """CRC-32 of every `hashes.BLOCK` bytes."""
    members: tuple[str, ...] = ()
    """For an archive: the files that were unpacked from it. The archive is deleted, and counts as verified while these files
    exist.
    """


class Manifest(NamedTuple):
    """The contents of a directory of weights."""

    uri: str
    revision: str
    files: tuple[Proven, ...]
    verified_at: str
    """Time when all files were verified, or last checked; RFC 3339."""
    models: tuple[str, ...] = ()
    """Labels of the models that these files were fetched for."""
    paths: tuple[str, ...] = ()
    """Paths of these models. They were once symlinks to this directory; a pod that mounted such a path still reads these
    files.
    """
    identity: Mapping[str, str] = MappingProxyType({})
    """Storage identity of the model: the fields that determine the bytes and the owner of the directory."""

    @property
    def size(self) -> int:
        """Total size of all files in bytes."""
        return sum(file.size for file in self.files)

    def dump(self) -> dict[str, Any]:
        """Return the JSON object that is stored on the disk."""
        return {
            "identity": dict(self.identity),
            "uri": self.uri,
            "revision": self.revision,
            "verifiedAt": self.verified_at,
            "models": list(self.models),
            "paths": list(self.paths),
            "files": [dump_file(file) for file in self.files],
        }


def dump_file(file: Proven) -> dict[str, Any]:
    """Return a file as a line of the journal or an item of a manifest."""
    entry = {"name": file.name, "size": file.size, "hash": str(file.hash), "blocks": list(file.blocks)}
    return {**entry, "members": list(file.members)} if file.members else entry


def _load(file: Any) -> Proven:
    """Parse a file. Raises one of PARSE_ERRORS, because other writers can change the file."""
    name, size, proof = text(file["name"]), int(file["size"]), Hash.read(text(file["hash"]))
    return Proven(name, size, proof, numbers(file["blocks"]), texts(file.get("members")))


def read_manifest(path: Path) -> Manifest | None:
    """Return the manifest at `path`, or None if it is absent or broken; both mean that the files are not verified."""
    try:
        body = json.loads(path.read_bytes())
        files = tuple(_load(file) for file in body["files"])
        models, paths = (texts(body.get(name)) for name in ("models", "paths"))
        uri, revision, verified = (text(body[name]) for name in ("uri", "revision", "verifiedAt"))
        identity = {str(name): str(value) for name, value in (body.get("identity") or {}).items()}
        return Manifest(uri, revision, files, verified, models, paths, identity)
    except (OSError, *PARSE_ERRORS):
        return None


def read_journal(path: Path) -> Iterable[Proven]:
    """Return the files that a journal records as verified."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return
    for line in raw.splitlines():
        try:
            yield _load(json.loads(line))
        except PARSE_ERRORS:  # the line was cut off by a crash
            continue
