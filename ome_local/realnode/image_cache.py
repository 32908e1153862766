"""Images outlive clusters: what a real node was loaded with waits in the cache for the next one, which takes it from there.

To unpack them anew takes minutes where disks are slow. One node's images are kept; nodes side by side share nothing, and
what fails here means that images are unpacked once more.
"""

import contextlib
import shutil
import signal
import tempfile
from pathlib import Path

from ome_local import processes, spec
from ome_local.binaries.ensure import cache_dir
from ome_local.layout import Layout
from ome_local.lock import locked
from ome_local.realnode import cgroups, images
from ome_local.realnode.spec import RealNode, mark
from ome_operator.errors import UserError


def take(node: RealNode) -> None:
    """Give a node that never ran what waits, if something does."""
    if node.images.exists():
        return
    with locked(cache_dir(), create=True), contextlib.suppress(OSError):  # nothing waits, or on another file system
        _place().rename(node.images)


def put(at: Layout) -> None:
    """Keep the images of a node that is to be taken away, unless more wait already. Ends its pods and its containerd."""
    with contextlib.suppress(UserError, OSError):
        kept = spec.load(at)
        if kept and kept.network and processes.find(at, "containerd"):
            _put(RealNode(at, kept.network))


def _put(node: RealNode) -> None:
    processes.stop(node.at, "kubelet", signal.SIGKILL)
    cgroups.remove(mark(node.at.root))
    images.remove_containers(node)
    images.remove_unused(node)
    processes.stop(node.at, "containerd")
    with locked(cache_dir(), create=True):
        if len(images.loaded(_place())) > len(images.loaded(node.images)):
            return
        for stale in cache_dir().glob(".old-*"):  # whoever removed it was killed
            shutil.rmtree(stale, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=cache_dir(), prefix=".old-", ignore_cleanup_errors=True) as old:
            new = Path(old) / "new"
            node.images.rename(new)  # fails on another file system: what waits stays
            with contextlib.suppress(FileNotFoundError):
                _place().rename(Path(old) / "images")
            new.rename(_place())


def _place() -> Path:
    return cache_dir() / "node-images"
