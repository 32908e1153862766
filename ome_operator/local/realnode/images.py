"""Images of the real node: loaded from archives, never pulled. The image of `pause` is made here."""

import re
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path

from .. import archive, binaries
from ..errors import LocalError
from .facts import PAUSE, RealNode

_ENDED_WITHIN_S = 5.0
_IMPORTED = re.compile(r"unpacking (\S+) \((sha256:[0-9a-f]{64})\)")


def load(node: RealNode, file: Path) -> None:
    """Import a docker-archive or OCI archive, unless it was and is still there; pods use it by its name, without a pull."""
    if not file.is_file():
        raise LocalError(f"There is no image archive {file}.")
    facts = file.stat()
    done = _loaded(node.images) / f"{file.name}.{facts.st_size}.{facts.st_mtime_ns}"
    if done.exists() and set(done.read_text().splitlines()) <= _digests(node):
        return
    said = _ctr(node, "images", "import", str(file.absolute()))
    text = "\n".join(" ".join(one) for one in _IMPORTED.findall(said))
    for older in loaded(node.images):
        if older.read_text() == text:  # the same image, from an archive that was made again
            older.unlink()
    done.parent.mkdir(exist_ok=True)
    done.write_text(text)


def loaded(folder: Path) -> list[Path]:
    """What was imported into a containerd of this folder: a file per archive, with names and digests of its images."""
    return list(_loaded(folder).glob("*"))


def _loaded(folder: Path) -> Path:
    """Beside the images themselves, for both go where the folder goes."""
    return folder / "loaded"


def _digests(node: RealNode) -> set[str]:
    """`name digest` of every image that is there: another archive may have taken its name."""
    listed = [line.split() for line in _ctr(node, "images", "list").splitlines()[1:]]
    return {f"{name} {digest}" for name, _, digest, *_ in listed}


def remove_containers(node: RealNode) -> None:
    """Those of ended pods, with what they wrote. LocalError when one is there that does not end."""
    until = time.monotonic() + _ENDED_WITHIN_S
    while ids := _ctr(node, "containers", "list", "-q").split():
        try:
            _ctr(node, "containers", "delete", *ids)
        except LocalError:  # containerd learns of an end a moment later
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def listed(node: RealNode) -> list[str]:
    """References of the images that are there."""
    return _ctr(node, "images", "list", "-q").split()


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
    command = ["ctr", "--address", str(node.socket), "--namespace", "k8s.io", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LocalError(f"`ctr {' '.join(words[:2])}` failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout
