"""Where a model's weights go on this node, and whether they may (docs/tenancy.md)."""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from ome_operator.agent.owners import homes, lenders
from ome_operator.agent.record import Held
from ome_operator.agent.store import HIDDEN, Store
from ome_operator.core.weights.mount import NAMESPACES, Weights, home, root_of, weights

LOCAL = "local://"
LONGEST = 255
"""Bytes of a name in a path, at most, on every file system of Linux."""


class Roots:
    """Directories that an agent writes below, each as it was when the agent started."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._known: Mapping[str, tuple[int, int] | None] = {name: _inode(name) for name in names}

    def outside(self, model: Held) -> str:
        """A sentence when a model's path is not below a root, else ""."""
        path = weights(model).path
        if any(len(os.fsencode(part)) > LONGEST for part in PurePosixPath(path).parts):
            return f"spec.storage.path has a name of more than {LONGEST} bytes, which no disk takes: choose a shorter one"
        if path.startswith("/") and ".." not in PurePosixPath(path).parts and root_of(path, self.names):
            return ""
        below = " or ".join(self.names)
        return f"spec.storage.path {path} is not below {below}: move it there, or add to agent.roots of the chart"

    def misplaced(self, model: Held) -> str:
        """A sentence when a model may not have its path, whatever is on the disk, else ""."""
        if said := self.outside(model):
            return said
        identity = weights(model)
        path = PurePosixPath(identity.path)
        below = path.relative_to(root_of(identity.path, self.names)).parts
        own = identity.uri.startswith(LOCAL) and identity.namespace and below[:2] == (NAMESPACES, identity.namespace)
        if own and len(below) > 2:
            below = below[2:]
        if taken := [part for part in below if part in (HIDDEN, NAMESPACES)]:
            said = f"spec.storage.path {path} has the component {taken[0]}, below which agents keep their own"
            return f"{said}: choose another"
        return ""

    def detour(self, model: Held) -> str:
        """A sentence when what is on the disk would lead a model's files out of their place, else ""."""
        identity = weights(model)
        root = root_of(identity.path, self.names)
        if (now := _inode(root)) is None:
            return f"{root} is not there, or no directory: is its disk mounted?"
        if now != (self._known[root] or now):
            said = f"{root} is another directory than when the agent started: is its disk mounted?"
            return f"{said} Restart the agent to use it"
        place = Path(identity.path) if identity.uri.startswith(LOCAL) else Path(home(identity._asdict(), self.names))
        for folder in _between(root, place):
            if folder.is_symlink():
                return f"{folder} is a symbolic link, and nothing is written through links below {root}: choose another path"
            if not folder.exists():
                return ""
        return ""

    def store(self, model: Held) -> Store:
        """The place of a model's files."""
        identity = weights(model)
        place, root = Path(home(identity._asdict(), self.names)), root_of(identity.path, self.names)

        def near() -> list[Path]:
            return homes([Path(root)]) if identity.namespace else [place]

        return Store(
            Path(identity.path),
            identity.digest,
            place if identity.namespace else None,
            identity=identity._asdict(),
            lenders=lambda: lenders(identity.namespace, near),
        )

    def present(self, model: Held) -> bool:
        """Whether the files of a model are here already. A disabled model is fetched no more; what is here is looked
        after, for services that run may need it again.
        """
        identity = weights(model)
        return Path(identity.path).is_dir() if identity.uri.startswith(LOCAL) else self.store(model).whole


def conflict(mine: Weights, taken: Mapping[str, Weights]) -> str:
    """A sentence when a model may not have its path because of those that have theirs already, else "".

    What is fetched for a namespace takes no path of the node, so it is in nobody's way.
    """
    other = taken.get(spot(mine))
    if other is not None and (other.uri, other.source) != (mine.uri, mine.source):
        first = f"{other.kind} {other.name}"
        return f"spec.storage.path {mine.path} is that of {first}, whose files are others: choose another"
    if mine.uri.startswith(LOCAL):
        return ""
    for above in map(str, PurePosixPath(spot(mine)).parents):
        if (other := taken.get(above)) is not None and not other.uri.startswith(LOCAL):
            first = f"{other.kind} {other.name}"
            return f"spec.storage.path {mine.path} lies in {above}, which is that of {first}: choose another"
    return ""


def spot(identity: Weights) -> str:
    """The path of a model, in its only spelling."""
    return str(PurePosixPath(identity.path))


def takes_path(identity: Weights) -> bool:
    """Whether something of a model lies at its path on a node: a link to what was fetched, or what somebody put there."""
    return not identity.namespace


def _between(root: str, place: Path) -> Iterator[Path]:
    """Directories from a root, without it, down to a place."""
    found = Path(root)
    for part in place.relative_to(root).parts:
        found /= part
        yield found


def _inode(path: str) -> tuple[int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None
