"""Track the namespaces whose weights are on this disk. A namespace that was deleted and created again has a new owner, who
must not get files of the deleted namespace.

A file next to the weights contains the UID of the namespace. If the API server returns another UID, or if the namespace
does not exist, the complete folder is moved to `<root>/.namespaces/.former`. No pod may mount that directory, and no model
takes files from it. The folder is then removed like every directory that no model uses.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from ome_operator.core.weights.mount import NAMESPACES
from ome_operator.kube.errors import Forbidden, KubeError, NotFound

logger = logging.getLogger(__name__)

FORMER = ".former"
MARK = "uid"
USED_EVERY, UNUSED_EVERY = 300.0, 30.0
"""Seconds between two checks of a namespace. The first value is for a namespace with models on this node, the second for
a namespace without models."""


class Namespaces:
    """The state of the namespaces that have weights on this disk or need to store weights on it."""

    def __init__(self, uid: Callable[[str], Awaitable[str]], clock: Callable[[], float] = time.monotonic) -> None:
        self._uid, self._clock = uid, clock
        self._settled: set[str] = set()
        """UIDs of the models whose namespace has been checked since the model was first seen."""
        self._looked_at: dict[str, float] = {}
        self.waiting = False
        """Whether the namespace of a model has not been checked yet, because the API server has not answered."""

    def is_checked(self, model: str) -> bool:
        """Return whether the namespace of the model with the UID `model` was checked. Before the check, files on this disk
        may belong to a former namespace of the same name.
        """
        return model in self._settled

    async def check_namespaces(self, roots: Iterable[str], models: Mapping[str, tuple[str, str]]) -> None:
        """Check the UIDs of the namespaces that were not checked recently, and the namespace of each new model.

        `models` maps the UID of each model that belongs on this node to (namespace, root directory).
        """
        now, used = self._clock(), {namespace for namespace, _ in models.values()}
        self._settled &= models.keys()
        present = await asyncio.to_thread(_namespaces_on_disk, roots) if self._due("", now, UNUSED_EVERY) else set[str]()
        self.waiting = False
        for namespace in sorted(used | present):
            locations = {uid: Path(root) for uid, (name, root) in models.items() if name == namespace}
            fresh = bool(locations.keys() - self._settled)
            if self._due(namespace, now, 0.0 if fresh else USED_EVERY if locations else UNUSED_EVERY):
                try:
                    await self._ask(namespace, [Path(root) for root in roots], locations)
                except KubeError as error:
                    self.waiting |= fresh
                    logger.info("namespace %s: %s", namespace, error)

    def _due(self, namespace: str, now: float, every: float) -> bool:
        if now - self._looked_at.get(namespace, -1e9) < every:
            return False
        self._looked_at[namespace] = now
        return True

    async def _ask(self, namespace: str, roots: Iterable[Path], models: Mapping[str, Path]) -> None:
        try:
            uid = await self._uid(namespace)
        except NotFound:
            uid = ""
        except Forbidden as error:
            logger.warning("agents cannot check whether a namespace was deleted and created again: %s", error)
            self._settled |= models.keys()
            return
        await asyncio.to_thread(_move_foreign, namespace, uid, roots)
        if uid:
            await asyncio.to_thread(mark, namespace, uid, set(models.values()))
            self._settled |= models.keys()
        else:
            self._settled -= models.keys()


def _namespaces_on_disk(roots: Iterable[str]) -> set[str]:
    """Return the names of the namespaces that have a folder below one of `roots`."""
    folders = [folder for root in roots for folder in (Path(root) / NAMESPACES).glob("*")]
    return {folder.name for folder in folders if folder.name != FORMER and folder.is_dir() and not folder.is_symlink()}


def _move_foreign(namespace: str, uid: str, roots: Iterable[Path]) -> None:
    """Move away the folders that belong to an earlier namespace of the same name, whose UID differs from `uid`. `uid` is the
    current UID, or "" if no namespace of this name exists.
    """
    for root in roots:
        folder = root / NAMESPACES / namespace
        if folder.is_symlink() or not folder.is_dir() or (known := _read(folder / MARK)) in ("", uid):
            continue
        target = root / NAMESPACES / FORMER / f"{namespace}.{known}"
        while target.exists():
            target = target.with_name(f"{target.name}+")
        target.parent.mkdir(exist_ok=True)
        folder.replace(target)
        logger.warning("%s belongs to a namespace that was deleted: moved to %s", folder, target)


def mark(namespace: str, uid: str, roots: Iterable[Path]) -> None:
    """Record `uid`, the UID of the namespace `namespace`, in the folders of the namespace below `roots`. A folder in which a
    UID is recorded already stays unchanged.
    """
    for root in roots:
        folder = root / NAMESPACES / namespace
        linked = folder.parent.is_symlink() or folder.is_symlink()
        if root.is_absolute() and root.is_dir() and not linked and not (folder / MARK).exists():
            folder.mkdir(parents=True, exist_ok=True)
            fresh = folder / f"{MARK}.{secrets.token_hex(8)}"
            try:
                fresh.write_text(uid)
                fresh.replace(folder / MARK)
            finally:
                fresh.unlink(missing_ok=True)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
