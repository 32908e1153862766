"""The images of a release as OCI layouts. The images of each platform are built on a machine of that platform, and then
joined.
"""

import os
import shutil
from pathlib import Path

from ome_local.binaries.versions import this_machine
from ome_local.images import build, buildah
from ome_local.progress import step
from ome_operator import __version__
from release.layout import Layout

PLATFORMS = ("amd64", "arm64")
IMAGES = {"operator": "ome-operator", "agent": "ome-agent"}
"""Folder below images/ -> name of the image's repository. The other images are only for tests."""


def make(root: Path, into: Path, *, published: bool = False) -> None:
    """Build missing images for this machine's platform as `into/<platform>/<image>`.

    If `published` is true, only the published Debian image is used as base, so that the workflow fails if the registry does
    not respond within seconds.
    """
    platform = this_machine().arch
    for name, repository in IMAGES.items():
        folder = into / platform / name
        if folder.exists():
            continue
        buildah.require()
        tag, log = f"localhost/{repository}:{__version__}", into / f"{name}.log"
        folder.parent.mkdir(parents=True, exist_ok=True)
        with step(f"image {name} for {platform}", quiet_below=0.0):
            buildah.bud(build.dockerfile(name, root), root, tag, log, published=published)
            part = folder.with_name(f".{name}.part")
            shutil.rmtree(part, ignore_errors=True)
            buildah.layout(tag, part, "image")
            part.rename(folder)
    _hand_over(into)


def _hand_over(folder: Path) -> None:
    """Make the calling user the owner of files that were created with sudo, because this user copies the files to the
    next machine.
    """
    if {"SUDO_UID", "SUDO_GID"} <= os.environ.keys() and os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"]), follow_symlinks=False)


def existing_layouts(name: str, below: Path) -> dict[str, Layout]:
    """Return platform -> layout of the existing images called `name` in the folder `below`."""
    found = {platform: below / platform / name for platform in PLATFORMS}
    return {platform: Layout(folder) for platform, folder in found.items() if folder.exists()}
