"""Determine which namespace owns a directory of weights, and which models may take files from the directory
(docs/tenancy.md).

A directory has an owner only if its name agrees with its location and with the identity in its manifest.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ome_operator import keys, names
from ome_operator.agent.manifest import Manifest, VerifiedFile, read_journal, read_manifest
from ome_operator.agent.store import HIDDEN
from ome_operator.core.weights.mount import NAMESPACES, weights_parent

LEGACY_DIGITS = 8
"""Length in characters of a directory name that an earlier version of the agent created. Such a name depends only on the
URI, so that several models could share the directory."""
_SHARED = tuple(f"{keys.MODEL_LABEL_PREFIX}{kind}." for kind in ("clusterbasemodel", "finetunedweight"))


class ProvenFile(NamedTuple):
    """A verified file on this disk."""

    namespace: str
    """The namespace that owns the file; "" for files of cluster-scoped models."""
    path: Path
    verified: VerifiedFile


def find_homes(roots: Iterable[Path]) -> list[Path]:
    """Return every directory named `.ome` below the roots, at most a few levels deep. A `.ome` directory inside another
    `.ome` directory is ignored, because a model may contain a file or directory with that name.
    """
    depths = ("", "*/", "*/*/", f"{NAMESPACES}/*/*/")
    found = {home for root in roots for depth in depths for home in root.glob(f"{depth}{HIDDEN}")}
    return sorted(home for home in found if home.is_dir() and HIDDEN not in home.resolve().parent.parts)


def namespace_of(home: Path) -> str | None:
    """Return the namespace that owns the directories of weights in `home`, a directory named `.ome`. The result is "" for
    cluster-scoped models, and None if the location of `home` determines no owner.
    """
    if NAMESPACES not in home.parts:
        return ""
    return home.parent.name if home.parent.parent.name == NAMESPACES and home.parts.count(NAMESPACES) == 1 else None


def owner_of(folder: Path, digest: str, manifest: Manifest) -> str | None:
    """Return the namespace that owns the directory `digest` of weights in `folder`, a directory named `.ome`. The result is
    "" for cluster-scoped models, and None if the directory has no owner.
    """
    if len(digest) == LEGACY_DIGITS:
        return "" if manifest.models and all(label.startswith(_SHARED) for label in manifest.models) else None
    identity = dict(manifest.identity)
    if not identity or names.weights_digest(identity) != digest or identity["namespace"] != namespace_of(folder):
        return None
    if not identity["namespace"] and Path(weights_parent(identity, ())) != folder:
        return None  # the directory was moved or copied here
    return identity["namespace"]


def shareable_directories(namespace: str, homes: Callable[[], Iterable[Path]]) -> Iterator[tuple[Path, Manifest]]:
    """Yield the directories, with their manifests, from which a model of the namespace `namespace` ("" for a cluster-scoped
    model) may take files with a matching hash. `homes` returns the directories named `.ome`.

    A model may take files of cluster-scoped models and of its own namespace. Directories of other namespaces are excluded
    even if the hash matches: hubs also publish the hashes of files that not everybody may download, so a known hash does not
    prove permission to read the bytes.
    """
    for folder in homes():
        for path in sorted(folder.glob("*.json")):
            manifest = read_manifest(path)
            if manifest is not None and owner_of(folder, path.stem, manifest) in ("", namespace):
                yield path.with_suffix(""), manifest


def proven_files(home: Path) -> Iterator[ProvenFile]:
    """Yield every verified file below a directory `home` with the name `.ome`, if the file has an owner: files of complete
    models and of running downloads.
    """
    for path in home.glob("*.json"):
        manifest = read_manifest(path)
        owner = owner_of(home, path.stem, manifest) if manifest is not None else None
        for file in manifest.files if manifest is not None and owner is not None else ():
            yield ProvenFile(owner or "", path.with_suffix("") / file.name, file)
    owner = namespace_of(home)
    for journal in home.glob("*.partial/journal"):
        for file in read_journal(journal) if owner is not None and len(journal.parent.stem) == names.WEIGHTS else ():
            yield ProvenFile(owner or "", journal.parent / "files" / file.name, file)
