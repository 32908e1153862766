"""A small image with a shell, a web server and the usual tools, for tests that need real pods: Debian's static busybox."""

import subprocess
import tarfile
from pathlib import Path

import pytest

from ome_local.images import archive

REFERENCE = "local/busybox:1"


def image(folder: Path) -> Path:
    """The docker-archive, made in this folder. Fetches one Debian package and unpacks it there; skips where that fails."""
    root = folder / "root"
    for command in ("apt-get -qq download busybox-static", "dpkg-deb -x busybox-static_*.deb root"):
        done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"the image of busybox cannot be had: {done.stderr.strip()}")
    with tarfile.open(folder / "layer.tar", "w") as layer:
        layer.add(root / "bin" / "busybox", "bin/busybox")
        listed = subprocess.run([root / "bin" / "busybox", "--list"], capture_output=True, text=True, check=True)
        for name in set(listed.stdout.split()) - {"busybox"}:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            layer.addfile(link)
        temporary = tarfile.TarInfo("tmp")
        temporary.type, temporary.mode = tarfile.DIRTYPE, 0o1777
        layer.addfile(temporary)
    archive.write(folder / "busybox.tar", REFERENCE, [folder / "layer.tar"], archive.ImageConfig(cmd=["/bin/sh"]))
    (folder / "layer.tar").unlink()
    return folder / "busybox.tar"
