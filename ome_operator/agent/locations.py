"""Determine where a model's weights are stored on this node, and whether the model may use that location
(docs/tenancy.md).
"""

import os
import stat
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from ome_operator.agent.access import find_homes, shareable_directories
from ome_operator.agent.store import HIDDEN, Store
from ome_operator.core.weights.mount import LOCAL, NAMESPACES, AnyModel, Weights, root_of, weights, weights_parent

MAX_NAME_BYTES = 255
"""Maximum length in bytes of a name in a path, on every Linux file system."""


class AgentRoots:
    """The directories below which an agent writes, with the inode numbers that they had when the agent started."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._known: Mapping[str, tuple[int, int] | None] = {name: _inode(name) for name in names}

    def outside_message(self, model: AnyModel) -> str:
        """Return a message if a model's path is below none of the root directories; "" if it is below one of them."""
        path = weights(model).path
        if any(len(os.fsencode(part)) > MAX_NAME_BYTES for part in PurePosixPath(path).parts):
            return f"spec.storage.path contains a name of more than {MAX_NAME_BYTES} bytes: choose a shorter name"
        if path.startswith("/") and ".." not in PurePosixPath(path).parts and root_of(path, self.names):
            return ""
        below = " or ".join(self.names)
        remedy = "choose a path below one of these directories, or add its parent directory to agent.roots of the chart"
        return f"spec.storage.path {path} is not below {below}: {remedy}"

    def misplaced_message(self, model: AnyModel) -> str:
        """Return a message if a model may not use its path, regardless of the files on the disk; "" if it may use the
        path.
        """
        if message := self.outside_message(model):
            return message
        identity = weights(model)
        path = PurePosixPath(identity.path)
        below = path.relative_to(root_of(identity.path, self.names)).parts
        own = identity.uri.startswith(LOCAL) and identity.namespace and below[:2] == (NAMESPACES, identity.namespace)
        if own and len(below) > 2:
            below = below[2:]
        if taken := [part for part in below if _folded(part) in (HIDDEN, NAMESPACES)]:
            message = f"spec.storage.path {path} has the component {taken[0]}, which is reserved for the agents"
            return f"{message}: choose another path"
        return ""

    def disk_message(self, model: AnyModel) -> str:
        """Return a message if files on the disk (such as a symlink) would redirect a model's files to another location; ""
        if no file does.
        """
        identity = weights(model)
        root = root_of(identity.path, self.names)
        if (now := _inode(root)) is None:
            return f"{root} does not exist or is not a directory: check that its disk is mounted"
        if now != (self._known[root] or now):
            message = (
                f"{root} is no longer the directory that it was when the agent started: check that its disk is mounted."
            )
            return f"{message} To use the present directory, restart the agent"
        target = (
            Path(identity.path) if identity.uri.startswith(LOCAL) else Path(weights_parent(identity._asdict(), self.names))
        )
        for folder in _between(root, target):
            if folder.is_symlink():
                return f"{folder} is a symbolic link, and agents follow no symbolic links below {root}: choose another path"
            if not folder.exists():
                return ""
        return ""

    def store(self, model: AnyModel) -> Store:
        """Return the store for a model's files."""
        identity = weights(model)
        store_home, root = Path(weights_parent(identity._asdict(), self.names)), root_of(identity.path, self.names)

        def homes_to_search() -> list[Path]:
            return find_homes([Path(root)]) if identity.namespace else [store_home]

        return Store(
            Path(identity.path),
            identity.digest,
            store_home if identity.namespace else None,
            identity=identity._asdict(),
            lenders=lambda: shareable_directories(identity.namespace, homes_to_search),
        )

    def has_files_of(self, model: AnyModel) -> bool:
        """Return whether the files of a model are on this disk. A disabled model is not downloaded any more, but files on
        the disk are still verified, because running services may need them again.
        """
        identity = weights(model)
        return Path(identity.path).is_dir() if identity.uri.startswith(LOCAL) else self.store(model).has_manifest


def _folded(part: str) -> str:
    """Return the name of a directory as file systems that ignore case compare it: compatibility characters are replaced by
    their equivalents, and characters without a width are removed.
    """
    visible = "".join(item for item in unicodedata.normalize("NFKC", part) if unicodedata.category(item) != "Cf")
    return visible.casefold()


def path_conflict(mine: Weights, taken: Mapping[str, Weights]) -> str:
    """Return a message if a model may not use its path because another model already uses the path. Return "" if the path is
    not in use. `mine` is the identity of the model, and `taken` maps the paths in use to the identities of their models.

    Files that are downloaded for a namespace use no path of the node, so such models never conflict.
    """
    other = taken.get(normalized_path(mine))
    if other is not None and (other.uri, other.source) != (mine.uri, mine.source):
        first = f"{other.kind} {other.name}"
        return f"spec.storage.path {mine.path} is in use by {first}, which has different files: choose another path"
    if mine.uri.startswith(LOCAL):
        return ""
    for above in map(str, PurePosixPath(normalized_path(mine)).parents):
        if (other := taken.get(above)) is not None and not other.uri.startswith(LOCAL):
            first = f"{other.kind} {other.name}"
            return f"spec.storage.path {mine.path} is inside {above}, which is in use by {first}: choose another path"
    return ""


def normalized_path(identity: Weights) -> str:
    """Return the path of a model without `.` elements and superfluous slashes, so that equal paths are equal texts."""
    return str(PurePosixPath(identity.path))


def uses_node_path(identity: Weights) -> bool:
    """Return whether a model uses its path on a node, either as a symlink to downloaded files or for files that an
    administrator put there.
    """
    return not identity.namespace


def _between(root: str, target: Path) -> Iterator[Path]:
    """Yield the directories between `root` and `target`, from the top to the bottom, including `target` and excluding
    `root`.
    """
    folder = Path(root)
    for part in target.relative_to(root).parts:
        folder /= part
        yield folder


def _inode(path: str) -> tuple[int, int] | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISDIR(status.st_mode) else None
