"""Creates the clusters of a test session under unique names. Clusters that a killed session has left behind are removed
first.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from ome_local import layout, lifecycle
from ome_local.binaries import versions
from ome_local.cluster import Cluster
from ome_local.processes import started_at

MINOR = versions.minor(versions.kubernetes(os.environ.get(lifecycle.VERSION, versions.KUBERNETES)))
"""Minor version of the Kubernetes on which the control-plane tests run: 34 for 1.34.2. docs/production.md describes the
differences."""
_NAME = re.compile(r"test-[a-z]+-(\d+)")


def name(purpose: str) -> str:
    """Return the unique name of a cluster of this session. `purpose` is a word in the name."""
    return f"test-{purpose}-{os.getpid()}"


@contextmanager
def fresh(purpose: str, nodes: int = 16, **besides: bool) -> Iterator[Cluster]:
    """Run a cluster of nodes with 8 H200 GPUs, an audit log and higher request limits of the controllers, and with the
    programs `besides`, such as kueue=True.
    """
    sweep()
    named = name(purpose)
    try:
        yield Cluster.up(named, nodes=nodes, accelerator="h200", audit=True, fast=True, **besides)
    finally:
        lifecycle.down(layout.layout(named))


def sweep() -> None:
    """Remove clusters whose test session has ended."""
    for known in layout.known_clusters():
        found = _NAME.fullmatch(known)
        if found and started_at(int(found[1])) is None:
            lifecycle.down(layout.layout(known))
