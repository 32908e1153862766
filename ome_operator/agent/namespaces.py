"""Namespaces whose weights lie on this disk. One that was deleted and made again is somebody else's, and gets nothing of
the former.

A file beside the weights says the UID of the namespace. Where the API server knows another, or none, everything moves to
`<root>/.namespaces/.former`, which no pod may mount and no model takes files from; it is removed like all that no model
names.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from ome_operator.core.weights.mount import NAMESPACES
from ome_operator.kube.errors import Forbidden, KubeError, NotFound

logger = logging.getLogger(__name__)

FORMER = ".former"
MARK = "uid"
USED_EVERY, UNUSED_EVERY = 300.0, 30.0
"""Seconds between two looks at a namespace that has models here, and at those that have none any more."""


class Namespaces:
    """What is known of the namespaces that have weights on this disk, or want them."""

    def __init__(self, uid: Callable[[str], Awaitable[str]], clock: Callable[[], float] = time.monotonic) -> None:
        self._uid, self._clock = uid, clock
        self._settled: set[str] = set()
        """UIDs of models whose namespace was looked at since they came."""
        self._looked_at: dict[str, float] = {}
        self.waiting = False
        """Whether the API server has yet to say something about the namespace of a model."""

    def settled(self, model: str) -> bool:
        """Whether what lies here for the namespace of a model (its UID) is that namespace's own."""
        return model in self._settled

    async def look(self, roots: Iterable[str], models: Mapping[str, tuple[str, str]]) -> None:
        """Ask about namespaces that nobody has asked about for a while, and about that of each model that is new.

        `models`: UID -> (namespace, root) of those that are to be here.
        """
        now, used = self._clock(), {namespace for namespace, _ in models.values()}
        self._settled &= models.keys()
        here = await asyncio.to_thread(_present, roots) if self._due("", now, UNUSED_EVERY) else set[str]()
        self.waiting = False
        for namespace in sorted(used | here):
            mine = {uid: Path(root) for uid, (name, root) in models.items() if name == namespace}
            fresh = bool(mine.keys() - self._settled)
            if self._due(namespace, now, 0.0 if fresh else USED_EVERY if mine else UNUSED_EVERY):
                try:
                    await self._ask(namespace, [Path(root) for root in roots], mine)
                except KubeError as error:
                    self.waiting |= fresh
                    logger.info("namespace %s: %s", namespace, error)

    def _due(self, what: str, now: float, every: float) -> bool:
        if now - self._looked_at.get(what, -1e9) < every:
            return False
        self._looked_at[what] = now
        return True

    async def _ask(self, namespace: str, roots: Iterable[Path], models: Mapping[str, Path]) -> None:
        try:
            uid = await self._uid(namespace)
        except NotFound:
            uid = ""
        except Forbidden as error:
            logger.warning("agents cannot tell whether a namespace was made again: %s", error)
            self._settled |= models.keys()
            return
        await asyncio.to_thread(_part, namespace, uid, roots)
        if uid:
            await asyncio.to_thread(_mark, namespace, uid, set(models.values()))
            self._settled |= models.keys()
        else:
            self._settled -= models.keys()


def _present(roots: Iterable[str]) -> set[str]:
    """Namespaces that have a folder below a root."""
    found = [place for root in roots for place in (Path(root) / NAMESPACES).glob("*")]
    return {place.name for place in found if place.name != FORMER and place.is_dir() and not place.is_symlink()}


def _part(namespace: str, uid: str, roots: Iterable[Path]) -> None:
    """Move away what is not of the namespace with this UID; "" is that of no namespace."""
    for root in roots:
        place = root / NAMESPACES / namespace
        if place.is_symlink() or not place.is_dir() or (known := _read(place / MARK)) in ("", uid):
            continue
        away = root / NAMESPACES / FORMER / f"{namespace}.{known}"
        while away.exists():
            away = away.with_name(f"{away.name}+")
        away.parent.mkdir(exist_ok=True)
        place.replace(away)
        logger.warning("%s is of a namespace that was deleted: moved to %s", place, away)


def _mark(namespace: str, uid: str, roots: Iterable[Path]) -> None:
    for root in roots:
        place = root / NAMESPACES / namespace
        linked = place.parent.is_symlink() or place.is_symlink()
        if root.is_absolute() and root.is_dir() and not linked and not (place / MARK).exists():
            place.mkdir(parents=True, exist_ok=True)
            fresh = place / f"{MARK}.new"
            fresh.write_text(uid)
            fresh.replace(place / MARK)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
