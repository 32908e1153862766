"""Keep the images of a removed real node in the cache for the next real node.

Unpacking images again takes minutes on slow disks. The images of one node are kept, and nodes that run at the same time
share nothing. If an operation of this module fails, the images are unpacked again.
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
from ome_local.realnode.spec import RealNode, link_name
from ome_operator.errors import UserError


def restore_images(node: RealNode) -> None:
    """If the cache contains images, move them to a node that has never been started."""
    if node.images.exists():
        return
    # nothing is cached, or the cache is on another file system
    with locked(cache_dir(), create=True), contextlib.suppress(OSError):
        _place().rename(node.images)


def store_images(at: Layout) -> None:
    """Move the images of a node that is being removed to the cache, unless the cache contains more images. The node's
    pods and its containerd are stopped first.
    """
    with contextlib.suppress(UserError, OSError):
        kept = spec.load(at)
        if kept and kept.network and processes.find_process(at, "containerd"):
            _put(RealNode(at, kept.network))


def _put(node: RealNode) -> None:
    processes.stop_process(node.at, "kubelet", signal.SIGKILL)
    cgroups.remove(link_name(node.at.root))
    images.remove_containers(node)
    images.remove_unused(node)
    processes.stop_process(node.at, "containerd")
    with locked(cache_dir(), create=True):
        if len(images.loaded_records(_place())) > len(images.loaded_records(node.images)):
            return
        for stale in cache_dir().glob(".old-*"):  # left by a process that was killed while removing them
            shutil.rmtree(stale, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=cache_dir(), prefix=".old-", ignore_cleanup_errors=True) as old:
            new = Path(old) / "new"
            node.images.rename(new)  # fails on another file system, and the cached images stay
            with contextlib.suppress(FileNotFoundError):
                _place().rename(Path(old) / "images")
            new.rename(_place())


def _place() -> Path:
    return cache_dir() / "node-images"
