"""Images of the real node: loaded from archives, never pulled. The image of `pause` is made here."""

import subprocess
import tarfile
import tempfile
from pathlib import Path

from .. import archive, binaries
from ..errors import LocalError
from .facts import PAUSE, RealNode


def load(node: RealNode, file: Path) -> None:
    """Import a docker-archive or OCI archive once; pods use it under the name that it carries, without a pull."""
    if not file.is_file():
        raise LocalError(f"There is no image archive {file}.")
    facts = file.stat()
    done = node.folder / "loaded" / f"{file.name}.{facts.st_size}.{facts.st_mtime_ns}"
    if done.exists():
        return
    _ctr(node, "import", str(file.absolute()))
    done.parent.mkdir(exist_ok=True)
    done.touch()


def listed(node: RealNode) -> list[str]:
    """References of the images that are there."""
    return _ctr(node, "list", "-q").split()


def load_pause(node: RealNode) -> None:
    """The image of every pod's first container, unless it is there."""
    if f"docker.io/{PAUSE}" in listed(node):
        return
    with tempfile.TemporaryDirectory(dir=node.folder) as folder:
        layer, image = Path(folder) / "layer.tar", Path(folder) / "image.tar"
        with tarfile.open(layer, "w") as tar:
            tar.add(binaries.ensure(["pause"])["pause"], "pause", filter=_plain)
        archive.write(image, PAUSE, [layer], archive.ImageConfig(entrypoint=["/pause"], user="65535:65535"))
        load(node, image)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def _ctr(node: RealNode, *words: str) -> str:
    command = ["ctr", "--address", str(node.socket), "--namespace", "k8s.io", "images", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LocalError(f"`ctr images {words[0]}` failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout
