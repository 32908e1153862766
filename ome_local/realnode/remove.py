"""Take the node away: what is left once the cluster's processes have ended."""

import contextlib
from pathlib import Path

from ome_local import tinymodel
from ome_local.layout import Layout
from ome_local.lock import locked
from ome_local.realnode import cgroups, namespaces
from ome_local.realnode.spec import mark

_BUILT_IN = ("/var/lib/kubelet", "/var/lib/cni")
"""Folders that node programs insist on. Ours are mounted over them; on the machine they stay empty."""


def take_away(at: Layout) -> None:
    """Containers, control groups, link, folders, the tiny model. Safe after any death, and where there never was a node."""
    if not (at.root / "node").exists():
        return
    cgroups.remove(mark(at.root))
    namespaces.unlink(at)
    with locked(namespaces.MACHINE, create=False):
        if not namespaces.others():  # to remove a folder would unmount it in another node, whose pods may use the model too
            tinymodel.remove()
            for path in _BUILT_IN:
                with contextlib.suppress(OSError):  # not empty: somebody else's
                    Path(path).rmdir()
