"""Directories of weights that no model names any more: what the record says of them, and removing them.

Removing needs two: the agent's policy, which offers a directory that nobody has named for long enough, and the operator,
which alone knows that no revision and no pod refers to it (see removals.py). Its leave is for one offer of one process.
"""

import asyncio
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ome_operator.agent.manifest import read
from ome_operator.agent.owners import FORMER, homes, whose
from ome_operator.agent.store import size_below
from ome_operator.util.wall_clock import WallClock, now

logger = logging.getLogger(__name__)

LOOK_EVERY = 60.0
"""Seconds for which a look at the disk counts when nothing of ours has changed it."""
_OURS = re.compile(r"[0-9a-f]{8}|[0-9a-f]{32}")
"""Eight digits: of an agent from before each directory was of a single model. Nothing is fetched into them any more."""


class Directory(NamedTuple):
    """A directory of weights on this disk."""

    path: str
    models: tuple[str, ...] = ()
    """Labels of the models that it was fetched for; () while it is not whole."""
    paths: tuple[str, ...] = ()
    bytes: int = 0


class Leftovers:
    """What lies below the roots, and since when nobody names it."""

    def __init__(
        self, roots: Collection[str], after: float, clock: Callable[[], float] = time.monotonic, wall: WallClock = now
    ) -> None:
        self._roots, self._after, self._clock, self._wall = [Path(each) for each in roots], after, clock, wall
        self._found: tuple[Directory, ...] = ()
        self._looked_at = -1e9
        self._since: dict[str, float] = {}
        self._offers: dict[str, str] = {}

    def changed(self) -> None:
        """The disk is not as it was: look again before the next word about it."""
        self._looked_at = -1e9

    async def look(self) -> None:
        """See what is there."""
        if (tick := self._clock()) - self._looked_at > LOOK_EVERY:
            self._looked_at = tick  # before the look: what changes meanwhile asks for another
            try:
                self._found = await asyncio.to_thread(_find, self._roots)
            except OSError as error:
                logger.warning("cannot see which weights this disk has: %s", error)

    def unused(self, named: Collection[str], *, offer: bool) -> list[dict[str, Any]]:
        """The part of the record about directories that are not `named`; nothing new is offered without `offer`."""
        tick, left = self._clock(), [one for one in self._found if one.path not in named]
        self._since = {one.path: self._since.get(one.path, tick) for one in left}
        due = {path for path, since in self._since.items() if 0 < self._after <= tick - since and offer}
        self._offers = {path: self._offers.get(path) or self._wall().isoformat() for path in sorted(due)}
        return [_entry(one, self._offers.get(one.path, "")) for one in left]

    @property
    def offers(self) -> bool:
        """Whether an answer is awaited."""
        return bool(self._offers)

    async def remove(self, allowed: Collection[Mapping[str, Any]]) -> None:
        """Remove what was offered and allowed; an answer to an older offer allows nothing."""
        for one in allowed:
            path = str(one.get("directory"))
            if path in self._offers and one.get("offer") == self._offers[path]:
                logger.info("removing %s: no model names it, and the operator allows it", path)
                try:
                    await asyncio.to_thread(remove, Path(path))
                except OSError as error:
                    logger.warning("cannot remove %s: %s", path, error)
                self.changed()


def _find(roots: Iterable[Path]) -> tuple[Directory, ...]:
    return tuple(one for home in homes(roots) for one in directories(home))


def directories(home: Path) -> list[Directory]:
    """The directories below one `.ome`, whole ones and others. Names that are not ours are none of them."""
    names = {one.name.partition(".")[0] for one in home.iterdir()}
    return [_directory(home, name) for name in sorted(names) if _OURS.fullmatch(name)]


def _directory(home: Path, digest: str) -> Directory:
    root = home / digest
    manifest = read(home / f"{digest}.json")
    strange = manifest is None or (len(digest) != FORMER and whose(home, digest, manifest) is None)
    if manifest is None or strange or not root.is_dir():
        return Directory(str(root), bytes=size_below(root) + size_below(home / f"{digest}.partial"))
    return Directory(str(root), manifest.models, manifest.paths, manifest.size)


def remove(root: Path) -> None:
    """Remove a directory of weights and all that belongs to it: first what says that it is whole, so that a kill in between
    leaves a directory that counts for nothing.
    """
    home, digest = root.parent, root.name
    (home / f"{digest}.json").unlink(missing_ok=True)
    target = os.path.relpath(root, home.parent)
    for one in home.parent.iterdir():
        if one.is_symlink() and str(one.readlink()) == target:
            one.unlink()
    for name in (digest, f"{digest}.partial"):
        if (home / name).exists():
            shutil.rmtree(home / name)


def _entry(one: Directory, offer: str) -> dict[str, Any]:
    said = {"directory": one.path, "models": list(one.models), "paths": list(one.paths), "bytes": one.bytes, "offer": offer}
    return {key: value for key, value in said.items() if value}
