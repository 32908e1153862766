"""Images of the real node: loaded from archives, never pulled. The image of `pause` is made here."""

import re
import subprocess
import time
from pathlib import Path

from ome_local.binaries import ensure
from ome_local.images import build
from ome_local.realnode.spec import PAUSE, RealNode
from ome_operator.errors import UserError

_ENDED_WITHIN_S = 30.0
_KEPT_S = 14 * 86400.0
"""Images that were not loaded for so long are not kept for further nodes."""
_GONE = re.compile("parent snapshot .* does not exist")
_IMPORTED = re.compile(r"unpacking (\S+) \((sha256:[0-9a-f]{64})\)")


def load(node: RealNode, file: Path) -> None:
    """Import a docker-archive or OCI archive, unless it was and is still there; pods use it by its name, without a pull."""
    if not file.is_file():
        raise UserError(f"There is no image archive {file}.")
    facts = file.stat()
    done = _loaded(node.images) / f"{file.name}.{facts.st_size}.{facts.st_mtime_ns}"
    known = set(done.read_text().splitlines()) if done.exists() else set()
    if known and known <= _digests(node):
        done.touch()
        return
    said = _unpacked(node, file)
    for older in loaded(node.images):
        if _names(said) & _names(older.read_text()):  # its name is this image's now
            older.unlink()
    if said:
        done.parent.mkdir(exist_ok=True)
        done.write_text(said)


def _unpacked(node: RealNode, file: Path) -> str:
    """Import an archive, once more where containerd removed layers meanwhile that the former image of its name had alone."""
    try:
        return _import(node, file)
    except UserError as error:
        if not _GONE.search(str(error)):
            raise
        _collect(node)
        return _import(node, file)


def _import(node: RealNode, file: Path) -> str:
    """A line `name digest` for each image of the archive; "" where containerd does not say them."""
    try:  # containerd 2 tells digests only so, and 1.6 does not know the word
        said = _ctr(node, "images", "import", "--local", str(file.absolute()))
    except UserError as error:
        if "flag provided but not defined" not in str(error):
            raise
        said = _ctr(node, "images", "import", str(file.absolute()))
    return "\n".join(" ".join(one) for one in _IMPORTED.findall(said))


def _names(text: str) -> set[str]:
    return {line.partition(" ")[0] for line in text.splitlines()}


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


def remove_unused(node: RealNode) -> None:
    """Images that nobody loaded for a while, and those whose name is another's, so that only kubelets' names are left."""
    old = [one for one in loaded(node.images) if one.stat().st_mtime < time.time() - _KEPT_S]
    names = {name for one in old for name in _names(one.read_text())}
    there = [line.split() for line in _digests(node) if line.split()[0] not in names]
    named = {digest for name, digest in there if not name.startswith("sha256:")}
    names |= {name for name, digest in there if name.startswith("sha256:") and digest not in named}
    if names:
        _ctr(node, "images", "remove", *sorted(names))
    for one in old:
        one.unlink()
    _collect(node)


def _collect(node: RealNode) -> None:
    """Remove what no image has any more: an import that finds a layer while the next containerd removes it fails.

    The end of a lease is what containerd can be told to follow with a collection, and waits for it.
    """
    _ctr(node, "leases", "create", "--id", "collect")
    _ctr(node, "leases", "delete", "--sync", "collect")


def remove_containers(node: RealNode) -> None:
    """Those of ended pods, with what they wrote. UserError when one is there that does not end."""
    until = time.monotonic() + _ENDED_WITHIN_S
    while ids := _ctr(node, "containers", "list", "-q").split():
        try:
            _ctr(node, "containers", "delete", *ids)
        except UserError:  # containerd learns of an end a moment later
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
    files = {ensure.ensure(["pause"])["pause"]: "/pause"}
    load(node, build.single("pause", PAUSE, files, "--entrypoint", '["/pause"]', "--user", "65535:65535"))


def _ctr(node: RealNode, *words: str) -> str:
    command = ["ctr", "--address", str(node.socket), "--namespace", "k8s.io", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"`ctr {' '.join(words[:2])}` failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout
