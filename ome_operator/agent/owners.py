"""Whose a directory of weights is, and who may take files from it (docs/tenancy.md).

Where it lies and what its manifest says have to agree with what it is called; what does not agree is nobody's.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ome_operator import keys, names
from ome_operator.agent.manifest import Manifest, Proven, lines, read
from ome_operator.agent.store import HIDDEN
from ome_operator.core.weights.mount import NAMESPACES, home

FORMER = 8
"""Digits of a directory that an earlier agent made: its name is that of a URI, whoever asked for it wherever."""
_SHARED = tuple(f"{keys.MODEL_LABEL_PREFIX}{kind}." for kind in ("clusterbasemodel", "finetunedweight"))


class Known(NamedTuple):
    """A file that was proven on this disk."""

    namespace: str
    """Whose it is: "" for files of the whole cluster."""
    path: Path
    proven: Proven


def homes(roots: Iterable[Path]) -> list[Path]:
    """Every `.ome` below some directories; models lie at most a few directories deep. One inside another is none of ours: a
    model's own files may be called that.
    """
    depths = ("", "*/", "*/*/", f"{NAMESPACES}/*/*/")
    found = {home for root in roots for depth in depths for home in root.glob(f"{depth}{HIDDEN}")}
    return sorted(home for home in found if home.is_dir() and HIDDEN not in home.resolve().parent.parts)


def namespace_of(home: Path) -> str | None:
    """The namespace whose directories lie in a `.ome`, "" for those of the whole cluster, None for a place of nobody."""
    if NAMESPACES not in home.parts:
        return ""
    return home.parent.name if home.parent.parent.name == NAMESPACES and home.parts.count(NAMESPACES) == 1 else None


def whose(place: Path, digest: str, known: Manifest) -> str | None:
    """The namespace that a directory in the `.ome` at `place` belongs to, "" for the whole cluster, None for nobody."""
    if len(digest) == FORMER:
        return "" if known.models and all(label.startswith(_SHARED) for label in known.models) else None
    identity = dict(known.identity)
    if not identity or names.weights_digest(identity) != digest or identity["namespace"] != namespace_of(place):
        return None
    if not identity["namespace"] and Path(home(identity, ())) != place:
        return None  # it was moved here, or copied
    return identity["namespace"]


def lenders(namespace: str, places: Callable[[], Iterable[Path]]) -> Iterator[tuple[Path, Manifest]]:
    """Directories whose files a model may take if their hash is right, with their manifests: those of the whole cluster,
    and of its own namespace. Hubs publish the hashes of files that they do not give to everybody, so a hash entitles
    nobody to the bytes.
    """
    for place in places():
        for manifest in sorted(place.glob("*.json")):
            known = read(manifest)
            if known is not None and whose(place, manifest.stem, known) in ("", namespace):
                yield manifest.with_suffix(""), known


def known_files(place: Path) -> Iterator[Known]:
    """Every file below a `.ome` that was proven and is somebody's, of whole models and of those on their way."""
    for manifest in place.glob("*.json"):
        known = read(manifest)
        owner = whose(place, manifest.stem, known) if known is not None else None
        for file in known.files if known is not None and owner is not None else ():
            yield Known(owner or "", manifest.with_suffix("") / file.name, file)
    owner = namespace_of(place)
    for journal in place.glob("*.partial/journal"):
        for file in lines(journal) if owner is not None and len(journal.parent.stem) == names.WEIGHTS else ():
            yield Known(owner or "", journal.parent / "files" / file.name, file)
