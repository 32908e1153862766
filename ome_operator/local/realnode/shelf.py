"""Images outlive clusters: what a real node was loaded with waits in the cache for the next one, which takes it from there.

To unpack them anew takes minutes where disks are slow. One node's images are kept; nodes side by side share nothing, and
what fails here means that images are unpacked once more.
"""

import contextlib
import shutil
import signal
import tempfile
from pathlib import Path

from .. import processes, spec
from ..binaries import cache_dir
from ..errors import LocalError
from ..layout import Layout
from ..lock import locked
from . import cgroups, images
from .facts import RealNode, mark


def take(node: RealNode) -> None:
    """Give a node that never ran what waits, if something does."""
    if node.images.exists():
        return
    with locked(cache_dir(), create=True), contextlib.suppress(OSError):  # nothing waits, or on another file system
        _place().rename(node.images)


def put(at: Layout) -> None:
    """Keep the images of a node that is to be taken away, unless more wait already. Ends its pods and its containerd."""
    with contextlib.suppress(LocalError, OSError):
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
