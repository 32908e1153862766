"""The files that describe weights on a disk: the manifest of a complete directory, and the journal of a download.

Agents write these files, but the names and sizes in them come from untrusted sources; `storage.listing` limits them.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ome_operator.storage.hashes import Hash
from ome_operator.util.json_limits import MIB, max_text_bytes, parse_untrusted
from ome_operator.util.untrusted_json import PARSE_ERRORS, numbers, text, texts

MEMORY = 768 * MIB
"""Maximum bytes of memory that parsing a manifest or a line of a journal may need, as computed by
`json_limits.estimate_memory`. The largest manifest that an agent writes stays below this limit: an agent that could not
read its own manifest would download the model again and again."""


class VerifiedFile(NamedTuple):
    """A file whose contents were verified."""

    name: str
    size: int
    hash: Hash
    blocks: tuple[int, ...]
    """CRC-32 of each block of `hashes.BLOCK` bytes, in order."""
    members: tuple[str, ...] = ()
    """For an archive: the names of the files that were unpacked from it. The archive itself is deleted, but counts as
    verified while these files exist."""


class Manifest(NamedTuple):
    """The manifest of a directory of weights."""

    uri: str
    revision: str
    files: tuple[VerifiedFile, ...]
    verified_at: str
    """Time when all files were verified, or last checked; RFC 3339."""
    models: tuple[str, ...] = ()
    """Node labels of the models for which these files were downloaded."""
    paths: tuple[str, ...] = ()
    """Paths of the models in `models`. Each path is or was a symlink to this directory. A pod that mounted the path at that
    time still reads these files."""
    identity: Mapping[str, str] = MappingProxyType({})
    """Storage identity of the model: the fields that determine the bytes of the model and the owner of the directory."""

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


def dump_file(file: VerifiedFile) -> dict[str, Any]:
    """Return the JSON object of a file, as a line of the journal and an item of a manifest contain it."""
    entry = {"name": file.name, "size": file.size, "hash": str(file.hash), "blocks": list(file.blocks)}
    return {**entry, "members": list(file.members)} if file.members else entry


def _load(file: Any) -> VerifiedFile:
    """Parse the entry of a file in a manifest. Raises one of the exceptions in `PARSE_ERRORS` if the entry is malformed,
    because other programs may have changed the manifest.
    """
    name, size, proof = text(file["name"]), int(file["size"]), Hash.parse(text(file["hash"]))
    return VerifiedFile(name, size, proof, numbers(file["blocks"]), texts(file.get("members")))


def read_manifest(path: Path) -> Manifest | None:
    """Return the manifest at `path`, or None if it does not exist or cannot be parsed. In both cases the files are not
    verified.
    """
    try:
        if path.stat().st_size > max_text_bytes(MEMORY):
            return None
        return parse_untrusted(path.read_bytes(), "the manifest", memory=MEMORY, extract=_manifest)
    except (OSError, *PARSE_ERRORS):
        return None


def _manifest(body: Any) -> Manifest:
    """Parse a manifest. Raises one of the exceptions in `PARSE_ERRORS` if it is malformed."""
    files = tuple(_load(file) for file in body["files"])
    models, paths = (texts(body.get(name)) for name in ("models", "paths"))
    uri, revision, verified = (text(body[name]) for name in ("uri", "revision", "verifiedAt"))
    identity = {str(name): str(value) for name, value in (body.get("identity") or {}).items()}
    return Manifest(uri, revision, files, verified, models, paths, identity)


def read_journal(path: Path) -> Iterable[VerifiedFile]:
    """Return the verified files that a journal lists."""
    try:
        journal = path.open("rb")
    except FileNotFoundError:
        return
    with journal:
        while line := journal.readline(max_text_bytes(MEMORY)):
            try:
                yield parse_untrusted(line, "the line", memory=MEMORY, extract=_load)
            except PARSE_ERRORS:  # the line was cut off by a crash
                continue
