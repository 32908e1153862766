"""Find directories of weights that no model uses any more, report them in the node's record, and remove them.

A removal needs two decisions. First, the agent offers to remove a directory that no model has used for the configured time.
Then the operator permits the removal, because only the operator can check that no revision and no pod refers to the
directory (controllers/weights_gc.py). A permission is valid only for one offer of one agent process.
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

from ome_operator.agent.access import LEGACY_DIGITS, find_homes, owner_of
from ome_operator.agent.disk_files import size_below
from ome_operator.agent.manifest import read_manifest
from ome_operator.agent.store import READING
from ome_operator.util.wall_clock import WallClock, now

logger = logging.getLogger(__name__)

SCAN_EVERY = 60.0
"""Seconds for which a scan of the disk stays valid while the agent changes nothing."""
_DIGEST = re.compile(r"[0-9a-f]{8}|[0-9a-f]{32}")
"""Pattern of the names of directories of weights. An earlier version of the agent created names of eight digits. Such a
directory could belong to several models; nothing is downloaded into it any more."""


class Directory(NamedTuple):
    """A directory of weights on this disk."""

    path: str
    models: tuple[str, ...] = ()
    """Node labels of the models for which the directory was downloaded; () while the directory is incomplete."""
    paths: tuple[str, ...] = ()
    bytes: int = 0


class UnusedDirectories:
    """The directories of weights below the roots, and the time since when each directory is unused."""

    def __init__(
        self, roots: Collection[str], after: float, clock: Callable[[], float] = time.monotonic, wall: WallClock = now
    ) -> None:
        self._roots, self._after, self._clock, self._wall = [Path(each) for each in roots], after, clock, wall
        self._found: tuple[Directory, ...] = ()
        self._looked_at = -1e9
        self._since: dict[str, float] = {}
        self._offers: dict[str, str] = {}

    def mark_outdated(self) -> None:
        """Mark the last scan as outdated, so that the disk is scanned before the next report."""
        self._looked_at = -1e9

    async def scan(self) -> None:
        """Scan the disk for directories of weights, unless the last scan is recent."""
        if (tick := self._clock()) - self._looked_at > SCAN_EVERY:
            self._looked_at = tick  # Set before the scan, because a change during the scan makes another scan necessary.
            try:
                self._found = await asyncio.to_thread(_find, self._roots)
            except OSError as error:
                logger.warning("cannot list the directories of weights on this disk: %s", error)

    def unused_record(self, named: Collection[str], *, offer: bool) -> list[dict[str, Any]]:
        """Return the part of the record that lists the directories that no model uses. `named` contains the directories
        that models use. No new removal is offered unless `offer` is true.
        """
        tick, unnamed = self._clock(), [directory for directory in self._found if directory.path not in named]
        self._since = {directory.path: self._since.get(directory.path, tick) for directory in unnamed}
        due = {path for path, since in self._since.items() if 0 < self._after <= tick - since and offer}
        self._offers = {path: self._offers.get(path) or self._wall().isoformat() for path in sorted(due)}
        return [_entry(directory, self._offers.get(directory.path, "")) for directory in unnamed]

    @property
    def has_offer(self) -> bool:
        """Return whether a removal is offered, so that the agent waits for the operator's answer."""
        return bool(self._offers)

    async def remove(self, allowed: Collection[Mapping[str, Any]]) -> None:
        """Remove the directories that were offered and that the operator permitted. An answer to an older offer permits
        nothing.
        """
        for removal in allowed:
            path = str(removal.get("directory"))
            if path in self._offers and removal.get("offer") == self._offers[path]:
                logger.info("removing %s: no model refers to this directory, and the operator permits the removal", path)
                try:
                    await asyncio.to_thread(remove, Path(path))
                except OSError as error:
                    logger.warning("cannot remove %s: %s", path, error)
                self.mark_outdated()


def _find(roots: Iterable[Path]) -> tuple[Directory, ...]:
    return tuple(directory for home in find_homes(roots) for directory in directories(home))


def directories(home: Path) -> list[Directory]:
    """Return the complete and incomplete directories of weights in `home`, a directory named `.ome`. Directories whose names
    are not those of weights are ignored.
    """
    names = {entry.name.partition(".")[0] for entry in home.iterdir()}
    return [_directory(home, name) for name in sorted(names) if _DIGEST.fullmatch(name)]


def _directory(home: Path, digest: str) -> Directory:
    root = home / digest
    manifest = read_manifest(home / f"{digest}.json")
    unowned = manifest is None or (len(digest) != LEGACY_DIGITS and owner_of(home, digest, manifest) is None)
    if manifest is None or unowned or not root.is_dir():
        return Directory(str(root), bytes=size_below(root) + size_below(home / f"{digest}.partial"))
    return Directory(str(root), manifest.models, manifest.paths, manifest.size)


def remove(root: Path) -> None:
    """Remove a directory of weights, its manifest and its running download. The manifest is removed first, so that a kill
    during the removal leaves an incomplete directory.
    """
    home, digest = root.parent, root.name
    (home / f"{digest}.json").unlink(missing_ok=True)
    (home / f"{digest}{READING}").unlink(missing_ok=True)
    target = os.path.relpath(root, home.parent)
    for entry in home.parent.iterdir():
        if entry.is_symlink() and str(entry.readlink()) == target:
            entry.unlink()
    for name in (digest, f"{digest}.partial"):
        if (home / name).exists():
            shutil.rmtree(home / name)


def _entry(item: Directory, offer: str) -> dict[str, Any]:
    entry = {
        "directory": item.path,
        "models": list(item.models),
        "paths": list(item.paths),
        "bytes": item.bytes,
        "offer": offer,
    }
    return {key: value for key, value in entry.items() if value}
