"""Remove the remaining files and network devices of the node after the cluster's processes have ended."""

import contextlib
from pathlib import Path

from ome_local import tinymodel
from ome_local.layout import Layout
from ome_local.lock import locked
from ome_local.realnode import cgroups, namespaces
from ome_local.realnode.spec import link_name

_BUILT_IN = ("/var/lib/kubelet", "/var/lib/cni")
"""Folders that are built into the node's programs. The node's own folders are mounted over these folders, which therefore
stay empty on the machine."""


def take_away(at: Layout) -> None:
    """Remove the control groups, the link, the folders and the tiny model. The function is safe after any interruption,
    and if the cluster never had a real node.
    """
    if not (at.root / "node").exists():
        return
    cgroups.remove(link_name(at.root))
    namespaces.unlink(at)
    with locked(namespaces.MACHINE, create=False):
        if (
            not namespaces.has_other_links()
        ):  # removing a folder would unmount it in another node, whose pods may also use the model
            tinymodel.remove()
            for path in _BUILT_IN:
                with contextlib.suppress(OSError):  # not empty: it belongs to another program
                    Path(path).rmdir()
