"""A small image with a shell, a web server and the usual tools, for tests that need real pods: Debian's static busybox."""

import subprocess
import tarfile
from pathlib import Path

import pytest

from ome_local.images import build

REFERENCE = "local/busybox:1"


def image(folder: Path) -> Path:
    """Return the docker-archive. Download a Debian package and unpack it in this folder; skip the test if that fails."""
    root = folder / "root"
    for command in ("apt-get -qq download busybox-static", "dpkg-deb -x busybox-static_*.deb root"):
        done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"the image of busybox cannot be had: {done.stderr.strip()}")
    layer = folder / "layer.tar"
    with tarfile.open(layer, "w") as tar:
        tar.add(root / "bin" / "busybox", "bin/busybox", filter=_plain)
        listed = subprocess.run([root / "bin" / "busybox", "--list"], capture_output=True, text=True, check=True)
        for name in sorted(set(listed.stdout.split()) - {"busybox"}):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        temporary = tarfile.TarInfo("tmp")
        temporary.type, temporary.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(temporary)
    made = build.single("busybox", REFERENCE, {layer: "/"}, "--cmd", "/bin/sh")
    layer.unlink()
    return made


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return the archive's entry without its time and owner, so that every session builds the same bytes and finds them in
    the cache.
    """
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry
