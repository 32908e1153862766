"""Images of the real node. They are loaded from archives, and never pulled. The `pause` image is built by this module."""

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
"""Seconds for which an image is kept for other nodes after it was last loaded."""
_GONE = re.compile("parent snapshot .* does not exist")
_NO_ARCHIVE = re.compile("unexpected EOF|unrecognized image format|invalid tar header")
"""Pattern of `ctr`'s error messages about a file that is not an archive of images, or that is only the beginning of an
archive."""
_IMPORTED = re.compile(r"unpacking (\S+) \((sha256:[0-9a-f]{64})\)")


def load(node: RealNode, file: Path) -> None:
    """Import a docker-archive or OCI archive, unless the node still has the images from an earlier import. Pods can then
    use the images by their names without pulling them.
    """
    if not file.is_file():
        raise UserError(f"There is no image archive {file}.")
    facts = file.stat()
    done = _loaded(node.images) / f"{file.name}.{facts.st_size}.{facts.st_mtime_ns}"
    known = set(done.read_text().splitlines()) if done.exists() else set()
    if known and known <= _digests(node):
        done.touch()
        return
    said = _unpacked(node, file)
    for older in loaded_records(node.images):
        if _names(said) & _names(older.read_text()):  # the name of the earlier image now belongs to the new image
            older.unlink()
    if said:
        done.parent.mkdir(exist_ok=True)
        done.write_text(said)


def _unpacked(node: RealNode, file: Path) -> str:
    """Import an archive, and return the result of `_import`. The import is retried once if it failed because containerd had
    meanwhile removed layers of the previous image of the same name.
    """
    try:
        return _import(node, file)
    except UserError as error:
        if not _GONE.search(str(error)):
            raise
        _collect(node)
        return _import(node, file)


def _import(node: RealNode, file: Path) -> str:
    """Import an archive, and return a text with a line `name digest` for each of its images; "" if this version of
    containerd does not print digests.
    """
    try:  # containerd 2 prints digests only with this option, which 1.6 does not have
        said = _ctr(node, "images", "import", "--local", str(file.absolute()))
    except UserError as error:
        if _NO_ARCHIVE.search(str(error)):
            remedy = "name a file that `docker save` or `ome local images` wrote"
            raise UserError(f"{file} is not a complete archive of images ({error}): {remedy}.") from error
        if "flag provided but not defined" not in str(error):
            raise
        said = _ctr(node, "images", "import", str(file.absolute()))
    return "\n".join(" ".join(item) for item in _IMPORTED.findall(said))


def _names(text: str) -> set[str]:
    return {line.partition(" ")[0] for line in text.splitlines()}


def loaded_records(folder: Path) -> list[Path]:
    """Return the record file of each archive that was imported into the containerd with this folder. A record file
    contains the names and digests of the images.
    """
    return list(_loaded(folder).glob("*"))


def _loaded(folder: Path) -> Path:
    """Return the folder of the record files. It is inside the images' folder, because both must be moved together."""
    return folder / "loaded"


def _digests(node: RealNode) -> set[str]:
    """Return a text `name digest` for every image of the node. The digest is needed because another archive may have
    replaced an image of the same name.
    """
    listed = [line.split() for line in _ctr(node, "images", "list").splitlines()[1:]]
    return {f"{name} {digest}" for name, _, digest, *_ in listed}


def remove_unused(node: RealNode) -> None:
    """Remove images that have not been loaded for a long time. Also remove images whose only remaining name is the digest
    name that the kubelet uses, because their other name now belongs to another image.
    """
    old = [item for item in loaded_records(node.images) if item.stat().st_mtime < time.time() - _KEPT_S]
    names = {name for item in old for name in _names(item.read_text())}
    there = [line.split() for line in _digests(node) if line.split()[0] not in names]
    named = {digest for name, digest in there if not name.startswith("sha256:")}
    names |= {name for name, digest in there if name.startswith("sha256:") and digest not in named}
    if names:
        _ctr(node, "images", "remove", *sorted(names))
    for item in old:
        item.unlink()
    _collect(node)


def _collect(node: RealNode) -> None:
    """Remove content that no image uses any more, because an import fails if it uses a layer that containerd removes at the
    same time, as containerd does after its start.

    Deleting a lease is the only operation for which containerd runs a garbage collection and waits for its end.
    """
    _ctr(node, "leases", "create", "--id", "collect")
    _ctr(node, "leases", "delete", "--sync", "collect")


def remove_containers(node: RealNode) -> None:
    """Remove the containers of ended pods and their data. Raises UserError if a container does not end."""
    until = time.monotonic() + _ENDED_WITHIN_S
    while ids := _ctr(node, "containers", "list", "-q").split():
        try:
            _ctr(node, "containers", "delete", *ids)
        except UserError:  # containerd detects the end of a container with a delay
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def image_references(node: RealNode) -> list[str]:
    """Return the references of all images of the node."""
    return _ctr(node, "images", "list", "-q").split()


def load_pause(node: RealNode) -> None:
    """Load the image `pause`, which every pod's first container uses, unless the node already has it."""
    if f"docker.io/{PAUSE}" in image_references(node):
        return
    files = {ensure.ensure(["pause"])["pause"]: "/pause"}
    load(node, build.single("pause", PAUSE, files, "--entrypoint", '["/pause"]', "--user", "65535:65535"))


def _ctr(node: RealNode, *words: str) -> str:
    command = ["ctr", "--address", str(node.socket), "--namespace", "k8s.io", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"`ctr {' '.join(words[:2])}` failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout
